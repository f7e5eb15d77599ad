"""Policies: how many drafts to make this step, and which of them the target verifies.

A policy is the one thing an A/B switches. It speaks three times in a step: `decide` before anything is drafted, from
what earlier steps and coins say; `estimate` once the draft is there; `admit`, to say which slots are verified. The
mathematics stands in `avlab.speculation.decision`.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from avlab.policies.arm import Arm, PolicyError
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Decision, Offer, admit, decide, running_mean
from avlab.speculation.estimator import OnlineEstimator, Refit
from avlab.speculation.features import probability
from avlab.speculation.measured_costs import MeasuredCosts


@dataclass(slots=True)
class Admission:
    """admitted: [B] prefix lengths. budget: drafts meant to be verified. The expectations are nan without estimates.

    explored: draft tokens admitted beyond the ranking; explored_ms: what they, and drafting deeper for them, cost.
    expected_ms, of drafting and verification, is with them, expected_tokens without. Both by the costs that the policy
    decides by.
    """

    admitted: np.ndarray
    budget: int
    explored: int = 0
    explored_ms: float = 0.0
    expected_tokens: float = float("nan")
    expected_ms: float = float("nan")


class FixedLength:
    """`fixed:k` drafts and verifies k; `none` is `fixed:0`; `verify:k` drafts K and verifies k."""

    def __init__(self, arm: Arm, K: int):
        self.arm = arm
        self.verified = arm.k
        self.drafted = {"none": 0, "fixed": arm.k, "verify": K}[arm.kind]

    def decide(self, offer: Offer) -> Decision:
        budget = int(np.minimum(offer.scheduled, self.verified).sum())
        return Decision(self.drafted, self.drafted, budget, np.zeros(len(offer.scheduled), dtype=bool))

    def estimate(self, feature: np.ndarray, head: np.ndarray | None) -> None:
        return None

    def admit(self, decision: Decision, estimate: np.ndarray | None, offer: Offer) -> Admission:
        return Admission(np.minimum(offer.scheduled, self.verified), decision.budget)

    def observe(
        self, feature: np.ndarray, accepted: np.ndarray, admitted: np.ndarray, limit: np.ndarray
    ) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None


class AdaptiveVerification:
    """vLLM's rule: the budget from the estimates of the step before, its slots by this step's estimates.

    Estimates come from the online estimator, a confidence head, or the maximum probability as it is. `+depth` chooses
    the depth of the draft with the budget; `+explore` verifies a request in full when its coin falls so.
    new_request: what a slot without an earlier estimate counts as, "one" or "running-mean"; the latter under `+depth`.
    """

    def __init__(
        self,
        arm: Arm,
        K: int,
        costs: CostTable,
        interval: int,
        new_request: str,
        measured: MeasuredCosts | None = None,
    ):
        self.arm, self.costs = arm, costs
        self.deciding = measured if measured is not None and arm.depth else costs
        self.by_mean = arm.depth or new_request == "running-mean"
        self.mean_estimate = np.ones(K)  # [K] over earlier steps
        self.estimator = OnlineEstimator(K, interval=interval) if arm.learns else None

    def decide(self, offer: Offer) -> Decision:
        """Settle depth, budget and exploration of the step, before anything is drafted."""
        self.mean_estimate = running_mean(self.mean_estimate, offer.earlier)
        unknown = self.mean_estimate if self.by_mean else np.ones_like(self.mean_estimate)
        return decide(offer, unknown, self.deciding, self.arm.depth, offer.coins < self.arm.explore)

    def estimate(self, feature: np.ndarray, head: np.ndarray | None) -> np.ndarray | None:
        """[B, K] acceptance estimates of this step's drafts, nan where feature and head are."""
        if self.arm.source == "head":
            return head
        return probability(feature) if self.estimator is None else self.estimator.predict(feature)

    def admit(self, decision: Decision, estimate: np.ndarray | None, offer: Offer) -> Admission:
        """Prefix lengths. Without estimates nothing was drafted, and nothing is admitted."""
        if estimate is None:
            estimate = np.full(offer.earlier.shape, np.nan)
        ranked, admitted = admit(decision, estimate, offer.scheduled)
        plain, whole = (offer.other_tokens + int(lengths.sum()) for lengths in (ranked, admitted))
        milliseconds = self.deciding.step(offer.requests, decision.drafted, whole)
        return Admission(
            admitted=admitted,
            budget=decision.budget,
            explored=whole - plain,
            explored_ms=milliseconds - self.deciding.step(offer.requests, decision.depth, plain),
            expected_tokens=decision.expected_tokens,
            expected_ms=milliseconds,
        )

    def observe(
        self, feature: np.ndarray, accepted: np.ndarray, admitted: np.ndarray, limit: np.ndarray
    ) -> None:
        """Learn from the labels of a verification; limit: slots from this depth on have none."""
        if self.estimator is not None:
            self.estimator.observe(feature, accepted, admitted, limit)

    def end_step(self) -> Refit | None:
        return None if self.estimator is None else self.estimator.end_step()


class Untaught:
    """Decides as another policy does, and leaves what that one has learnt, and its steps to a refit, as they are."""

    arm: Arm
    decide: Callable[[Offer], Decision]
    estimate: Callable[[np.ndarray, np.ndarray | None], np.ndarray | None]
    admit: Callable[[Decision, np.ndarray | None, Offer], Admission]

    def __init__(self, policy: "Policy"):
        policy = copy(policy)  # what deciding changes, the running mean, changes here alone
        self.arm, self.decide = policy.arm, policy.decide
        self.estimate, self.admit = policy.estimate, policy.admit

    def observe(
        self, feature: np.ndarray, accepted: np.ndarray, admitted: np.ndarray, limit: np.ndarray
    ) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None


class FullVerification:
    """A window: drafts K and verifies all of them, while another policy predicts and, if wanted, learns."""

    arm: Arm
    estimate: Callable[[np.ndarray, np.ndarray | None], np.ndarray | None]
    observe: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]
    end_step: Callable[[], Refit | None]

    def __init__(self, policy: "Policy", K: int):
        self.arm, self.K = policy.arm, K
        self.estimate, self.observe, self.end_step = policy.estimate, policy.observe, policy.end_step

    def decide(self, offer: Offer) -> Decision:
        return Decision(
            self.K, self.K, int(offer.scheduled.sum()), np.zeros(len(offer.scheduled), dtype=bool)
        )

    def admit(self, decision: Decision, estimate: np.ndarray | None, offer: Offer) -> Admission:
        return Admission(offer.scheduled, decision.budget)


Policy = FixedLength | AdaptiveVerification | Untaught | FullVerification


def make_policy(
    arm: Arm,
    K: int,
    costs: CostTable,
    interval: int,
    new_request: str = "one",
    measured: MeasuredCosts | None = None,
) -> Policy:
    """The policy an arm names. measured: costs as they are now, by which `+depth` decides; else by the table.

    Raises PolicyError for one this drafter cannot serve.
    """
    if K == 0 and arm.kind != "none":
        raise PolicyError(
            f"policy {arm} needs a drafter and this run has none: give --drafter, or use --policy none."
        )
    if arm.k > K:
        raise PolicyError(f"policy {arm} asks for {arm.k} drafts; this drafter makes at most {K}.")
    if arm.kind != "adaptive":
        return FixedLength(arm, K)
    return AdaptiveVerification(arm, K, costs, interval, new_request, measured)
