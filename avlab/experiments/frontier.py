"""The frontier: throughput against interactivity over loads for every arm, measured cell by cell in random order.

A cell is an arm under a load. Every repeat serves each cell once, afresh, in random order, so that what drifts in the
machine favours no arm. A frontier that was stopped goes on with the repeats it lacks.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np

from avlab.config import ConfigError, RunConfig
from avlab.experiments import prompts, statistics
from avlab.experiments.analysis import NoExperiment, end_of
from avlab.experiments.plan import FRONTIER_ARMS, FRONTIER_LOADS, LEAST_REPEATS, MOST_ROUNDS, make_plan
from avlab.experiments.words import AS_MEASURED, UNMEASURED, counted, requests
from avlab.policies.arm import PolicyError, labels, load_of, unlabelled
from avlab.store import queries
from avlab.store.experiments import FINISHED
from avlab.store.runs import plain
from avlab.wire.messages import Experiment

PUBLISHED = Path(__file__).with_name("published_frontier.csv")
MOST_CELLS = 200
NO_INTERVAL = statistics.Interval(-np.inf, np.inf)


class FrontierFileError(ValueError):
    """A CSV that holds no frontier. The message is one sentence."""


def make_frontier(
    config: RunConfig,
    arms: Sequence[str] = FRONTIER_ARMS,
    loads: Sequence[int] = FRONTIER_LOADS,
    repeats: int = 3,
    block: str | None = None,
    washout: int = 4,
    learn: int = 200,
    order_seed: int | None = None,
) -> tuple[RunConfig, Experiment]:
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


def earlier_runs(con: duckdb.DuckDBPyConnection, config: RunConfig, plan: Experiment) -> list[str]:
    """The runs that have measured a cell of this very frontier before, oldest first: same settings, cells and block
    length.
    """
    wanted, settings = msgspec.to_builtins(plan), _settings(config.model_dump(mode="json"))
    found = []
    for run in queries.experiment_runs(con, frontier=True):
        known = queries.experiment(con, run) or {}
        same = all(
            known[name] == wanted[name] for name in ("arms", "design", "length", "unit", "washout", "learn")
        )
        measured = same and queries.finished_blocks(con, run) > 0
        if measured and _settings(queries.describe(con, run)["config"]) == settings:
            found.append(run)
    return found[::-1]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in config.items() if name not in ("database", "threads", "spin", "seed")
    }


def missing(con: duckdb.DuckDBPyConnection, runs: Iterable[str], plan: Experiment) -> Experiment | None:
    """The plan without the repeats that these runs hold, in an order of its own; None where nothing is missing."""
    runs = list(runs)
    kept = sum(row["kept"] for run in runs for row in queries.rounds(con, run))
    if kept >= plan.rounds:
        return None
    return msgspec.structs.replace(plan, rounds=plan.rounds - kept, seed=plan.seed + 1000 * len(runs))


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


def sentences(
    found: Sequence[Mapping[str, Any]], slo: tuple[str, float] | None = None, beyond: int = 0
) -> list[str]:
    """Which arm is on the frontier where, and what is known of the error of that; the best arm within an objective,
    load by load; and that `beyond` cells count which no whole repeat holds.
    """
    loads = sorted({point["load"] for point in found})
    said = []
    for arm in dict.fromkeys(point["arm"] for point in found):
        mine = [point for point in found if point["arm"] == arm]
        on = [str(point["load"]) for point in mine if not point["dominated"]]
        where = f" (with {_listed(on)})" if 0 < len(on) < len(mine) else ""
        said.append(f"{arm} is on the frontier at {len(on)} of {counted(len(mine), 'load')}{where}.")
    if found:
        said.append(_error([point["repeats"] for point in found]))
    if slo:
        said.append(_within(found, loads, slo))
    if beyond:
        said.append(f"{counted(beyond, 'cell')} of repeats that were begun again count, too.")
    return said


def _listed(loads: Sequence[Any]) -> str:
    """As "1 request" or "1, 4 requests"."""
    return f"{', '.join(map(str, loads))} request{'' if list(map(str, loads)) == ['1'] else 's'}"


def _error(repeats: Sequence[int]) -> str:
    """What is known of the error of points with so many repeats each."""
    said = f"Who is on the frontier is told{AS_MEASURED.removeprefix(',')}"
    if max(repeats) < LEAST_REPEATS:
        most = "a single repeat" if max(repeats) == 1 else counted(max(repeats), "repeat")
        return f"{said}; with {most} a point has no error bar: that takes {LEAST_REPEATS}."
    if min(repeats) < LEAST_REPEATS:
        return f"{said}; points with fewer than {LEAST_REPEATS} repeats have no error bar."
    return f"{said}: the bars tell how far it can be trusted."


def _within(found: Sequence[Mapping[str, Any]], loads: Sequence[int], slo: tuple[str, float]) -> str:
    measure, limit = slo
    best: list[tuple[str, int, int]] = []  # which arm, from this load, to that
    unmeasured: dict[str, list[int]] = {}
    for load in loads:
        here = [point for point in found if point["load"] == load]
        known = [point for point in here if point[measure] is not None]
        within = [point for point in known if point[measure] <= limit]
        arm = max(within, key=lambda point: point["tokens_per_s"])["arm"] if within else "no arm"
        arm = arm if known else "not measured"
        if best and best[-1][0] == arm:
            best[-1] = (arm, best[-1][1], load)
        else:
            best.append((arm, load, load))
        for point in here:
            if known and point not in known:
                unmeasured.setdefault(point["arm"], []).append(load)
    parts = [
        f"{arm} {f'at {requests(first)}' if first == last else f'from {first} to {requests(last)}'}"
        for arm, first, last in best
    ]
    said = f"Fastest within {measure} ≤ {limit:g} ms{AS_MEASURED}: {', '.join(parts)}."
    if unmeasured:
        arms = "; ".join(f"{arm} with {_listed(at)}" for arm, at in unmeasured.items())
        said += f" Not measured for {arms}{UNMEASURED.get(measure, '')}."
    return said


COLUMNS = ("arm", "concurrency", "tok_s_user", "tok_s")  # of a published frontier
NEEDS = "it needs the columns arm, concurrency, tok_s_user and tok_s, with numbers"


def read_frontier(text: str) -> list[dict[str, Any]]:
    """Points of a published frontier from a CSV with arm, concurrency, tok_s_user and tok_s; # begins a comment.

    Raises FrontierFileError, which names the line that is wrong.
    """
    numbered = [
        (number, line)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
        if line.strip(" \t,;") and not line.startswith("#")
    ]
    if not numbered:
        raise FrontierFileError(f"The CSV is empty: {NEEDS}.")
    rows = csv.reader((line for _, line in numbered), skipinitialspace=True)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    try:
        names = [name.strip() for name in next(rows)]
        if lacking := [name for name in COLUMNS if name not in names]:
            raise FrontierFileError(f"The CSV holds no frontier, for it lacks {', '.join(lacking)}: {NEEDS}.")
        for cells in rows:
            row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
            try:
                point = _published_point(row)
                if (point["arm"], point["load"]) in found:
                    raise ValueError(f"{point['arm']} with concurrency {point['load']} stands there twice")
            except ValueError as error:
                raise FrontierFileError(
                    f"The CSV is wrong in line {numbered[rows.line_num - 1][0]}: {error}."
                ) from None
            found[point["arm"], point["load"]] = point
    except csv.Error as error:
        raise FrontierFileError(f"The CSV cannot be read ({error}): {NEEDS}.") from None
    if not any(arm == "none" for arm, _ in found):
        raise FrontierFileError("The CSV has no points of the arm none, by which it could be scaled.")
    return list(found.values())


def _published_point(row: Mapping[str, str]) -> dict[str, Any]:
    """A row as a point. Raises ValueError, which says what is wrong with it."""
    if not row.get("arm"):
        raise ValueError("arm is empty; it must name a policy, or none")
    load = row.get("concurrency", "")
    if not (load.isascii() and load.isdigit() and int(load) >= 1):
        raise ValueError(f"concurrency is {load!r}; it must be a whole number from 1")
    measures = {}
    for name in ("tok_s_user", "tok_s"):
        try:
            measures[name] = float(row.get(name, ""))
        except ValueError:
            measures[name] = np.nan
        if not 0 < measures[name] < np.inf:
            raise ValueError(f"{name} is {row.get(name, '')!r}; it must be a number above 0")
    return {
        "arm": row["arm"],
        "load": int(load),
        "interactivity": measures["tok_s_user"],
        "tokens_per_s": measures["tok_s"],
    }


def shared_loads(published: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> list[int]:
    """The loads at which both have measured no speculation: at one of them the first can be laid on the second."""
    theirs, ours = ({p["load"] for p in found if p["arm"] == "none"} for found in (published, own))
    return sorted(theirs & ours)


def scaled(
    published: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]], load: int | None = None
) -> list[dict[str, Any]]:
    """A published frontier in our units: its no-speculation point is laid on ours, for comparing shapes. Empty where
    there is none.

    load: at which, of `shared_loads`; else the lowest of them.
    """
    shared = shared_loads(published, own)
    if not shared:
        return []
    at = load if load in shared else shared[0]
    theirs, ours = (
        next(p for p in found if (p["arm"], p["load"]) == ("none", at)) for found in (published, own)
    )
    factor = {name: ours[name] / theirs[name] for name in ("interactivity", "tokens_per_s")}
    return [{**point, **{name: point[name] * factor[name] for name in factor}} for point in published]
