"""Finds the modules of a package, so that a policy, an estimator, a workload or a measure is one new file."""

import importlib
import pkgutil
from types import ModuleType


def names_in(package: str) -> list[str]:
    """The names of a package's modules, sorted; the package is imported, they are not."""
    return [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]


def import_all(package: str) -> list[ModuleType]:
    """Every module of a package, imported, in the order of their names."""
    return [importlib.import_module(f"{package}.{name}") for name in names_in(package)]
