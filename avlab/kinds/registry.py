"""Finds the kinds of worker by name: every module of this package that holds a `KIND` is one."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from avlab.config import ConfigError, RunConfig
from avlab.kinds.base import Config, Kind
from avlab.modules import import_all

REFERENCE = RunConfig.kind  # what is meant where no kind is named


@lru_cache(maxsize=1)
def kinds() -> dict[str, Kind[Any]]:
    """Name to kind."""
    found = [module.KIND for module in import_all("avlab.kinds") if hasattr(module, "KIND")]
    return {kind.config.kind: kind for kind in found}


def kind_named(name: str) -> Kind[Any]:
    """The kind of that name. Raises ConfigError."""
    if name not in kinds():
        raise ConfigError([f"There is no worker of the kind {name!r}; the kinds are {', '.join(kinds())}."])
    return kinds()[name]


def recorded_kind(name: str) -> Kind[Any]:
    """The kind of a recorded run; the reference engine's where this lab has no such kind."""
    return kinds().get(name) or kind_named(REFERENCE)


def make_config(values: Mapping[str, Any], kind: str = REFERENCE) -> Config:
    """A configuration of a kind from plain values. Raises ConfigError."""
    config: Config = kind_named(kind).config.make(values)
    return config


def command_of(kind: str) -> tuple[str, ...]:
    """The command that starts a worker of a kind."""
    return kind_named(kind).command(kind)
