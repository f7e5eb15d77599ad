"""Finds the modules of a package, so that a policy, an estimator, a workload or a measure is one new file."""

import importlib
import pkgutil
from types import ModuleType


def import_all(package: str) -> list[ModuleType]:
    """Every module of a package, imported, in the order of their names."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return [importlib.import_module(f"{package}.{module.name}") for module in found]
