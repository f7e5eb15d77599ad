"""A frontier as numbers: throughput and interactivity of every cell, and which cells no other one dominates."""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np

from avlab.config import RunConfig
from avlab.experiments import prompts, statistics
from avlab.experiments.analysis import NoExperiment, end_of
from avlab.experiments.frontier_plan import earlier_runs
from avlab.experiments.frontier_words import sentences
from avlab.experiments.plan import LEAST_REPEATS
from avlab.policies.arm import load_of, unlabelled
from avlab.store import queries
from avlab.store.experiments import FINISHED
from avlab.store.runs import plain
from avlab.wire.messages import Experiment

NO_INTERVAL = statistics.Interval(-np.inf, np.inf)


def points(con: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> list[dict[str, Any]]:
    """A row a cell over these runs of one frontier: arm, load, repeats; tokens_per_s and interactivity with their low
    and high (Student's 95 % interval over repeats; None below three); p50_tpot_ms, p95_tpot_ms, p50_ttft_ms, ledger, of
    all runs together; dominated: another point is at least as good in both, and better in one.

    tokens_per_s and interactivity are geometric means over repeats, each of which counts alike. Unlike the arms of an
    A/B, whose intervals are of ratios, a point carries error bars of its own: they are of the mean of logarithms, since
    what the machine does to a repeat multiplies, and a rate of pooled tokens and seconds could lie outside them. The
    ledger and the times of users are pooled, so 1e6 over its total_ms is near tokens_per_s and not equal to it.
    """
    blocks = [block for run in runs for block in queries.block_rates(con, run, FINISHED)]
    users = queries.user_times(con, runs, FINISHED)
    ledgers = queries.arm_ledger(con, runs, FINISHED)
    traffic = {
        load: prompts.known(block for block in blocks if load_of(block["arm"]) == load)
        for load in {load_of(block["arm"]) for block in blocks}
    }
    found = []
    for cell in dict.fromkeys(block["arm"] for block in blocks):
        mine = [b for b in blocks if b["arm"] == cell and b["tokens_per_s"] and b["interactivity"]]
        if mine:
            own_ms = prompts.own_ms(traffic[load_of(cell)], mine)
            point: dict[str, Any] = {
                "arm": unlabelled(cell),
                "load": load_of(cell),
                "repeats": len(mine),
                "ledger": prompts.with_prompts(ledgers[cell], own_ms, own_ms),
            }
            for name in ("tokens_per_s", "interactivity"):
                log = np.log([block[name] for block in mine])
                ends = statistics.fixed_sample(log) if len(log) >= LEAST_REPEATS else NO_INTERVAL
                point |= {
                    name: np.exp(log.mean()),
                    f"{name}_low": end_of(ends.low),
                    f"{name}_high": end_of(ends.high),
                }
            seen = users.get(cell, {})
            point |= {name: seen.get(name) for name in ("p50_tpot_ms", "p95_tpot_ms", "p50_ttft_ms")}
            found.append(point)
    for point in found:
        point["dominated"] = any(dominates(other, point) for other in found)
    return plain(sorted(found, key=lambda point: (point["arm"], point["load"])))


def dominates(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a point is at least as good as another in throughput and interactivity, and better in one."""
    pairs = [(one[name], other[name]) for name in ("tokens_per_s", "interactivity")]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def analyse_frontier(
    con: duckdb.DuckDBPyConnection, run: str, slo: tuple[str, float] | None = None
) -> dict[str, Any]:
    """What is known of the frontier that a run measures, with its earlier runs, as JSON can hold it: run_id, runs (that
    measured a cell, and this one), plan, repeats (whole ones), points, cells (measured of those planned, of one
    repeat), planned (cells to be measured, those of earlier runs' whole repeats included), beyond (cells of repeats
    that were begun again: they count in points, too), and sentences. Raises NoExperiment.
    """
    plan = queries.experiment(con, run)
    if plan is None or not all(map(load_of, plan["arms"])):
        raise NoExperiment(f"Run {run} measured no frontier: start one with `avlab frontier`.")
    description = queries.describe(con, run)
    wanted = Experiment(**{name: plan[name] for name in Experiment.__struct_fields__})
    runs = [r for r in earlier_runs(con, RunConfig.make(description["config"]), wanted) if r < run] + [run]
    found = points(con, runs)
    repeats = {each: [row["round"] for row in queries.rounds(con, each) if row["kept"]] for each in runs}
    lost = {each: _begun_again(con, each, each == run) for each in runs}
    blocks = [(each, block) for each in runs for block in queries.block_rates(con, each, FINISHED)]
    beyond = sum(block["round"] in lost[each] for each, block in blocks)
    before = sum(len(repeats[each]) for each in runs[:-1])
    return {
        "run_id": run,
        "runs": runs,
        "state": description["state"],
        "plan": plan,
        "repeats": sum(map(len, repeats.values())),
        "cells": [len(blocks) - beyond, len(plan["arms"])],
        "planned": (before + plan["rounds"]) * len(plan["arms"]),
        "beyond": beyond,
        "points": found,
        "sentences": sentences(found, slo, beyond),
    }


def _begun_again(con: duckdb.DuckDBPyConnection, run: str, newest: bool) -> set[int]:
    """The repeats of a run that another one was served for: dropped ones, and of an earlier run an unfinished one."""
    again = {row["round"] for row in queries.rounds(con, run) if not row["kept"]}
    unfinished = queries.unfinished_round(con, run)
    return again if newest or unfinished is None else again | {unfinished}
