"""The frontier of the real engine: adaptive depth with exploration against every fixed length, at 1 to 64 requests."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.product import DEPTH
from avlab.bench.repeats import MEASURED, Gain, Repeats, over_best_fixed, whole_repeats
from avlab.bench.rounds import half_width
from avlab.experiments.frontier import dominates
from avlab.ui.formats import number


class Share(NamedTuple):
    """What a load gets: the length of a block, and seconds of all its runs.

    A block of one request has one prompt, so many are needed; with 64 it takes seconds until all are computed.
    """

    block: str
    seconds: float


SHARES = {
    64: Share("2.5s", 420.0),
    32: Share("2s", 250.0),
    16: Share("2s", 190.0),
    8: Share("1.5s", 160.0),
    4: Share("1.5s", 150.0),
    2: Share("1.5s", 160.0),
    1: Share("1.5s", 170.0),
}
LOADS = tuple(sorted(SHARES))
LIMIT = sum(share.seconds for share in SHARES.values())  # seconds; after it no load is begun
MOST, LEAST = 40, 3  # repeats of a load: LEAST are served even where its seconds are over
SHORT = 10.0  # seconds left of a share that are not worth another start
PAIRED = 2  # repeats below which a load is not measured: there is no other one to choose the rival, and no interval
GAIN = 1.03
BARS = (
    Bar(
        "frontier-off",
        f"loads at which a fixed length, 0 included, at any load beats {DEPTH} in throughput and interactivity",
        "loads",
        0,
        "<=",
    ),
    Bar("frontier-least", f"{DEPTH} over the best fixed length, least of the loads", "×", 0.98),
    Bar("frontier-gains", f"loads at which it is {GAIN} × the best fixed length or more", "loads", 2),
    Bar(
        "frontier-ratio-half-width",
        "± of its ratio to the best fixed length, widest of the loads",
        "%",
        1.5,
        "<=",
    ),
)


def measure(context: Context) -> Result:
    """Load after load, repeats of all arms in random order, as many as fit into the load's share of the time."""
    from avlab.bench.product import product

    most, learn = context.pick((1, 10), (MOST, 200))
    with product(context, "frontier") as served:
        config = served.config.changed(policy="none")
        lengths = (1, config.K) if context.quick else range(1, config.K + 1)
        arms = [DEPTH, "adaptive", "none", *(f"fixed:{k}" for k in dict.fromkeys(lengths))]
        wanted = (4,) if context.quick else SHARES
        loads = [load for load in wanted if load <= config.slots] or [config.slots]
        until = dict(zip(SHARES, accumulate(share.seconds for share in SHARES.values()), strict=True))
        blocks = []
        for load in loads:
            block = "0.5s" if context.quick else SHARES[load].block if load in SHARES else "2s"
            blocks += served_blocks(served, config, arms, load, block, most, learn, until.get(load, LIMIT))
    return Result(*judged(whole_repeats(blocks, arms)))


def served_blocks(
    served: Any, config: Any, arms: Sequence[str], load: int, block: str, most: int, learn: int, until: float
) -> list[dict[str, Any]]:
    """Blocks of the repeats of a load that are kept, with their run: those of earlier runs, and what is missing, which
    is served until the measure has lasted `until` seconds.
    """
    from avlab.experiments.frontier import earlier_runs, make_frontier, missing
    from store import queries

    config, plan = make_frontier(config, arms, [load], most, block, learn=learn)
    while True:
        runs = served.query(earlier_runs, config, plan)
        rest = served.query(missing, runs, plan)
        kept = most - (rest.rounds if rest else 0)
        over = served.served >= until - SHORT and kept >= LEAST
        if rest is None or served.served >= LIMIT - SHORT or over:
            return [row | {"run": run} for run in runs for row in served.query(queries.block_rates, run)]
        doing = f"{len(arms)} arms at {load} requests"
        served.serve(config, rest, max(until - served.served, 0.0), doing, least=LEAST - kept)


def judged(found: Mapping[int, Repeats]) -> tuple[dict[str, float | None], list[Table], list[str]]:
    """The bars' values, tables and notes of the repeats by load; values are None unless every load is measured."""
    gains = {load: over_best_fixed(repeats, DEPTH) for load, repeats in found.items()}
    same, across = beaten(found)
    tables = [against_fixed(found, DEPTH, across), against_fixed(found, "adaptive"), *cells(found)]
    notes = [
        "Arms are compared within a repeat, in which they have the same prompts and seeds and are served one after the "
        "other; a repeat counts only if it is whole. Ratios are geometric means with Student's 95 % interval over "
        "repeats. The best fixed length of a repeat is chosen by the other repeats; in the plain ratio all repeats "
        "choose and judge, which favours the fixed length. Loads are served one after the other: what the machine "
        "does over minutes is in comparisons across loads, not in the ratios."
    ]
    few = [load for load in LOADS if load not in found or found[load].count < PAIRED]
    if few:
        notes.append(
            f"Not measured at {', '.join(map(str, few))} requests: fewer than {PAIRED} whole repeats. "
            "The bars need every load."
        )
        return dict.fromkeys(bar.name for bar in BARS), tables, notes
    notes += sentences(gains, same, across)
    values: dict[str, float | None] = {
        "frontier-off": float(len(across)),
        "frontier-least": min(gain.ratio for gain in gains.values()),
        "frontier-gains": float(sum(gain.ratio >= GAIN for gain in gains.values())),
        "frontier-ratio-half-width": max(half_width(gain.low, gain.high) for gain in gains.values()),
    }
    return values, tables, notes


def beaten(found: Mapping[int, Repeats]) -> tuple[list[int], list[int]]:
    """The loads at which a fixed length beats DEPTH in both: at the same load; at any load, its own included."""
    fixed = [(load, repeats.point(arm)) for load, repeats in found.items() for arm in repeats.fixed]
    same, across = [], []
    for load, repeats in found.items():
        mine = repeats.point(DEPTH)
        better = [at for at, point in fixed if dominates(point, mine)]
        same += [load] * (load in better)
        across += [load] * bool(better)
    return same, across


def sentences(gains: Mapping[int, Gain], same: Sequence[int], across: Sequence[int]) -> list[str]:
    """What stands behind the values: which loads, and how sure."""
    least = min(gains, key=lambda load: gains[load].ratio)
    above = [load for load, gain in gains.items() if gain.ratio >= GAIN]
    sure = [load for load, gain in gains.items() if gain.low >= GAIN]
    return [
        f"The least ratio is {_spread(gains[least])}, at {least} requests.",
        f"{GAIN} × or more: {_loads(above)}; with the whole interval: {_loads(sure)}.",
        f"A fixed length at the same load beats {DEPTH} in both: {_loads(same)}; one at any load, which the bar "
        f"counts: {_loads(across)}. Other adaptive arms do not count.",
    ]


def against_fixed(found: Mapping[int, Repeats], arm: str, off: Sequence[int] | None = None) -> Table:
    """A row a load: what an arm makes of the best fixed length there; off: loads at which it is off the frontier."""
    columns = [
        "requests",
        "tokens/s",
        "best fixed, tokens/s",
        "which",
        "ratio",
        "± %",
        "plain ratio",
        "repeats",
    ]
    title = f"{arm} against the best fixed length, 0 (none) included"
    table = Table(title, columns + ["on the frontier"] * (off is not None))
    for load, repeats in found.items():
        gain = over_best_fixed(repeats, arm)
        rates = [number(repeats.point(each)["tokens_per_s"], 1) for each in (arm, gain.rival)]
        width, plain = number(half_width(gain.low, gain.high), 1), number(gain.over_rival)
        row = [load, *rates, gain.rival, _spread(gain), width, plain, repeats.count]
        table.rows.append(row if off is None else [*row, "no" if load in off else "yes"])
    return table


def cells(found: Mapping[int, Repeats]) -> list[Table]:
    """Throughput and interactivity of every cell, an arm a row."""
    titles = dict(
        zip(MEASURED, ("Throughput, tokens/s", "Interactivity, tokens/s for one user"), strict=True)
    )
    tables = []
    for name, title in titles.items():
        table = Table(f"{title}, by requests under way", ["arm", *map(str, found)])
        for arm in dict.fromkeys(arm for repeats in found.values() for arm in repeats.arms):
            table.rows.append([arm, *(number(repeats.point(arm)[name], 1) for repeats in found.values())])
        tables.append(table)
    return tables


def _spread(gain: Gain) -> str:
    return f"{gain.ratio:.3f} [{number(gain.low)}, {number(gain.high)}]"


def _loads(loads: Sequence[int]) -> str:
    return f"at {', '.join(map(str, loads))} requests" if loads else "at no load"


MEASURES = (Measure("frontier", "the frontier", BARS, measure, 95, alone=True),)
