"""What a reader should be told about how adaptive verification is doing: a sentence, or none."""

from collections.abc import Mapping, Sequence

import numpy as np

from avlab.policies.arm import Arm, arm_of
from avlab.speculation.estimators.base import REFIT_INTERVAL

ENOUGH_STEPS = 50
NEARLY_ALL, NEARLY_NONE = 0.99, 0.01
FLAT = 1.05  # a pass over every draft that costs at most this much more than one over none


def sentence(
    arm: str,
    steps: int,
    scheduled: float,
    admitted: float,
    target_tokens: float,
    verify: Sequence[float] | np.ndarray,
) -> str:
    """Why adaptive verification trims nothing, admits nothing or does not draft; "" when nothing of that is so.

    steps: how many the sums are over. scheduled, admitted: draft tokens in all. target_tokens: mean of the target's
    pass. verify: milliseconds by tokens in the target's pass, may be empty.
    """
    served = arm_of(arm)
    if not served.adaptive or steps < ENOUGH_STEPS:
        return ""
    if served.depth:  # trims by drafting less
        return _idle_drafter(served) if scheduled < steps else ""
    if scheduled <= 0:
        return ""
    share = admitted / scheduled
    if share <= NEARLY_NONE:
        return (
            "Adaptive verification admits almost no draft tokens, so almost none get a label, and the estimator cannot "
            "learn that drafts have become better. Run a window of full verification, or explore (policy "
            "adaptive+explore=0.02)."
        )
    if share < NEARLY_ALL:
        return ""
    extra = _cost_of_all(target_tokens, scheduled / steps, admitted / steps, np.asarray(verify, dtype=float))
    if extra is None:
        return "Adaptive verification trims nothing: every draft token is worth its cost at this load."
    if extra <= FLAT:
        return (
            f"Adaptive verification trims nothing, and rightly: at this load the target's pass costs {extra - 1:.0%} "
            "more with all drafts than with none (the flat part of the cost curve), so verifying a draft token is "
            "nearly free. Raise the load to see trimming."
        )
    return (
        f"Adaptive verification trims nothing: all drafts make the target's pass cost {extra - 1:.0%} more, and enough "
        "of them are accepted to pay for it."
    )


def _idle_drafter(arm: Arm) -> str:
    sooner = (
        ""
        if arm.explore
        else f"; with exploration (policy {arm}+explore=0.02) it would notice sooner if drafts paid"
    )
    return (
        "Adaptive depth hardly drafts: by its estimates, drafts do not pay at this load. It tries again now and "
        f"then{sooner}."
    )


def stuck_slope(dropped: int, slope: float) -> str:
    """What to do about a slope that stays where it is; "" where none is stuck.

    dropped: slope steps dropped in a row, as `speculation.stuck` counts them. slope: as it stands.
    """
    if not dropped:
        return ""
    return (
        f"The estimator's slope is stuck at {slope:.3f}: each of the last {dropped} refits asked for a slope below 0, "
        "and its step was dropped. Serve with adaptive:cut, which shortens such a step, or adaptive:monotone; for a "
        "vLLM server docs/estimators.md has the one-line change."
    )


FAR = 8.0  # log-odds; a probability of 0.9997, that no draft position has on its own


def runaway(
    slope: float, intercepts: Sequence[float] | np.ndarray, labels: Sequence[float] | np.ndarray
) -> str:
    """What a coefficient beyond all reason is due to; "" where there is none.

    slope, intercepts: as they stand. labels: of each position, in all refits so far.
    """
    far = [k for k, value in enumerate(intercepts) if np.isfinite(value) and abs(value) > FAR]
    if far:
        k = max(far, key=lambda place: abs(intercepts[place]))
        return (
            f"The intercept of position {k} ran away to {intercepts[k]:.1f}, after {labels[k]:,.0f} labels. Its labels "
            "were few and all alike, so each refit's step went on in the same direction. Estimates there are 0 or 1, "
            "whatever the draft. adaptive:converged and adaptive:monotone do not run away; a longer run, or "
            "exploration (+explore=0.02), gives the position more labels."
        )
    if abs(slope) > FAR:
        return (
            f"The slope ran away to {slope:.1f}: in the rounds so far confidence told accepted from refused drafts "
            "without a fault, so each refit made it steeper. adaptive:converged and adaptive:monotone do not run away."
        )
    return ""


def first_refit(arm: str, steps: int, live: bool) -> str:
    """When the first refit comes, under a page that waits for it. steps: taken so far."""
    if not arm or not arm_of(arm).learns:
        return "No refit in this run so far. Start one under a policy that learns, such as `adaptive`."
    if not live:
        return f"The run ended after {steps:,} steps, before a refit: the first comes after {REFIT_INTERVAL}."
    left = max(REFIT_INTERVAL - steps, 0)
    return f"The first refit comes after {REFIT_INTERVAL} steps of the arm: {steps:,} were taken, about {left:,} to go."


def exploration(numbers: Mapping[str, float]) -> str:
    """What exploration costs, in one sentence; "" where nothing was explored.

    numbers: sums over `steps` steps of explored and admitted draft tokens, and of explored_ms.
    """
    explored, admitted, steps, explored_ms = (
        numbers[n] for n in ("explored", "admitted", "steps", "explored_ms")
    )
    if not explored:
        return ""
    return (
        f"Exploration verified {explored:,.0f} draft tokens beyond the ranking: {explored / admitted:.1%} of those "
        f"admitted, {explored / steps:.2f} a step, for {explored_ms / steps:.2f} ms a step by the costs it decides by."
    )


def _cost_of_all(target_tokens: float, scheduled: float, admitted: float, verify: np.ndarray) -> float | None:
    """The pass with every draft over the pass with none, in cost."""
    if len(verify) < 2:
        return None
    sizes = np.arange(len(verify))
    none, all_of_them = np.interp(
        [target_tokens - admitted, target_tokens - admitted + scheduled], sizes, verify
    )
    return float(all_of_them / none) if none > 0 else None


def arm_in_force(blocks: Sequence[Mapping]) -> str:
    """The arm of the last block; "" before the first."""
    return str(blocks[-1]["arm"]) if blocks else ""
