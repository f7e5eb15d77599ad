"""The verdict of an A/B in words, with its unit."""

import math

from avlab.experiments.answers import (
    ABAnswer,
    AgainstFixed,
    Comparison,
    Standing,
)
from avlab.experiments.statistics import ALPHA, least_rounds
from avlab.formats import counted, emulated
from avlab.wire.commands import Experiment

LEDGER = {  # titles of what the ledger holds per 1,000 output tokens
    "prompt_ms": "prompts, ms",
    "draft_ms": "drafting, ms",
    "verify_ms": "verification, ms",
    "sample_ms": "sampling, ms",
    "decide_ms": "deciding, ms",
    "other_ms": "everything else, ms",
    "total_ms": "total, ms",
    "admitted": "drafts admitted",
    "accepted": "drafts accepted",
    "rejected": "verified in vain",
    "trimmed": "drafted in vain",
    "saved_ms": "if all were verified, ms more",
    "explored": "drafts explored",
    "explored_ms": "exploring, ms",
    "served_tokens_per_s": "as served, tokens/s",
}
RATIO = (
    "The ratio is the interval's midpoint, not tokens/s ÷ tokens/s: arms are compared within rounds, and tokens/s are "
    "of all rounds together. At the midpoint the evidence against a higher ratio equals that against a lower one; "
    "unlike the mean, it hardly moves for one outlying round. The planned interval is centred on the mean log ratio of "
    "the rounds."
)
ADJUSTED = (
    "Tokens/s, ratios and ledger use prompt tokens as a control variate (CUPED): a block is charged the average prompt "
    "time of the traffic, not that of the prompts which happened to fall into it. In a ratio the average is over the "
    "rounds so far. Times of users are as served."
)
EXPECTED = (
    "A ratio counts as many drafts as accepted as their acceptance probabilities make expected, which has the same "
    "mean and less chance in it."
)
ENDED_EARLY = {"cut short": "cut short", "failed": "cut short", "stopped": "stopped"}  # states of a run


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
            f"{arm} against {baseline} at {load}: the ratio changed during the run (the intervals of earlier "
            "and later rounds do not overlap). No single number describes it: look at the rounds."
        )
    low, high = result.low, result.high  # None: not bounded yet
    if low is None and high is None:
        return (
            f"{arm} against {baseline} at {load}: too few rounds for an interval "
            f"({result.rounds} of at least {least_rounds()})."
        )
    if (low or 0) > 1 or (high is not None and high < 1):
        word, ends = ("faster", (low, high)) if (low or 0) > 1 else ("slower", (high, low))
        spread = ", ".join("…" if end is None else percent(end) for end in ends)
        return f"{arm} is {percent(result.ratio or 1.0)} % [{spread}] {word} than {baseline} at {load}."
    return (
        f"{arm} against {baseline} at {load}: no difference declared after {rounds(result.rounds)}: it is "
        f"between {_signed(low)} and {_signed(high)} %{_outlook(result)}."
    )


def verdicts(answer: ABAnswer) -> list[str]:
    """All that is to be said, most important first."""
    return [emulated(sentence, answer.emulated) for sentence in _verdicts(answer)]


def _verdicts(answer: ABAnswer) -> list[str]:
    plan = answer.plan
    said = [verdict(result, plan) for result in answer.results]
    said += [warning for result in answer.results if (warning := _disagreement(result, answer))]
    best = answer.best_fixed
    for beats in answer.adaptive:
        if beats.declared:
            said.append(
                f"{beats.arm} beats every fixed length compared: {', '.join(beats.fixed)}; each by at least "
                f"{percent(beats.least_low or 1.0)} % (declared after {rounds(beats.declared_at or 0)})."
            )
    if best and best.arm:
        said.append(
            f"The best fixed length compared is {best.arm}, {best.tokens_per_s:.1f} tokens/s. Each half of the rounds "
            "agrees."
        )
    elif best:
        *others, last = best.between
        said.append(f"The best fixed length is undecided: {', '.join(others)} or {last}.")
    said += [verdict(standing, plan) for standing in _to_the_best(answer)]
    if answer.slo:
        said.append(answer.slo.text)
    if answer.state in ENDED_EARLY and answer.rounds < plan.rounds:
        ended = ENDED_EARLY[answer.state]
        said.append(f"The A/B was {ended} after {answer.rounds} of {rounds(plan.rounds)}.")
    if answer.dropped:
        said.append(_left_out(answer))
    return said


def _disagreement(result: Standing, answer: ABAnswer) -> str | None:
    """That the quotient of all tokens/s lies outside the interval: the typical round and the total disagree."""
    seen = [answer.arms.get(arm) for arm in (result.arm, answer.plan.baseline)]
    mine, other = (arm.tokens_per_s if arm else None for arm in seen)
    if not mine or not other or result.moved or result.low is None or result.high is None:
        return None
    total = mine / other
    if result.low <= total <= result.high:
        return None
    return (
        f"{result.arm}: tokens/s of all rounds together differ by {_signed(total)} % from {answer.plan.baseline}'s, "
        "outside the interval. A few rounds weigh much in the total: look at the rounds."
    )


def _left_out(answer: ABAnswer) -> str:
    """The rounds that do not count, by the order in which rounds began, from 1."""
    dropped = [(row.round + 1, row.reason) for row in answer.dropped]
    numbers = ", ".join(f"{number} ({reason})" for number, reason in dropped)
    amid = any(number <= answer.rounds for number, _ in dropped)
    order = " Rounds are numbered as they began; charts number only those that count." if amid else ""
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
    """By which control variates chance is taken out of throughput; nothing where by none."""
    return " ".join([ADJUSTED] * answer.prompts.evened + [EXPECTED] * answer.expected)


def ratios_explained(answer: ABAnswer) -> str:
    """What a ratio is and is not, and when an interval holds in spite of looks."""
    intervals = (
        "“Watched” holds however often you look, “planned” for one look after the planned number of rounds."
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
        f"Each {which} is wrong in at most {100 * ALPHA:g} % of A/Bs, and at least one of them in up to "
        f"{together:g} % (errors added up)."
    )


def provisional(answer: ABAnswer) -> str:
    """What the first rounds say, as long as they give no interval; "" before the first, and once one is there."""
    early = [result for result in answer.results if result.rounds and not _has_interval(result)]
    if not early:
        return ""
    each = [
        f"{result.arm} {math.exp(sum(map(math.log, result.ratio_by_round)) / result.rounds):.2f} ×"
        for result in early
    ]
    return (
        f"Provisional, without an interval: {', '.join(each)} {answer.plan.baseline} over {rounds(early[0].rounds)}. "
        f"An interval needs at least {least_rounds()}."
    )


def _has_interval(result: Comparison) -> bool:
    return all(end is not None and math.isfinite(end) for end in (result.low, result.high))


def until(answer: ABAnswer) -> str:
    """When every ratio will be known to ± 2 %, in rounds and minutes; or of which arms that cannot be told yet."""
    counted = [result for result in answer.results if result.rounds]
    open_ = [result.arm for result in counted if result.rounds_to_2_percent is None]
    if not counted:
        return ""
    if open_:
        return f"The time to ± 2 % is not known yet for {', '.join(open_)}."
    last = max(counted, key=lambda result: result.rounds_to_2_percent or 0)
    said = "The ratio" if len(counted) == 1 else "Every ratio"
    told = f"{said} is known to ± 2 % after about {_rounds_and_time(last)}."
    return emulated(told, answer.emulated)  # the minutes are the emulated machine's


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
