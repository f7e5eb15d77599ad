"""The kinds of worker: each has a configuration class here and an entry `avlab/workers/<kind>.py`.

A configuration has `kind`, `threads`, `spin` and `database`, `make(values)`, which raises ConfigError, and `changed`.
Nothing here imports an engine.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from avlab.config import ConfigError, RunConfig
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.serving_config import VllmConfig

Config = RunConfig | AttachConfig | VllmConfig
CONFIGS: dict[str, type[RunConfig] | type[AttachConfig] | type[VllmConfig]] = {
    RunConfig.kind: RunConfig,
    AttachConfig.kind: AttachConfig,
    VllmConfig.kind: VllmConfig,
}
VLLM_PYTHON = "AVLAB_VLLM_PYTHON"  # the interpreter of an environment that has vLLM, where it is another one


def make_config(values: Mapping[str, Any], kind: str = RunConfig.kind) -> Config:
    """A configuration of a kind from plain values. Raises ConfigError."""
    if kind not in CONFIGS:
        raise ConfigError([f"There is no worker of the kind {kind!r}; the kinds are {', '.join(CONFIGS)}."])
    return CONFIGS[kind].make(values)


def command_of(kind: str) -> tuple[str, ...]:
    """The command that starts a worker of a kind."""
    python = other_python() if kind == VllmConfig.kind else ""
    return (python or sys.executable, "-m", f"avlab.workers.{kind}")


def other_python() -> str:
    """The interpreter of another environment, which has vLLM; "" where none is named."""
    return os.environ.get(VLLM_PYTHON, "")
