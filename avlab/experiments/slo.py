"""A limit on what users see, a service-level objective, and the fastest arm within it."""

from collections.abc import Mapping
from dataclasses import dataclass

from avlab.experiments.answers import ArmSeen, Objective, Within

AS_MEASURED = ", by the measured values, errors ignored"
SLO_MEASURES = ("p50_tpot_ms", "p95_tpot_ms", "p50_ttft_ms")
UNMEASURED = {  # why an arm may lack a measure
    "p50_ttft_ms": " (no finished request had its first token within a counted block: use longer blocks)"
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
