"""The verdict of an A/B in words, with its unit."""

from collections.abc import Mapping
from typing import Any

from avlab.experiments.statistics import ALPHA, least_rounds

LEDGER = {  # titles of what the ledger holds per 1,000 output tokens
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
}
AS_MEASURED = ", by the values measured and without regard to their error"
SLO_MEASURES = ("p50_tpot_ms", "p95_tpot_ms", "p50_ttft_ms")


class SloError(ValueError):
    """A service-level objective that cannot be read. The message is one sentence."""


def parse_slo(text: str) -> tuple[str, float]:
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


def best_within(arms: Mapping[str, Mapping[str, Any]], slo: tuple[str, float]) -> dict[str, Any]:
    """measure, limit_ms, arm: the fastest arm whose measure is within the limit (None if none is), and text."""
    measure, limit = slo
    within = [
        arm
        for arm, seen in arms.items()
        if seen.get(measure) is not None and seen[measure] <= limit and seen["tokens_per_s"]
    ]
    best = max(within, key=lambda arm: arms[arm]["tokens_per_s"], default=None)
    if best is None:
        text = f"No arm keeps {measure} within {limit:g} ms at this load."
    else:
        text = (
            f"Within {measure} ≤ {limit:g} ms, {best} is the fastest{AS_MEASURED}: "
            f"{arms[best]['tokens_per_s']:.1f} tokens/s at {arms[best][measure]:.1f} ms."
        )
    return {"measure": measure, "limit_ms": limit, "arm": best, "text": text}


def percent(ratio: float) -> str:
    """A ratio's distance from 1, without sign, to one digit below 10 %."""
    value = abs(100 * (ratio - 1))
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def verdict(result: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """One sentence about one arm: faster, slower, or not known yet, with the sequence in percent."""
    arm, baseline, load = result["arm"], plan["baseline"], requests(plan["concurrency"])
    if not result["rounds"]:
        return f"{arm} against {baseline} at {load}: no round is complete yet."
    if result["moved"]:
        return (
            f"{arm} against {baseline} at {load}: the ratio changed while it was measured (earlier and later rounds "
            "exclude each other), so no one number describes it. Look at the rounds."
        )
    low, high = result["low"], result["high"]  # None: not bounded yet
    if low is None and high is None:
        return (
            f"{arm} against {baseline} at {load}: too few rounds to say anything "
            f"({result['rounds']}; {least_rounds()} are the least)."
        )
    if (low or 0) > 1 or (high is not None and high < 1):
        word, ends = ("faster", (low, high)) if (low or 0) > 1 else ("slower", (high, low))
        spread = ", ".join("…" if end is None else percent(end) for end in ends)
        return f"{arm} is {percent(result['ratio'])} % [{spread}] {word} than {baseline} at {load}."
    return (
        f"{arm} against {baseline} at {load}: no difference is declared after {rounds(result['rounds'])}; it lies "
        f"between {_signed(low)} and {_signed(high)} %{_outlook(result)}."
    )


def verdicts(answer: Mapping[str, Any]) -> list[str]:
    """All that is to be said, most important first."""
    plan = answer["plan"]
    said = [verdict(result, plan) for result in answer["results"]]
    best = answer["best_fixed"]
    for beats in answer["adaptive"]:
        if beats["declared"]:
            said.append(
                f"{beats['arm']} beats every fixed length compared: {', '.join(beats['fixed'])}; each by at least "
                f"{percent(beats['least_low'])} % (declared after {rounds(beats['declared_at'])})."
            )
    if best and best["arm"]:
        said.append(
            f"The best fixed length compared is {best['arm']}: {best['tokens_per_s']:.1f} tokens/s. Either half of the "
            "rounds alone names it too."
        )
    elif best:
        said.append(f"The best fixed length is not settled between {' and '.join(best['between'])}.")
    if answer["slo"]:
        said.append(answer["slo"]["text"])
    if answer["state"] in ("cut short", "failed"):
        said.append(f"The A/B was cut short after {answer['rounds']} of {rounds(plan['rounds'])}.")
    if answer["dropped"]:
        numbers = ", ".join(f"{row['round']} ({row['reason']})" for row in answer["dropped"])
        said.append(f"Left out: round {numbers}.")
    return said


def errors_together(answer: Mapping[str, Any]) -> str:
    """How often one of several comparisons is wrong; nothing where there is but one. Shown beside the intervals."""
    count = len(answer["results"])
    if count < 2:
        return ""
    together = min(100 * ALPHA * count, 100)
    return (
        f"Each of these {count} comparisons by itself is wrong in at most {100 * ALPHA:g} % of A/Bs; one or more of "
        f"them in up to {together:g} % (the errors added up)."
    )


def until(answer: Mapping[str, Any]) -> str:
    """When every ratio will be known to ± 2 %, in rounds and minutes; or of which arms that cannot be told yet."""
    counted = [result for result in answer["results"] if result["rounds"]]
    open_ = [result["arm"] for result in counted if result["rounds_to_2_percent"] is None]
    if not counted:
        return ""
    if open_:
        return f"How long until ± 2 % cannot be told yet of {', '.join(open_)}."
    last = max(counted, key=lambda result: result["rounds_to_2_percent"])
    said = "The ratio" if len(counted) == 1 else "Every ratio"
    return f"{said} is known to ± 2 % after about {_rounds_and_time(last)}."


def requests(count: int) -> str:
    return f"{count} request{'s' if count != 1 else ''}"


def rounds(count: int) -> str:
    return f"{count:,} round{'s' if count != 1 else ''}"


def _signed(ratio: float | None) -> str:
    if ratio is None:
        return "…"
    return f"{'−' if ratio < 1 else '+'}{percent(ratio)}"


def _outlook(result: Mapping[str, Any]) -> str:
    needed = result["rounds_to_2_percent"]
    if needed is None:
        return ""
    if needed <= result["rounds"]:
        return ", narrower than ± 2 % already"
    return f"; ± 2 % needs about {_rounds_and_time(result)}"


def _rounds_and_time(result: Mapping[str, Any]) -> str:
    minutes = result["minutes_to_2_percent"]
    if minutes is None:
        return rounds(result["rounds_to_2_percent"])
    lasts = f"{minutes:,.0f} min" if minutes >= 9.95 else f"{minutes:.1f} min"
    return f"{rounds(result['rounds_to_2_percent'])}, {lasts} in all"
