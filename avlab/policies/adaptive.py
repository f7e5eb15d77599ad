"""Adaptive verification: `adaptive[:ESTIMATOR][+depth][+stop][+explore=0.02]`.

vLLM's rule: the budget from the estimates of the step before, its slots by this step's estimates. `+stop` is another:
`stopping.py` has it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.arm import Arm, PolicyError, Written, register
from avlab.policies.base import Admission, PolicyContext
from avlab.policies.estimating import EstimatingArm, source_of
from avlab.speculation.decision import Decision, Offer, admit, decide, running_mean
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators import base as estimators
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit


@register
@dataclass(frozen=True, slots=True)
class Adaptive(EstimatingArm):
    """source: the estimator's name. depth, explore: as `Arm` says. stop: this step's estimates end verification."""

    kinds: ClassVar[tuple[str, ...]] = ("adaptive",)

    source: str = EstimatingArm.usual
    depth: bool = False
    explore: float = 0.0
    stop: bool = False

    @classmethod
    def forms(cls) -> tuple[str, ...]:
        return (f"adaptive[:{'|'.join(estimators.names())}][+depth][+stop][+explore=0.02]",)

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm:
        return cls(source_of(written.value, cls.usual, written.text), *_options(written))

    def __str__(self) -> str:
        explore = f"+explore={self.explore:g}" if self.explore else ""
        switches = "+depth" * self.depth + "+stop" * self.stop
        return f"{EstimatingArm.__str__(self)}{switches}{explore}"

    def make(self, context: PolicyContext) -> "AdaptiveVerification":
        if self.stop:
            from avlab.policies.stopping import StoppingVerification  # which is one of these

            return StoppingVerification(self, context)
        return AdaptiveVerification(self, context)


def _options(written: Written) -> tuple[bool, float, bool]:
    """Depth, exploration, stopping. Raises PolicyError."""
    text, explore = written.text, 0.0
    switches = {"depth": False, "stop": False}
    seen = set()
    for option in written.options:
        name, equals, value = option.partition("=")
        if name in seen or name not in ("explore", *switches) or (name in switches) == bool(equals):
            raise PolicyError(
                f"policy {text!r} has the option {option!r}; known are depth, stop and explore=0.02."
            )
        seen.add(name)
        if name in switches:
            switches[name] = True
            continue
        try:
            explore = float(value)
        except ValueError:
            explore = -1.0
        if not 0 <= explore <= 1:
            raise PolicyError(f"policy {text!r} explores with {value!r}; give a chance from 0 to 1.")
    return switches["depth"], explore, switches["stop"]


class AdaptiveVerification:
    """Budget and ranking by the estimates of one estimator.

    `+depth` chooses the depth of the draft with the budget; `+explore` verifies a request in full when its coin falls
    so. A slot without an earlier estimate counts as `PolicyContext.new_request` says, under `+depth` as the running
    mean.
    """

    def __init__(self, arm: EstimatingArm, context: PolicyContext):
        self.arm = arm
        self.deciding = context.measured if context.measured is not None and arm.depth else context.costs
        self.by_mean = arm.depth or context.new_request == "running-mean"
        self.mean_estimate = np.ones(context.K)  # [K] over earlier steps
        self.estimator = estimators.named(arm.source)(context.K, context.refit_interval)

    def decide(self, offer: Offer) -> Decision:
        self.mean_estimate = running_mean(self.mean_estimate, offer.earlier)
        unknown = self.mean_estimate if self.by_mean else np.ones_like(self.mean_estimate)
        return decide(offer, unknown, self.deciding, self.arm.depth, offer.coins < self.arm.explore)

    def estimate(self, features: Features) -> Estimates:
        return Estimates.of(self.estimator.predict(features.only(self.estimator.reads)))

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        survivals = np.full(offer.earlier.shape, np.nan) if estimates is None else estimates.survival
        ranked, admitted = admit(decision, survivals, offer.scheduled)
        plain = whole = offer.other_tokens + int(ranked.sum())
        milliseconds = without = self.deciding.step(offer.requests, decision.depth, plain)
        if admitted is not ranked:
            whole = offer.other_tokens + int(admitted.sum())
            milliseconds = self.deciding.step(offer.requests, decision.drafted, whole)
        return Admission(
            admitted=admitted,
            budget=decision.budget,
            explored=whole - plain,
            explored_ms=milliseconds - without,
            expected_tokens=decision.expected_tokens,
            expected_ms=milliseconds,
        )

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        if estimates is not None:
            self.estimator.observe(features, estimates.probability, labels)

    def end_step(self) -> Refit | None:
        return self.estimator.end_step()
