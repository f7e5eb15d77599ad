"""Finds the kinds of worker by name: every module of this package that holds a `KIND` is one."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from avlab.config import ConfigError, RunConfig
from avlab.kinds.base import Config, Kind
from avlab.modules import names_in

REFERENCE = RunConfig.kind  # what is meant where no kind is named


def _kind(name: str) -> Kind[Any] | None:
    """What the file of that name holds, imported alone: a worker's environment may lack what other kinds need."""
    if name not in names_in("avlab.kinds"):
        return None
    return getattr(import_module(f"avlab.kinds.{name}"), "KIND", None)


@lru_cache(maxsize=1)
def kinds() -> dict[str, Kind[Any]]:
    """Name to kind."""
    found = {name: _kind(name) for name in names_in("avlab.kinds")}
    return {name: kind for name, kind in found.items() if kind is not None}


def kind_named(name: str) -> Kind[Any]:
    """The kind of that name. Raises ConfigError."""
    kind = _kind(name)
    if kind is None:
        raise ConfigError([f"There is no worker of the kind {name!r}; the kinds are {', '.join(kinds())}."])
    return kind


def recorded_kind(name: str) -> Kind[Any]:
    """The kind of a recorded run; the reference engine's where this lab has no such kind."""
    return _kind(name) or kind_named(REFERENCE)


def make_config(values: Mapping[str, Any], kind: str = REFERENCE) -> Config:
    """A configuration of a kind from plain values. Raises ConfigError."""
    config: Config = kind_named(kind).config.make(values)
    return config


def command_of(kind: str) -> tuple[str, ...]:
    """The command that starts a worker of a kind."""
    return kind_named(kind).command(kind)
