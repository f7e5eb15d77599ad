"""Drafters: one file a kind, with how its folder is known and how it is made.

Every module of this package is imported here, and registers its kind: a new drafter is one new file.
"""

from avlab.modules import import_all

import_all(__name__)
