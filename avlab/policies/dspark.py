"""The DSpark paper's early stop: `dspark[:ESTIMATOR]`, by the confidence head unless named otherwise.

Slots are taken by this step's survival, best first, until one does not raise expected tokens per millisecond. So the
budget looks at this step's drafts and is sound all the same: whether a slot is verified depends on larger survivals
only, which know no token drawn at it or later. On a stepped cost it stops at the first step that does not pay at once.
Source: arXiv 2607.05147, section 5; the paper's servers use estimates of two steps before instead, for want of time.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.adaptive import AdaptiveVerification
from avlab.policies.arm import register
from avlab.policies.base import Admission, PolicyContext
from avlab.policies.estimating import EstimatingArm
from avlab.speculation.allocation import allocate
from avlab.speculation.budget import choose_budget, first_peak, offered
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates


@register
@dataclass(frozen=True, slots=True)
class DSpark(EstimatingArm):
    kinds: ClassVar[tuple[str, ...]] = ("dspark",)
    usual: ClassVar[str] = "head"

    source: str = "head"

    def make(self, context: PolicyContext) -> "EarlyStop":
        return EarlyStop(self, context)


class EarlyStop(AdaptiveVerification):
    """Drafts K, and settles the budget when the drafts are there."""

    def decide(self, offer: Offer) -> Decision:
        K = offer.earlier.shape[1]
        return Decision(K, K, int(offer.scheduled.sum()), np.zeros(len(offer.scheduled), dtype=bool))

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        if estimates is None:
            return Admission(np.zeros_like(offer.scheduled), 0)
        size = offer.requests, offer.emitting, offer.other_tokens
        reachable = offered(estimates.survival, offer.scheduled)
        costs = self.deciding
        budget = choose_budget(
            reachable, costs.draft_at(decision.depth), costs.verify, *size, rule=first_peak
        )
        return Admission(allocate(estimates.survival, offer.scheduled, budget), budget)
