"""The frontier of the real engine: adaptive depth with exploration against every fixed length, at 1 to 64 requests."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.product import DEPTH
from avlab.bench.rounds import half_width
from avlab.ui.formats import number

LOADS = (1, 2, 4, 8, 16, 32, 64)
LIMIT = 1200.0  # seconds, of all runs together
GAIN = 1.03
BARS = (
    Bar("frontier-off", f"loads at which {DEPTH} is off the frontier", "loads", 0, "<="),
    Bar("frontier-least", f"{DEPTH} over the best fixed length, least of the loads", "×", 0.98),
    Bar("frontier-gains", f"loads at which it is {GAIN} × the best fixed length or more", "loads", 2),
    Bar("frontier-half-width", "widest ± of its throughput in a cell", "%", 1.5, "<="),
)


def measure(context: Context) -> Result:
    """Cells in random order, repeat after repeat, until all repeats are there or the time is over."""
    from avlab.bench.product import product
    from avlab.experiments.frontier import analyse_frontier, earlier_runs, make_frontier, missing

    block, most, repeats, learn = context.pick(("0.5s", 2, 1, 10), ("3s", len(LOADS), 3, 200))
    wanted = LOADS[2::2][:most] if context.quick else LOADS
    with product(context, "frontier") as served:
        loads = [load for load in wanted if load <= served.config.slots] or [served.config.slots]
        lengths = (1, served.config.K) if context.quick else range(1, served.config.K + 1)
        arms = [DEPTH, "none", *(f"fixed:{k}" for k in dict.fromkeys(lengths))]
        config, plan = make_frontier(
            served.config.changed(policy="none"), arms, loads, repeats, block, learn=learn
        )
        rest = served.query(missing, served.query(earlier_runs, config, plan), plan)
        while rest is not None and served.served < LIMIT:
            served.serve(config, rest, LIMIT - served.served, f"{len(plan.arms)} cells, {repeats} times")
            rest = served.query(missing, served.query(earlier_runs, config, plan), plan)
        answer = served.query(analyse_frontier, served.query(earlier_runs, config, plan)[-1])
    values, table = against_fixed(answer["points"])
    notes = answer["sentences"][:]
    if rest is not None:
        notes.append(f"{answer['repeats']} of {repeats} repeats fitted into {LIMIT:.0f} s.")
    return Result(values, [table, *cells(answer["points"])], notes)


def against_fixed(points: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], Table]:
    """The bars' values, and a row a load: the best fixed length there, and what DEPTH makes of it."""
    rows, off, ratios, widths = [], 0, [], []
    for mine in (point for point in points if point["arm"] == DEPTH):
        rivals = [point for point in points if point["load"] == mine["load"] and point["arm"] != DEPTH]
        best = max(rivals, key=lambda point: point["tokens_per_s"])
        ratios.append(mine["tokens_per_s"] / best["tokens_per_s"])
        widths.append(half_width(mine["tokens_per_s_low"], mine["tokens_per_s_high"]))
        off += mine["dominated"]
        rates = (number(point["tokens_per_s"], 1) for point in (mine, best))
        on = "no" if mine["dominated"] else "yes"
        rows.append(
            [mine["load"], *rates, best["arm"], number(ratios[-1]), _known(widths[-1]), mine["repeats"], on]
        )
    columns = [
        "requests",
        f"{DEPTH}, tokens/s",
        "best fixed, tokens/s",
        "which",
        "ratio",
        "± %",
        "repeats",
        "on it",
    ]
    values = {
        "frontier-off": float(off),
        "frontier-least": min(ratios),
        "frontier-gains": float(sum(value >= GAIN for value in ratios)),
        "frontier-half-width": max(widths),
    }
    return values, Table("Against the best fixed length, 0 (none) included", columns, rows)


def cells(points: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Throughput and interactivity of every cell, an arm a row."""
    loads = sorted({point["load"] for point in points})
    titles = {"tokens_per_s": "Throughput, tokens/s", "interactivity": "Interactivity, tokens/s for one user"}
    tables = []
    for name, title in titles.items():
        table = Table(f"{title}, by requests under way", ["arm", *map(str, loads)])
        for arm in dict.fromkeys(point["arm"] for point in points):
            found = {point["load"]: point[name] for point in points if point["arm"] == arm}
            table.rows.append([arm, *(number(found.get(load), 1) for load in loads)])
        tables.append(table)
    return tables


def _known(value: float) -> str:
    return number(value if np.isfinite(value) else None, 1)


MEASURES = (Measure("frontier", "the frontier", BARS, measure, 95, alone=True),)
