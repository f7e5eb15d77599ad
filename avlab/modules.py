"""Finds the modules of a package, so that a new file there is all that a new policy or estimator takes."""

import importlib
import pkgutil
import sys
from types import ModuleType


def import_all(package: str) -> list[ModuleType]:
    """Import every module of a package that is imported already, by name; they register what they hold."""
    found = pkgutil.iter_modules(sys.modules[package].__path__)
    return [importlib.import_module(f"{package}.{module.name}") for module in found]
