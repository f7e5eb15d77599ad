"""The plan of a frontier, and what earlier runs leave to be done of it.

A cell is an arm under a load. Every repeat serves each cell once, afresh, in random order, so that what drifts in the
machine favours no arm. A frontier that was stopped goes on with the repeats it lacks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import msgspec

from avlab.config import ConfigError
from avlab.experiments.plan import FRONTIER_ARMS, FRONTIER_LOADS, MOST_ROUNDS, Served, make_plan
from avlab.kinds.base import ServingConfig
from avlab.policies.arm import PolicyError, labels, unlabelled
from avlab.store import queries
from avlab.wire.commands import Experiment

MOST_CELLS = 200


def make_frontier(
    config: Served,
    arms: Sequence[str] = FRONTIER_ARMS,
    loads: Sequence[int] = FRONTIER_LOADS,
    repeats: int = 3,
    block: str | None = None,
    washout: int = 4,
    learn: int = 200,
    order_seed: int | None = None,
) -> tuple[Served, Experiment]:
    """A run's configuration and the plan of a frontier; order_seed as in `make_plan`. Raises ConfigError."""
    loads, arms = sorted(set(loads)), [arm for arm in arms if arm.strip()]
    try:
        labels(arms, config.K)
    except PolicyError as error:
        raise ConfigError([str(error)]) from None
    if len(arms) < 2:
        raise ConfigError(["a frontier needs two arms or more: name some, such as adaptive,fixed:5,none."])
    if not 1 <= repeats <= MOST_ROUNDS:
        raise ConfigError([f"repeats is {repeats}; it must be 1 to {MOST_ROUNDS}."])
    if not loads or loads[0] < 1:
        raise ConfigError(["a frontier needs loads of 1 request or more, such as 1,4,16,64."])
    config, plan = make_plan(
        config, arms, None, loads[-1], repeats, "isolated", block, washout, learn, order_seed
    )
    cells = [f"{arm}@{load}" for arm in plan.arms for load in loads]
    if len(set(map(unlabelled, plan.arms))) < len(plan.arms):
        raise ConfigError(["an arm is listed twice; a frontier takes each once."])
    if len(cells) > MOST_CELLS:
        raise ConfigError(
            [f"{len(cells)} cells are too many; give fewer arms or loads, at most {MOST_CELLS} cells."]
        )
    return config, msgspec.structs.replace(plan, arms=cells, baseline=f"{plan.baseline}@{loads[0]}")


@dataclass(frozen=True, slots=True)
class Rest:
    """What earlier runs leave to be done of a frontier.

    runs: those that have measured a cell of it, oldest first. plan: for the rest; None if nothing is missing.
    """

    runs: list[str]
    plan: Experiment | None


def rest_of(con: duckdb.DuckDBPyConnection, config: ServingConfig, plan: Experiment) -> Rest:
    """What earlier runs leave to be done of this frontier."""
    runs = earlier_runs(con, config.model_dump(mode="json"), plan)
    return Rest(runs, missing(con, runs, plan))


def earlier_runs(con: duckdb.DuckDBPyConnection, config: Mapping[str, Any], plan: Experiment) -> list[str]:
    """The runs that have measured a cell of this very frontier before, oldest first: same settings, cells and block
    length. config: the settings as a run records them.
    """
    wanted, settings = _cells(plan), _settings(config)
    found = []
    for run in queries.experiment_runs(con, frontier=True):
        known = queries.experiment(con, run)
        same = known is not None and _cells(known) == wanted
        measured = same and queries.finished_blocks(con, run) > 0
        if measured and _settings(queries.describe(con, run)["config"]) == settings:
            found.append(run)
    return found[::-1]


def _cells(plan: Experiment) -> tuple[list[str], str, float, str, int, int]:
    """What cells of two plans must have in common to be the same cells."""
    return plan.arms, plan.design, plan.length, plan.unit, plan.washout, plan.learn


def _settings(config: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value
        for name, value in config.items()
        if name not in ("database", "threads", "spin", "seed", "strict")
    }


def missing(con: duckdb.DuckDBPyConnection, runs: Iterable[str], plan: Experiment) -> Experiment | None:
    """The plan without the repeats that these runs hold, in an order of its own; None where nothing is missing."""
    runs = list(runs)
    kept = sum(row.kept for run in runs for row in queries.rounds(con, run))
    if kept >= plan.rounds:
        return None
    return msgspec.structs.replace(plan, rounds=plan.rounds - kept, seed=plan.seed + 1000 * len(runs))
