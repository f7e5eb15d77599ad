"""A researcher's own: one Python file that adds a feature, an estimator or a rule, without touching this package.

It is named on the command line (`--plugin FILE`) or by $AVLAB_PLUGIN, and runs with all rights of whoever named it; so
nothing that comes through the browser, or with an imported run, can name one. What it adds is judged by `avlab lab` and
is an arm in replay. A model is served by it only where the file says SOUND = True: its author declares that whether a
slot is verified never depends on the token drawn there or later.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from avlab.errors import cause
from avlab.policies import arm as arms
from avlab.speculation.estimators import base as estimators
from avlab.speculation.features import FEATURES

VARIABLE = "AVLAB_PLUGIN"
LARGEST_FILE = 1_000_000  # bytes


class PluginError(ValueError):
    """A plugin that cannot be used. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What a file added. digest: SHA-256 of the file, as a run records it. arms: by the words that they begin with."""

    path: Path
    digest: str
    sound: bool
    features: tuple[str, ...]
    estimators: tuple[str, ...]
    arms: tuple[str, ...]


_loaded: dict[str, Plugin] = {}  # by digest


def name(path: Path) -> None:
    """Have this process, and every worker that it starts, load a file."""
    os.environ[VARIABLE] = str(path.expanduser().absolute())


def load_named() -> Plugin | None:
    """Load the file that is named, once; None where none is. Raises PluginError."""
    named = os.environ.get(VARIABLE, "")
    return load(Path(named)) if named else None


def load(path: Path) -> Plugin:
    """Run a file, and know what it adds; a file that was loaded already is not run again. Raises PluginError.

    A file that fails, adds nothing or takes a name that is taken leaves nothing behind.
    """
    text = _read(path)
    digest = hashlib.sha256(text).hexdigest()
    if digest in _loaded:
        return _loaded[digest]
    registries: list[dict[str, Any]] = [FEATURES, estimators.registered(), arms.registered()]
    before = [dict(each) for each in registries]
    try:
        module = _run(path, digest)
        for kind, known, now in zip(("feature", "estimator", "policy"), before, registries, strict=True):
            if taken := [each for each in known if now.get(each) is not known[each]]:
                raise PluginError(
                    f"The plugin {path} names a {kind} {taken[0]!r}, which is taken: name it otherwise."
                )
        added = [tuple(now.keys() - known.keys()) for known, now in zip(before, registries, strict=True)]
        if not any(added):
            raise PluginError(
                f"The plugin {path} adds nothing: put a class of it under @register, or a Feature into FEATURES."
            )
        sound = vars(module).get("SOUND") is True
    except PluginError:
        for known, now in zip(before, registries, strict=True):
            now.clear()
            now.update(known)
        raise
    for each in added[1]:
        estimators.registered()[each].declared = sound
    for each in added[2]:
        arms.registered()[each].sound = sound
    found = Plugin(path, digest, sound, *(tuple(sorted(each)) for each in added))
    _loaded[digest] = found
    return found


def loaded() -> list[Plugin]:
    """What was loaded so far, for a run's record."""
    return list(_loaded.values())


def described() -> list[str]:
    """File names and SHA-256 of what was loaded, for a run's record."""
    return [f"{each.path.name} {each.digest}" for each in loaded()]


def _read(path: Path) -> bytes:
    if path.suffix != ".py":
        raise PluginError(f"A plugin is a Python file, and {path} is none: give one that ends with .py.")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise PluginError(
                f"The plugin {path} holds more than {LARGEST_FILE:,} bytes: give the one file itself."
            )
        return path.read_bytes()
    except OSError as error:
        raise PluginError(
            f"The plugin {path} cannot be read ({cause(error)}): give the path of a file."
        ) from None


def _run(path: Path, digest: str) -> ModuleType:
    """The file as a module. What it raises is said with the line that raised it."""
    module_name = f"avlab_plugin_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None  # the name ends with .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise PluginError(
            f"The plugin {path} fails{_line(error, path)} with {type(error).__name__} ({_cause(error)}): correct it."
        ) from None
    return module


def _cause(error: BaseException) -> str:
    """One line of what went wrong."""
    return cause(error) if isinstance(error, Exception) else str(error)


def _line(error: BaseException, path: Path) -> str:
    """ " in line 12", of the file itself, where that is known."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" in line {line}" if line else ""
