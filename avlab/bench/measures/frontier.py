"""The frontier of the real engine: adaptive depth with exploration against every fixed length, at 1 to 64 requests.

Load after load is an A/B in switchback blocks: the same requests stay under way, so that time goes into steps and not
into prompts of fresh states. First all arms are served; then DEPTH and the fixed lengths that may be the best one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.product import DEPTH, learning_steps
from avlab.bench.repeats import Gain, Rates, Repeats, near_best, over_best_fixed, whole_repeats
from avlab.bench.rounds import half_width
from avlab.experiments import control_variate
from avlab.experiments.frontier_analysis import dominates
from avlab.formats import number
from avlab.store.experiment_rows import BlockRate
from avlab.wire.commands import Experiment


class Share(NamedTuple):
    """What a load gets: the length of a block, and seconds of all its runs."""

    block: str
    seconds: float


SHARES = {
    64: Share("1.5s", 560.0),
    32: Share("1.2s", 330.0),
    16: Share("1s", 380.0),
    8: Share("1s", 300.0),
    4: Share("1s", 340.0),
    2: Share("1s", 400.0),
    1: Share("1s", 400.0),
}
LOADS = tuple(sorted(SHARES))
LIMIT = sum(share.seconds for share in SHARES.values())  # seconds
FIRST, LEAST = 8, 3  # rounds of all arms; LEAST are served even where all seconds are over
MOST = 400  # rounds in all
SHORT = 20.0  # seconds left of a share that are not worth another start
PAIRED = (
    2  # rounds below which a load is not measured: there is no other one to choose the rival, and no interval
)
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


class Load(NamedTuple):
    """Rounds at one load. first: those of all arms; close: all rounds of DEPTH and the fixed lengths near the best."""

    first: Repeats
    close: Repeats

    def point(self, arm: str) -> Rates:
        """As `Repeats.point`, of as many rounds as have the arm."""
        return self.holding(arm).point(arm)

    def holding(self, arm: str) -> Repeats:
        """The more rounds of the two that have the arm."""
        return self.close if arm in self.close.arms else self.first


def measure(context: Context) -> Result:
    """Load after load, as many rounds as fit into the load's share of the time."""
    from avlab.bench.product import product

    first, most = context.pick((1, 1), (FIRST, MOST))
    with product(context, "frontier") as served:
        lengths = (1, served.config.K) if context.quick else range(1, served.config.K + 1)
        arms = [DEPTH, "adaptive", "none", *(f"fixed:{k}" for k in dict.fromkeys(lengths))]
        wanted = (4,) if context.quick else SHARES
        loads = [load for load in wanted if load <= served.config.max_num_seqs] or [
            served.config.max_num_seqs
        ]
        until = dict(zip(SHARES, accumulate(share.seconds for share in SHARES.values()), strict=True))
        found: dict[int, Load] = {}
        for load in loads:
            block = "0.5s" if context.quick else SHARES[load].block if load in SHARES else "1s"
            learn = context.pick(10, learning_steps(load))
            ends, doing = until.get(load, LIMIT), f"{{}} arms at {load} requests"
            blocks = rounds_of(served, arms, load, block, learn, first, LEAST, ends, doing)
            found |= sorted_out(blocks, arms)
            if load in found and most > first:
                close = found[load].close.arms
                blocks += rounds_of(served, close, load, block, learn, most - first, 0, ends, doing)
                found |= sorted_out(blocks, arms)
    return Result(*judged(dict(sorted(found.items()))))


def sorted_out(blocks: Iterable[BlockRate], arms: Sequence[str]) -> dict[int, Load]:
    """By load, what these blocks of one load tell, adjusted for prompts; empty without a whole round of all arms."""
    blocks = control_variate.adjusted(blocks)
    found = {}
    for load, first in whole_repeats(blocks, arms).items():
        close = [DEPTH, *near_best(first)]
        found[load] = Load(first, whole_repeats(blocks, close)[load])
    return found


def rounds_of(
    served: Any,
    arms: Sequence[str],
    load: int,
    block: str,
    learn: int,
    most: int,
    least: int,
    until: float,
    doing: str,
) -> list[BlockRate]:
    """Blocks of the rounds of these arms at a load that are kept: those of earlier runs, and what is
    missing, which is served until the measure has lasted `until` seconds. A block's arm is a cell's label.
    """
    from avlab.experiments.plan import make_plan
    from avlab.store import queries

    plain = served.config.changed(policy="none")
    config, plan = make_plan(plain, arms, None, load, most, block=block, learn=learn)
    while True:
        runs = [run for run in served.experiments() if same_plan(served.query(queries.experiment, run), plan)]
        kept = sum(map(served.kept, runs))
        if kept >= most or (served.served >= until - SHORT and kept >= least):
            return [
                replace(row, arm=f"{row.arm}@{load}")
                for run in runs
                for row in served.query(queries.block_rates, run)
            ]
        rest = msgspec.structs.replace(plan, rounds=most - kept)
        seconds = max(until - served.served, 0.0)
        served.serve(config, rest, seconds, doing.format(len(arms)), least=least - kept)


def same_plan(known: Experiment, plan: Experiment) -> bool:
    """Whether a run's plan has these arms, this load and these blocks."""
    asked = (plan.arms, plan.concurrency, plan.length, plan.unit)
    return (known.arms, known.concurrency, known.length, known.unit) == asked


def judged(found: Mapping[int, Load]) -> tuple[dict[str, float | None], list[Table], list[str]]:
    """The bars' values, tables and notes of the rounds by load; values are None unless every load is measured."""
    gains = {load: over_best_fixed(rounds.close, DEPTH) for load, rounds in found.items()}
    own = {load: over_best_fixed(rounds.first, "adaptive") for load, rounds in found.items()}
    same, across = beaten(found)
    tables = [
        against_fixed(found, DEPTH, gains, across),
        against_fixed(found, "adaptive", own),
        *cells(found),
    ]
    notes = [
        "Each load is an A/B in switchback blocks: the same requests stay under way, and arms are compared within a "
        "round, with prompt tokens as a control variate (interactivity is as served). The first rounds, "
        f"{FIRST} or as many as there was time for, have all arms; later ones leave out vLLM's rule and the fixed "
        "lengths that those showed to be slower than the best of them (Student's 95 % interval of the ratio to it is "
        "below 1; now and then that drops a length that is as good). Ratios are geometric means with Student's 95 % "
        "interval over rounds. The best of the fixed lengths that are left is chosen for a round by the other rounds; "
        "in the plain ratio all rounds choose and judge, which favours the fixed length. Loads are served one after "
        "the other: what the machine does over minutes is in comparisons across loads, not in the ratios."
    ]
    few = [load for load in LOADS if load not in found or found[load].close.count < PAIRED]
    if few:
        notes.append(
            f"Not measured at {', '.join(map(str, few))} requests: fewer than {PAIRED} whole rounds. "
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


def beaten(found: Mapping[int, Load]) -> tuple[list[int], list[int]]:
    """The loads at which a fixed length beats DEPTH in both: at the same load; at any load, its own included."""
    same, across = [], []
    for load, rounds in found.items():
        own = any(
            dominates(rounds.point(arm), rounds.holding(arm).point(DEPTH)) for arm in rounds.first.fixed
        )
        mine = rounds.point(DEPTH)
        others = (other for at, other in found.items() if at != load)
        beyond = any(dominates(other.point(arm), mine) for other in others for arm in other.first.fixed)
        same += [load] * own
        across += [load] * (own or beyond)
    return same, across


def sentences(gains: Mapping[int, Gain], same: Sequence[int], across: Sequence[int]) -> list[str]:
    """What stands behind the values: which loads, and how sure."""
    least = min(gains, key=lambda load: gains[load].ratio)
    above = [load for load, gain in gains.items() if gain.ratio >= GAIN]
    sure = [load for load, gain in gains.items() if gain.low >= GAIN]
    slower = [load for load, gain in gains.items() if gain.high < 1]
    return [
        f"The least ratio is {_spread(gains[least])}, at {least} requests.",
        f"{GAIN} × or more: {_loads(above)}; with the whole interval: {_loads(sure)}.",
        f"Slower than the best fixed length with the whole interval: {_loads(slower)}.",
        f"A fixed length at the same load beats {DEPTH} in both: {_loads(same)}; one at any load, which the bar "
        f"counts: {_loads(across)}. Other adaptive arms do not count.",
    ]


def against_fixed(
    found: Mapping[int, Load], arm: str, gains: Mapping[int, Gain], off: Sequence[int] | None = None
) -> Table:
    """A row a load: what an arm makes of the best fixed length there; off: loads at which it is off the frontier."""
    columns = [
        "requests",
        "tokens/s",
        "best fixed, tokens/s",
        "which",
        "ratio",
        "± %",
        "plain ratio",
        "rounds",
    ]
    title = f"{arm} against the best fixed length, 0 (none) included"
    table = Table(title, columns + ["on the frontier"] * (off is not None))
    for load, gain in gains.items():
        rounds = found[load].holding(arm)
        rates = [number(rounds.point(each).tokens_per_s, 1) for each in (arm, gain.rival)]
        width, plain = number(half_width(gain.low, gain.high), 1), number(gain.over_rival)
        row = [load, *rates, gain.rival, _spread(gain), width, plain, rounds.count]
        table.rows.append(row if off is None else [*row, "no" if load in off else "yes"])
    return table


def cells(found: Mapping[int, Load]) -> list[Table]:
    """Throughput and interactivity of every cell, an arm a row."""
    titles: dict[str, Callable[[Rates], float]] = {
        "Throughput, tokens/s": lambda rates: rates.tokens_per_s,
        "Interactivity, tokens/s for one user": lambda rates: rates.interactivity,
    }
    tables = []
    for title, rate in titles.items():
        table = Table(f"{title}, by requests under way", ["arm", *map(str, found)])
        for arm in dict.fromkeys(arm for rounds in found.values() for arm in rounds.first.arms):
            table.rows.append([arm, *(number(rate(rounds.point(arm)), 1) for rounds in found.values())])
        tables.append(table)
    return tables


def _spread(gain: Gain) -> str:
    return f"{gain.ratio:.3f} [{number(gain.low)}, {number(gain.high)}]"


def _loads(loads: Sequence[int]) -> str:
    return f"at {', '.join(map(str, loads))} requests" if loads else "at no load"


MEASURES = (Measure("frontier", "the frontier", BARS, measure, 95, alone=True),)
