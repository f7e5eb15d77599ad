"""Policies: one file a family of arms, with how it is written and what it decides. numpy only.

Every module of this package is imported here, and registers its arms: a new policy is one new file.
"""

from avlab.modules import import_all

import_all(__name__)
