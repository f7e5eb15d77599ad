"""SGLang's confidence-scheduled verification: `sglang[:ESTIMATOR]`, by its confidence head unless named otherwise.

Its budget is vLLM's ratio over additive costs with straight lines between captured sizes, from the estimates of the
step before (a new request counts as certain); the head is taken as it is. Source: sgl-project/sglang,
`speculative/dspark_components/dspark_planner.py` (`compute_verify_token_budget`, `HostConfidenceBudgetPlanner`).
Sound: the budget knows no draft of this step, and the ranking is vLLM's.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.adaptive import AdaptiveVerification
from avlab.policies.arm import register
from avlab.policies.base import PolicyContext
from avlab.policies.estimating import EstimatingArm
from avlab.speculation.budget import expected_tokens, offered, survival
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.published_budgets import sglang_budget, straight


@register
@dataclass(frozen=True, slots=True)
class Sglang(EstimatingArm):
    kinds: ClassVar[tuple[str, ...]] = ("sglang",)
    usual: ClassVar[str] = "head"

    source: str = "head"

    def make(self, context: PolicyContext) -> "SglangVerification":
        return SglangVerification(self, context)


class SglangVerification(AdaptiveVerification):
    """Drafts K; budget by the best ratio over interpolated costs."""

    def __init__(self, arm: EstimatingArm, context: PolicyContext):
        super().__init__(arm, context)
        self.draft, self.verify = context.costs.draft_at(context.K), straight(context.costs.verify)

    def step_ms(self, offer: Offer):
        """Milliseconds of a step by the tokens of its pass, [..] to [..]; the largest size known beyond the table."""
        beside = (
            offer.other_tokens - offer.requests
        )  # of prompts: what the profile of decode steps does not know
        drafting = self.draft[offer.requests]
        return lambda tokens: drafting + self.verify[np.minimum(tokens + beside, len(self.verify) - 1)]

    def decide(self, offer: Offer) -> Decision:
        before = offered(survival(np.where(np.isnan(offer.earlier), 1.0, offer.earlier)), offer.scheduled)
        budget = sglang_budget(before, offer.requests, self.step_ms(offer))
        tokens = float(expected_tokens(before, offer.emitting)[budget])
        K = offer.earlier.shape[1]
        return Decision(K, K, budget, np.zeros(len(offer.scheduled), dtype=bool), tokens)
