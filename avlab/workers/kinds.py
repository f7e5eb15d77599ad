"""The kinds of worker: each has a configuration class here and an entry `avlab/workers/<kind>.py`.

A configuration has `kind`, `threads`, `spin` and `database`, `make(values)`, which raises ConfigError, and `changed`.
Nothing here imports an engine.
"""

import sys
from collections.abc import Mapping
from typing import Any

from avlab.config import ConfigError, RunConfig
from avlab.vllm.attach_config import AttachConfig

Config = RunConfig | AttachConfig
CONFIGS: dict[str, type[RunConfig] | type[AttachConfig]] = {
    RunConfig.kind: RunConfig,
    AttachConfig.kind: AttachConfig,
}


def make_config(values: Mapping[str, Any], kind: str = RunConfig.kind) -> Config:
    """A configuration of a kind from plain values. Raises ConfigError."""
    if kind not in CONFIGS:
        raise ConfigError([f"There is no worker of the kind {kind!r}; the kinds are {', '.join(CONFIGS)}."])
    return CONFIGS[kind].make(values)


def command_of(kind: str) -> tuple[str, ...]:
    """The command that starts a worker of a kind."""
    return (sys.executable, "-m", f"avlab.workers.{kind}")
