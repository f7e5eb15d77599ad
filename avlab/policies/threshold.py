"""A constant threshold on the estimate: `threshold:0.5` verifies a request's slots up to the first that is below it.

With `+survival` the chance that all before it are accepted counts too. `+by=head` names the estimator. It looks
at no cost and no load. Sound: whether a slot is verified depends on rows up to its own, never on the token drawn there.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.adaptive import AdaptiveVerification
from avlab.policies.arm import Arm, PolicyError, Written, register
from avlab.policies.base import Admission, PolicyContext
from avlab.policies.estimating import EstimatingArm, source_of
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates


@register
@dataclass(frozen=True, slots=True)
class Threshold(EstimatingArm):
    """cut: the least estimate that is verified. survival: what is compared is the product up to the slot."""

    kinds: ClassVar[tuple[str, ...]] = ("threshold",)

    source: str = EstimatingArm.usual
    cut: float = 0.5
    survival: bool = False

    @classmethod
    def forms(cls) -> tuple[str, ...]:
        return ("threshold:0.5[+survival][+by=ESTIMATOR]",)

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        try:
            cut = float(written.value or "")
        except ValueError:
            cut = -1.0
        if not 0 <= cut <= 1:
            raise PolicyError(
                f"policy {written.text!r} needs a threshold from 0 to 1, such as threshold:0.5."
            )
        known = {option.partition("=")[0]: option.partition("=")[2] for option in written.options}
        if len(known) < len(written.options) or known.keys() - {"survival", "by"} or known.get("survival"):
            raise PolicyError(
                f"policy {written.text!r} has an option that is not known; known are survival and by=ESTIMATOR."
            )
        return cls(source_of(known.get("by"), cls.usual, written.text), cut, "survival" in known)

    def __str__(self) -> str:
        by = "" if self.source == self.usual else f"+by={self.source}"
        return f"threshold:{self.cut:g}{'+survival' if self.survival else ''}{by}"

    def make(self, context: PolicyContext) -> "ThresholdVerification":
        return ThresholdVerification(self, context)


class ThresholdVerification(AdaptiveVerification):
    def __init__(self, arm: Threshold, context: PolicyContext):
        super().__init__(arm, context)
        self.cut, self.survival = arm.cut, arm.survival

    def decide(self, offer: Offer) -> Decision:
        K = offer.earlier.shape[1]
        return Decision(K, K, int(offer.scheduled.sum()), np.zeros(len(offer.scheduled), dtype=bool))

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        if estimates is None:
            return Admission(np.zeros_like(offer.scheduled), 0)
        score = estimates.survival if self.survival else estimates.probability
        with np.errstate(invalid="ignore"):
            reached = (score >= self.cut).cumprod(axis=1).sum(axis=1)
        lengths = np.minimum(reached, offer.scheduled)
        return Admission(lengths, int(lengths.sum()))
