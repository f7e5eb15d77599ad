"""Traffic that drifts between verse and tool calls while the load steps: one policy for all of it."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.product import DEPTH
from avlab.bench.recovery import SHARE, WINDOW, Recovery, phase_rates, recovery
from avlab.config import RunConfig
from avlab.experiments.statistics import ALPHA, student_quantile
from avlab.formats import number

KINDS = ("verse", "tool_calls", "verse", "tool_calls")
LOADS = (4, 64, 64, 4)  # with KINDS: every kind under every load, and each change of either on its own
LONGEST = 128  # tokens a request: what runs is served to its end, so a load falls only as fast as answers end
BINS = 6  # of a phase, in which arms are compared: 10 s each of a phase of 60 s
BARS = (
    Bar("drift-gain", f"drift and load steps: {DEPTH} over the best single fixed length", "×", 1.05),
    Bar(
        "drift-recovery",
        f"refits until {WINDOW}-step throughput is back at {SHARE:.0%} after a step, slowest",
        "refits",
        3,
        "<=",
    ),
)


class Ratio(NamedTuple):
    """Tokens of an arm over those of another in the whole schedule, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Served(NamedTuple):
    """The steps of a run under one arm, [T] each, its refits by step number, and when serving began (s)."""

    step: np.ndarray
    time: np.ndarray
    tokens: np.ndarray
    refits: np.ndarray
    began: float


def schedule(config: RunConfig, seconds: float, loads: tuple[int, ...] = LOADS) -> RunConfig:
    """A run of all phases, each for so many seconds."""
    return config.changed(
        workload=f"drift:{','.join(KINDS)}@{seconds:g}s",
        arrival=f"closed:{','.join(map(str, loads))}@{seconds:g}s",
        duration=seconds * len(KINDS),
        max_new_tokens=min(config.max_new_tokens or LONGEST, LONGEST),
        drafts="none",
    )


def measure(context: Context) -> Result:
    """Every arm serves the whole schedule, one after the other in random order, each in a run of its own."""
    from avlab.bench.product import product

    (seconds,) = context.pick((4,), (60,))
    with product(context, "drift") as served:
        lengths = (1, served.config.K) if context.quick else range(1, served.config.K + 1)
        arms = [DEPTH, "none", *(f"fixed:{k}" for k in dict.fromkeys(lengths))]
        loads = tuple(min(load, served.config.max_num_seqs) for load in LOADS)
        plan = schedule(served.config, seconds, loads)
        order = np.random.default_rng(0).permutation(len(arms))
        for place in order:
            if arms[place] not in runs_of(served, plan):
                served.serve(
                    plan.changed(policy=arms[place]),
                    None,
                    None,
                    f"{arms[place]}, of {len(arms)} arms: seconds",
                )
        found = {arm: served_by(served, run) for arm, run in runs_of(served, plan).items()}
    return Result(*judged(found, arms, seconds, loads))


def runs_of(served: Any, plan: RunConfig) -> dict[str, str]:
    """The runs that are over, by arm."""
    from avlab.store import queries

    known = {run["run_id"]: run for run in served.query(queries.run_list) if run["arrival"] == plan.arrival}
    return {known[run]["policy"]: run for run in served.over() if run in known}


def served_by(served: Any, run: str) -> Served:
    """What a run did, from its database."""
    from avlab.store import queries

    steps = served.query(queries.steps_since, run, max_points=1 << 30)
    step, time, tokens = (steps[name].to_numpy() for name in ("step", "time", "tokens"))
    refits = served.query(queries.refits_since, run)
    # a refit is a row for each position, and the first is the cold start
    numbers = np.unique(refits["step"].to_numpy()[refits["refit"].to_numpy() > 0])
    return Served(step, time, tokens, numbers, served.query(queries.block_list, run)[0]["time"])


def judged(
    found: dict[str, Served], arms: Sequence[str], seconds: float, loads: tuple[int, ...] = LOADS
) -> tuple[dict[str, float | None], list[Table], list[str]]:
    """The bars' values, tables and notes of the runs found; there is no gain unless all arms have one."""
    phases = [f"{kind}, {load}" for kind, load in zip(KINDS, loads, strict=True)]
    gain, against, notes = gains(found, arms, seconds, phases)
    back, recovered, more = recoveries(found.get(DEPTH), seconds, phases)
    return {"drift-gain": gain, "drift-recovery": recovered}, [against, *back], notes + more


def gains(
    found: dict[str, Served], arms: Sequence[str], seconds: float, phases: list[str]
) -> tuple[float | None, Table, list[str]]:
    """DEPTH over the best single fixed length, a row an arm, and notes."""
    rates = {arm: phase_rates(run.time, run.tokens, _bounds(run, seconds)) for arm, run in found.items()}
    binned = {arm: in_bins(run, seconds) for arm, run in found.items()}
    ratios = {arm: ratio_of(binned[DEPTH], binned[arm]) for arm in found} if DEPTH in found else {}
    table = Table(
        f"Tokens/s by phase (traffic, requests under way) of {seconds:g} s",
        ["arm", *phases, "in all", f"{DEPTH} over it"],
    )
    for arm in sorted(found, key=lambda arm: -rates[arm].mean()):
        over = str(ratios[arm]) if arm != DEPTH and arm in ratios else ""
        table.rows.append([arm, *(number(rate, 1) for rate in (*rates[arm], rates[arm].mean())), over])
    absent = [arm for arm in arms if arm not in found]
    if absent:
        return None, table, [f"No run of {', '.join(absent)} came to its end: the gain is not measured."]
    best = max((arm for arm in arms if arm != DEPTH), key=lambda arm: rates[arm].mean())
    return (
        ratios[best].value,
        table,
        [
            f"The best single fixed length is {best}, chosen by these same runs, which favours it; {DEPTH} over it is "
            f"{ratios[best]}.",
            f"Every arm has one run, and these 95 % intervals come from comparing two runs at the same places of the "
            f"schedule, {seconds / BINS:.3g} s each: what the machine does from one run to the next is not in them.",
        ],
    )


def in_bins(run: Served, seconds: float) -> np.ndarray:
    """Tokens/s of a run by phase and equal parts of it, [P, BINS]."""
    bounds = run.began + seconds / BINS * np.arange(len(KINDS) * BINS + 1)
    return phase_rates(run.time, run.tokens, bounds).reshape(len(KINDS), BINS)


def ratio_of(mine: np.ndarray, other: np.ndarray) -> Ratio:
    """The ratio of totals of two runs over the same bins [P, BINS], phases being strata.

    The combined ratio estimator (Cochran, Sampling Techniques, 3rd ed., sections 6.11 and 6.12): its error is that of
    the residuals mine - ratio × other about their mean in a phase; Student's quantile with P (BINS - 1) degrees of
    freedom; the interval is taken on the logarithm.
    """
    phases, bins = mine.shape
    value = float(mine.sum() / other.sum())
    variance = bins * (mine - value * other).var(axis=1, ddof=1).sum()
    error = student_quantile(phases * (bins - 1), 1 - ALPHA / 2) * np.sqrt(variance) / mine.sum()
    return Ratio(value, float(value * np.exp(-error)), float(value * np.exp(error)))


def recoveries(
    mine: Served | None, seconds: float, phases: list[str]
) -> tuple[list[Table], float | None, list[str]]:
    """How DEPTH took up each step: a row a step, the refits of the slowest (None where not measured), and notes."""
    if mine is None:
        return (
            [],
            None,
            [f"No run of {DEPTH} came to its end: how fast throughput comes back is not measured."],
        )
    steps = [
        recovery(mine.time, mine.tokens, mine.step, mine.refits, begin, end)
        for begin, end in itertools.pairwise(_bounds(mine, seconds)[1:])
    ]
    table = Table(
        f"After a step, under {DEPTH}",
        ["to", "settled tokens/s", "steps until back", "refits until back", "least on the way"],
        [
            [phase, *(["–"] * 4 if np.isnan(each.settled) else _row(each))]
            for phase, each in zip(phases[1:], steps, strict=True)
        ],
    )
    slowest, notes = max(each.refits for each in steps), []
    if any(np.isnan(each.settled) for each in steps):
        note = f"A phase of {seconds:g} s has too few steps to judge how fast throughput comes back."
        return [table], None, [note]
    if slowest == np.inf:
        slowest = float(len(mine.refits))
        notes.append(
            "After one of the steps throughput did not come back within its phase: the refits are of the run."
        )
    return [table], slowest, notes


def _bounds(run: Served, seconds: float) -> np.ndarray:
    return run.began + seconds * np.arange(len(KINDS) + 1)


def _row(found: Recovery) -> list[str]:
    return [number(found.settled, 1), _count(found.steps), _count(found.refits), f"{found.least:.0%}"]


def _count(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "never"


MEASURES = (Measure("drift", "drifting traffic under a load that steps", BARS, measure, 96, alone=True),)
