"""TensorRT-LLM's confidence-scheduled verification: `tensorrt[:ESTIMATOR][+gain=0.04]`.

Every request's first draft is verified. What goes beyond has the best ratio over costs with straight lines between
captured sizes, and everything is verified where that is within `gain` of it. Source: NVIDIA/TensorRT-LLM,
`_torch/speculative/dspark_planner.py` (`compute_verify_token_budget`, `minimum_predicted_gain`; a profile loaded from a
file sets 0.01 there unless told otherwise) and `dspark_schedule.py` (`schedule_verify_lens_topk`). Sound, as `sglang`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.arm import Arm, PolicyError, Written, register
from avlab.policies.base import Admission, PolicyContext
from avlab.policies.estimating import EstimatingArm, source_of
from avlab.policies.sglang import SglangVerification
from avlab.speculation.allocation import allocate
from avlab.speculation.budget import survival
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.published_budgets import tensorrt_budget

GAIN = 0.04
FLOOR = 1


@register
@dataclass(frozen=True, slots=True)
class TensorRT(EstimatingArm):
    """gain: how much better, relatively, a budget must be than verifying everything."""

    kinds: ClassVar[tuple[str, ...]] = ("tensorrt",)
    usual: ClassVar[str] = "head"

    source: str = "head"
    gain: float = GAIN

    @classmethod
    def forms(cls) -> tuple[str, ...]:
        return (f"tensorrt[:ESTIMATOR][+gain={GAIN:g}]",)

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        source, gain = source_of(written.value, cls.usual, written.text), GAIN
        for option in written.options:
            name, _, value = option.partition("=")
            try:
                gain = float(value)
            except ValueError:
                gain = -1.0
            if name != "gain" or len(written.options) > 1 or not 0 <= gain <= 1:
                raise PolicyError(
                    f"policy {written.text!r} has the option {option!r}; known is gain=0.04, from 0 to 1."
                )
        return cls(source, gain)

    def __str__(self) -> str:
        return EstimatingArm.__str__(self) + ("" if self.gain == GAIN else f"+gain={self.gain:g}")

    def make(self, context: PolicyContext) -> "TensorRTVerification":
        return TensorRTVerification(self, context)


class TensorRTVerification(SglangVerification):
    """The budget counts what goes beyond the first draft of every request."""

    def __init__(self, arm: TensorRT, context: PolicyContext):
        super().__init__(arm, context)
        self.gain = arm.gain

    def decide(self, offer: Offer) -> Decision:
        before = survival(np.where(np.isnan(offer.earlier), 1.0, offer.earlier))
        beyond = tensorrt_budget(before, offer.scheduled, self.step_ms(offer), self.gain, FLOOR)
        granted = int(np.minimum(offer.scheduled, FLOOR).sum())
        K = before.shape[1]
        return Decision(K, K, granted + beyond, np.zeros(len(offer.scheduled), dtype=bool))

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        granted = np.minimum(offer.scheduled, FLOOR)
        if estimates is None:
            return Admission(np.zeros_like(granted), decision.budget)
        beyond = allocate(
            estimates.survival[:, FLOOR:], offer.scheduled - granted, decision.budget - int(granted.sum())
        )
        return Admission(granted + beyond, decision.budget)
