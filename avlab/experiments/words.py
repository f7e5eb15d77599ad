"""The verdict of an A/B in words, with its unit."""

from collections.abc import Mapping
from dataclasses import dataclass

from avlab.experiments.answers import (
    ABAnswer,
    AgainstFixed,
    ArmSeen,
    Objective,
    Standing,
    Within,
)
from avlab.experiments.statistics import ALPHA, least_rounds
from avlab.wire.messages import Experiment

LEDGER = {  # titles of what the ledger holds per 1,000 output tokens
    "prompt_ms": "prompts, ms",
    "draft_ms": "drafting, ms",
    "verify_ms": "verification, ms",
    "sample_ms": "sampling, ms",
    "decide_ms": "deciding, ms",
    "other_ms": "everything else, ms",
    "total_ms": "in all, ms",
    "admitted": "drafts admitted",
    "accepted": "drafts accepted",
    "rejected": "verified in vain",
    "trimmed": "drafted in vain",
    "saved_ms": "verifying all: ms more",
    "explored": "drafts explored",
    "explored_ms": "exploring: ms of these",
    "served_tokens_per_s": "as served, tokens/s",
}
RATIO = (
    "A ratio is taken within rounds: it is the value that bets on a higher and bets on a lower one have refuted alike, "
    "the centre of the watched interval. It is neither the quotient of the two tokens/s, which are of all rounds "
    "together, nor the mean of the rounds, which one wild round moves; the planned interval is centred on the mean of "
    "the rounds' log ratios."
)
ADJUSTED = (
    "Prompts are computed when requests happen to end, whichever arm is in force, so their time is evened out in "
    "tokens/s and ledger: every block is charged the traffic's mean for its output tokens instead of its own, and in a "
    "ratio the mean as known by its round. Times of users are as served."
)
ENDED_EARLY = {"cut short": "cut short", "failed": "cut short", "stopped": "stopped"}  # states of a run
AS_MEASURED = ", by the values measured and without regard to their error"
SLO_MEASURES = ("p50_tpot_ms", "p95_tpot_ms", "p50_ttft_ms")
UNMEASURED = {  # why an arm may lack a measure
    "p50_ttft_ms": " (no finished request had its first token within a counted block; longer blocks hold more)"
}


class SloError(ValueError):
    """A service-level objective that cannot be read. The message is one sentence."""


def parse_slo(text: str) -> Objective:
    """("p95_tpot_ms=80") as (measure, limit in ms). Raises SloError."""
    measure, _, limit = text.partition("=")
    try:
        value = float(limit)
    except ValueError:
        value = 0.0
    if measure.strip() not in SLO_MEASURES or not 0 < value < float("inf"):
        raise SloError(
            f"the objective {text!r} cannot be read; give one of {', '.join(SLO_MEASURES)} with =ms."
        )
    return measure.strip(), value


@dataclass(frozen=True, slots=True)
class _Measured:
    """An arm of which both are known: throughput, and a measure in ms."""

    arm: str
    tokens_per_s: float
    ms: float


def best_within(arms: Mapping[str, ArmSeen], slo: Objective) -> Within:
    """The fastest arm whose measure is within the limit."""
    measure, limit = slo
    measured = [
        _Measured(arm, seen.tokens_per_s, ms)
        for arm, seen in arms.items()
        if (ms := seen.measure(measure)) is not None and seen.tokens_per_s
    ]
    unmeasured = [arm for arm in arms if arm not in {each.arm for each in measured}]
    within = [each for each in measured if each.ms <= limit]
    best = max(within, key=lambda each: each.tokens_per_s, default=None)
    those, why = " of those measured" if unmeasured else "", UNMEASURED.get(measure, "")
    if not measured:
        text = f"{measure} ≤ {limit:g} ms cannot be judged: it is not measured for any arm{why}."
    elif best is None:
        text = f"No arm{those} keeps {measure} within {limit:g} ms at this load."
    else:
        text = (
            f"Within {measure} ≤ {limit:g} ms, {best.arm} is the fastest{those}{AS_MEASURED}: "
            f"{best.tokens_per_s:.1f} tokens/s at {best.ms:.1f} ms."
        )
    if measured and unmeasured:
        text += f" Not measured for {', '.join(unmeasured)}{why}."
    return Within(measure, limit, best.arm if best else None, unmeasured, text)


def percent(ratio: float) -> str:
    """A ratio's distance from 1, without sign, to one digit below 10 %."""
    value = abs(100 * (ratio - 1))
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def verdict(result: Standing, plan: Experiment) -> str:
    """One sentence about one arm: faster, slower, or not known yet, with the sequence in percent.

    Against the plan's baseline, unless the result names another.
    """
    arm, load = result.arm, requests(plan.concurrency)
    baseline = result.baseline or plan.baseline
    if not result.rounds:
        return f"{arm} against {baseline} at {load}: no round is complete yet."
    if result.moved:
        return (
            f"{arm} against {baseline} at {load}: the ratio changed while it was measured (earlier and later rounds "
            "exclude each other), so no one number describes it. Look at the rounds."
        )
    low, high = result.low, result.high  # None: not bounded yet
    if low is None and high is None:
        return (
            f"{arm} against {baseline} at {load}: too few rounds to say anything "
            f"({result.rounds}; {least_rounds()} are the least)."
        )
    if (low or 0) > 1 or (high is not None and high < 1):
        word, ends = ("faster", (low, high)) if (low or 0) > 1 else ("slower", (high, low))
        spread = ", ".join("…" if end is None else percent(end) for end in ends)
        return f"{arm} is {percent(result.ratio or 1.0)} % [{spread}] {word} than {baseline} at {load}."
    return (
        f"{arm} against {baseline} at {load}: no difference is declared after {rounds(result.rounds)}; it lies "
        f"between {_signed(low)} and {_signed(high)} %{_outlook(result)}."
    )


def verdicts(answer: ABAnswer) -> list[str]:
    """All that is to be said, most important first."""
    plan = answer.plan
    said = [verdict(result, plan) for result in answer.results]
    best = answer.best_fixed
    for beats in answer.adaptive:
        if beats.declared:
            said.append(
                f"{beats.arm} beats every fixed length compared: {', '.join(beats.fixed)}; each by at least "
                f"{percent(beats.least_low or 1.0)} % (declared after {rounds(beats.declared_at or 0)})."
            )
    if best and best.arm:
        said.append(
            f"The best fixed length compared is {best.arm}: {best.tokens_per_s:.1f} tokens/s. Either half of the "
            "rounds alone names it too."
        )
    elif best:
        *others, last = best.between
        said.append(f"The best fixed length is not settled between {', '.join(others)} and {last}.")
    said += [verdict(standing, plan) for standing in _to_the_best(answer)]
    if answer.slo:
        said.append(answer.slo.text)
    if answer.state in ENDED_EARLY and answer.rounds < plan.rounds:
        ended = ENDED_EARLY[answer.state]
        said.append(f"The A/B was {ended} after {answer.rounds} of {rounds(plan.rounds)}.")
    if answer.dropped:
        said.append(_left_out(answer))
    return said


def _left_out(answer: ABAnswer) -> str:
    """The rounds that do not count, by the order in which rounds began, from 1."""
    dropped = [(row.round + 1, row.reason) for row in answer.dropped]
    numbers = ", ".join(f"{number} ({reason})" for number, reason in dropped)
    amid = any(number <= answer.rounds for number, _ in dropped)
    order = " Numbers are in the order in which rounds began; charts number those that count." if amid else ""
    return f"Left out: round{'s' if len(dropped) > 1 else ''} {numbers}.{order}"


def _to_the_best(answer: ABAnswer) -> list[Standing]:
    """How each adaptive arm stands to the best fixed length compared, or to those between which it is not settled:
    what no comparison with the baseline has said. Nothing while too few rounds are over to name one of several.
    """
    best = answer.best_fixed
    found: list[Standing] = []
    for row in answer.adaptive:
        rivals = row.fixed if len(row.fixed) == 1 else []
        if best:
            rivals = [best.arm] if best.arm else best.between
        found += [each for each in _beyond_baseline(row, answer.plan) if each.baseline in rivals]
    return found


def _beyond_baseline(row: AgainstFixed, plan: Experiment) -> list[Standing]:
    """How an adaptive arm stands to the fixed lengths, without what is compared with the baseline anyway."""
    return [each for each in row.against if plan.baseline not in (each.arm, each.baseline)]


def adjustment(answer: ABAnswer) -> str:
    """What evening out prompts is; nothing where nothing is evened."""
    return ADJUSTED if answer.prompts.evened else ""


def ratios_explained(answer: ABAnswer) -> str:
    """What a ratio is and is not, and when an interval holds in spite of looks."""
    intervals = (
        "“Watched” holds however often you look; “planned” only for one look at the end of a planned number of "
        "rounds."
    )
    return " ".join(filter(None, (RATIO, adjustment(answer), intervals)))


def errors_together(answer: ABAnswer) -> str:
    """How often one of several comparisons is wrong; nothing where there is but one. Shown beside the intervals."""
    beyond = sum(len(_beyond_baseline(row, answer.plan)) for row in answer.adaptive)
    count = len(answer.results) + beyond  # the best length is chosen by the data, so each may be spoken of
    if count < 2:
        return ""
    together = min(100 * ALPHA * count, 100)
    which = f"of these {count} comparisons"
    if beyond:
        which = (
            f"of {count} comparisons (with the baseline, and of adaptive arms with each other fixed length)"
        )
    return (
        f"Each {which} by itself is wrong in at most {100 * ALPHA:g} % of A/Bs; one or more of "
        f"them in up to {together:g} % (the errors added up)."
    )


def until(answer: ABAnswer) -> str:
    """When every ratio will be known to ± 2 %, in rounds and minutes; or of which arms that cannot be told yet."""
    counted = [result for result in answer.results if result.rounds]
    open_ = [result.arm for result in counted if result.rounds_to_2_percent is None]
    if not counted:
        return ""
    if open_:
        return f"How long until ± 2 % cannot be told yet of {', '.join(open_)}."
    last = max(counted, key=lambda result: result.rounds_to_2_percent or 0)
    said = "The ratio" if len(counted) == 1 else "Every ratio"
    return f"{said} is known to ± 2 % after about {_rounds_and_time(last)}."


def counted(count: float, noun: str) -> str:
    """A number and what it counts: "1 step", "2.5 seconds", "1,000 rounds"."""
    return f"{count:,.10g} {noun}{'s' if count != 1 else ''}"


def requests(count: int) -> str:
    return counted(count, "request")


def rounds(count: int) -> str:
    return counted(count, "round")


def blocks_of(plan: Experiment) -> str:
    """How long the blocks of a plan are: "blocks of 40 steps after 4 steps of wash-out"."""
    return f"blocks of {block_length(plan)} after {counted(plan.washout, 'step')} of wash-out"


def block_length(plan: Experiment) -> str:
    """The length of a counted block: "40 steps", "1 second"."""
    return counted(plan.length, plan.unit.removesuffix("s"))


def _signed(ratio: float | None) -> str:
    if ratio is None:
        return "…"
    return f"{'−' if ratio < 1 else '+'}{percent(ratio)}"


def _outlook(result: Standing) -> str:
    needed = result.rounds_to_2_percent
    if needed is None:
        return ""
    if needed <= result.rounds:
        return ", narrower than ± 2 % already"
    return f"; ± 2 % needs about {_rounds_and_time(result)}"


def _rounds_and_time(result: Standing) -> str:
    minutes = result.minutes_to_2_percent
    if minutes is None:
        return rounds(result.rounds_to_2_percent or 0)
    lasts = f"{minutes:,.0f} min" if minutes >= 9.95 else f"{minutes:.1f} min"
    return f"{rounds(result.rounds_to_2_percent or 0)}, {lasts} in all"
