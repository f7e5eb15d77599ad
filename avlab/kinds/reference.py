"""The reference engine: this project's own, on CPU or CUDA. No torch here."""

from pathlib import Path

from avlab.config import ConfigError, RunConfig
from avlab.cost_file import CostError, read_samples
from avlab.engine.fetch import FetchError, target_folder
from avlab.kinds.base import Kind
from avlab.policies.arm import DEFAULT_ARM
from avlab.workloads import WorkloadError

POLICIES = (
    DEFAULT_ARM,
    "adaptive",
    "adaptive+explore=0.02",
    "adaptive+depth",
    "adaptive+depth+explore=0.001",
    "adaptive:raw",
    "adaptive:head",
    "fixed:2",
    "fixed:4",
    "fixed:7",
    "none",
)


def check(config: RunConfig) -> None:
    """Look at what a run needs. Raises ConfigError with a sentence for each of workload, target and cost file."""
    problems = []
    for look in (_workload, _target, _costs):
        try:
            look(config)
        except (WorkloadError, FetchError, CostError) as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems)


def _workload(config: RunConfig) -> None:
    config.open(config.arrival_pattern, config.seed)


def _target(config: RunConfig) -> None:
    target_folder(config.target)


def _costs(config: RunConfig) -> None:
    if config.costs is not None:
        read_samples(Path(config.costs).expanduser())


KIND = Kind(RunConfig, check=check, playground=True, policies=POLICIES)
