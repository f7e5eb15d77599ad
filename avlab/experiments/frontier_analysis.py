"""A frontier as numbers: throughput and interactivity of every cell, and which cells no other one dominates."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import duckdb
import numpy as np

from avlab.experiments import control_variate, statistics
from avlab.experiments.analysis import NoExperiment, end_of
from avlab.experiments.answers import FrontierAnswer, Objective, Point
from avlab.experiments.frontier_plan import earlier_runs
from avlab.experiments.frontier_words import sentences
from avlab.experiments.plan import LEAST_REPEATS
from avlab.formats import emulated
from avlab.policies.arm import load_of, unlabelled
from avlab.store import queries
from avlab.store.experiments import FINISHED

NO_INTERVAL = statistics.Interval(-np.inf, np.inf)


class Rated(Protocol):
    """What is compared on a frontier: tokens/s of all requests together, and for one user."""

    @property
    def tokens_per_s(self) -> float: ...
    @property
    def interactivity(self) -> float: ...


def dominates(one: Rated, other: Rated) -> bool:
    """Whether a point is at least as good as another in throughput and interactivity, and better in one."""
    pairs = ((one.tokens_per_s, other.tokens_per_s), (one.interactivity, other.interactivity))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def points(con: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> list[Point]:
    """The cells measured over these runs of one frontier, by arm and load.

    tokens_per_s and interactivity are geometric means over repeats, each of which counts alike. Unlike the arms of an
    A/B, whose intervals are of ratios, a point carries error bars of its own: they are of the mean of logarithms, since
    what the machine does to a repeat multiplies, and a rate of pooled tokens and seconds could lie outside them. The
    ledger and the times of users are pooled, so 1e6 over its total_ms is near tokens_per_s and not equal to it.
    """
    blocks = [block for run in runs for block in queries.block_rates(con, run, FINISHED)]
    users = queries.user_times(con, runs, FINISHED)
    ledgers = queries.arm_ledger(con, runs, FINISHED)
    costs = {
        load: control_variate.fitted(block for block in blocks if load_of(block.arm) == load)
        for load in {load_of(block.arm) for block in blocks}
    }
    found = []
    for cell in dict.fromkeys(block.arm for block in blocks):
        mine = [block for block in blocks if block.arm == cell and block.tokens_per_s and block.interactivity]
        load = load_of(cell)
        if mine and load:
            own_ms = control_variate.own_ms(costs[load], mine)
            throughput, low, high = _mean([block.tokens_per_s or np.nan for block in mine])
            interactivity, users_low, users_high = _mean([block.interactivity or np.nan for block in mine])
            seen = users.get(cell)
            found.append(
                Point(
                    arm=unlabelled(cell),
                    load=load,
                    repeats=len(mine),
                    ledger=control_variate.with_prompts(ledgers[cell], own_ms, own_ms),
                    tokens_per_s=throughput,
                    tokens_per_s_low=low,
                    tokens_per_s_high=high,
                    interactivity=interactivity,
                    interactivity_low=users_low,
                    interactivity_high=users_high,
                    p50_tpot_ms=seen.p50_tpot_ms if seen else None,
                    p95_tpot_ms=seen.p95_tpot_ms if seen else None,
                    p50_ttft_ms=seen.p50_ttft_ms if seen else None,
                    dominated=False,
                )
            )
    found = [replace(point, dominated=any(dominates(other, point) for other in found)) for point in found]
    return sorted(found, key=lambda point: (point.arm, point.load))


def _mean(rates: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The geometric mean over repeats, and Student's interval for it; without ends for fewer than three."""
    log = np.log(rates)
    ends = statistics.fixed_sample(log) if len(log) >= LEAST_REPEATS else NO_INTERVAL
    return float(np.exp(log.mean())), end_of(ends.low), end_of(ends.high)


def analyse_frontier(
    con: duckdb.DuckDBPyConnection, run: str, slo: Objective | None = None
) -> FrontierAnswer:
    """What is known of the frontier that a run measures, with its earlier runs. Raises NoExperiment."""
    plan = queries.experiment(con, run)
    if plan is None or not all(map(load_of, plan.arms)):
        raise NoExperiment(f"Run {run} measured no frontier: start one with `avlab frontier`.")
    description = queries.describe(con, run)
    earlier = earlier_runs(con, description["config"], plan)
    runs = [each for each in earlier if each < run] + [run]
    found = points(con, runs)
    repeats = {each: [row.round for row in queries.rounds(con, each) if row.kept] for each in runs}
    lost = {each: _begun_again(con, each, each == run) for each in runs}
    blocks = [block for each in runs for block in queries.block_rates(con, each, FINISHED)]
    beyond = sum(block.round in lost[block.run] for block in blocks)
    before = sum(len(repeats[each]) for each in runs[:-1])
    return FrontierAnswer(
        run_id=run,
        runs=runs,
        state=description["state"],
        plan=plan,
        repeats=sum(map(len, repeats.values())),
        cells=(len(blocks) - beyond, len(plan.arms)),
        planned=(before + plan.rounds) * len(plan.arms),
        beyond=beyond,
        points=found,
        sentences=[emulated(said, description["emulated"]) for said in sentences(found, slo, beyond)],
        emulated=description["emulated"],
    )


def _begun_again(con: duckdb.DuckDBPyConnection, run: str, newest: bool) -> set[int]:
    """The repeats of a run that another one was served for: dropped ones, and of an earlier run an unfinished one."""
    again = {row.round for row in queries.rounds(con, run) if not row.kept}
    unfinished = queries.unfinished_round(con, run)
    return again if newest or unfinished is None else again | {unfinished}
