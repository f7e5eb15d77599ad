"""The verdict of an A/B in words, with its unit."""

from collections.abc import Mapping
from typing import Any

from avlab.experiments.statistics import least_rounds
from avlab.policies import unlabelled

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
            f"Within {measure} ≤ {limit:g} ms, {best} is the fastest: {arms[best]['tokens_per_s']:.1f} tokens/s at "
            f"{arms[best][measure]:.1f} ms."
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
                f"{beats['arm']} beats every fixed length here, each by at least {percent(beats['least_low'])} % "
                f"(declared after {rounds(beats['declared_at'])})."
            )
    if best and len({unlabelled(arm) for arm in plan["arms"] if not arm.startswith("adaptive")}) > 1:
        said.append(
            f"The best fixed length here is {best['arm']}: {best['tokens_per_s']:.1f} tokens/s in rounds "
            "that had not chosen it."
        )
    if answer["slo"]:
        said.append(answer["slo"]["text"])
    if answer["state"] in ("cut short", "failed"):
        said.append(f"The A/B was cut short after {answer['rounds']} of {rounds(plan['rounds'])}.")
    if answer["dropped"]:
        numbers = ", ".join(f"{row['round']} ({row['reason']})" for row in answer["dropped"])
        said.append(f"Left out: round {numbers}.")
    return said


def requests(count: int) -> str:
    return f"{count} request{'s' if count != 1 else ''}"


def rounds(count: int) -> str:
    return f"{count:,} round{'s' if count != 1 else ''}"


def _signed(ratio: float | None) -> str:
    if ratio is None:
        return "…"
    return f"{'−' if ratio < 1 else '+'}{percent(ratio)}"


def _outlook(result: Mapping[str, Any]) -> str:
    until = result["rounds_to_2_percent"]
    if until is None:
        return ""
    if until <= result["rounds"]:
        return ", narrower than ± 2 % already"
    return f"; ± 2 % needs about {rounds(until)}"
