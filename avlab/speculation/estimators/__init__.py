"""Estimators: from features of draft slots to acceptance estimates. One file each, found by name. numpy only.

Every module of this package is imported here, and registers its estimator: a new estimator is one new file.
"""

from avlab.modules import import_all

import_all(__name__)
