"""Policies: how many drafts to make this step, and which of them the target verifies.

A policy is the one thing an A/B switches. Each is a few lines; the mathematics stands in `avlab.speculation`.
"""

from dataclasses import dataclass

import numpy as np

from avlab.policies import Arm, PolicyError
from avlab.speculation.allocation import allocate
from avlab.speculation.budget import choose_budget, expected_tokens, offered, survival
from avlab.speculation.costs import CostTable
from avlab.speculation.estimator import OnlineEstimator, Refit
from avlab.speculation.features import probability


@dataclass(slots=True)
class Offer:
    """What a policy decides on. B requests are ready to draft; the pass also holds other tokens.

    scheduled: [B] the most drafts each request may be offered. earlier: [B, K] estimates of the step before.
    emitting: requests that will emit a token this step. other_tokens: prompt and newest tokens of the pass.
    """

    scheduled: np.ndarray
    earlier: np.ndarray
    requests: int
    emitting: int
    other_tokens: int


@dataclass(slots=True)
class Admission:
    """admitted: [B] prefix lengths. budget: drafts meant to be verified. The expectations are nan without estimates."""

    admitted: np.ndarray
    budget: int
    expected_tokens: float = float("nan")
    expected_ms: float = float("nan")


class FixedLength:
    """`fixed:k` drafts and verifies k; `none` is `fixed:0`; `verify:k` drafts K and verifies k."""

    def __init__(self, arm: Arm, K: int):
        self.arm = arm
        self.verified = arm.k
        self.drafted = {"none": 0, "fixed": arm.k, "verify": K}[arm.kind]

    def depth(self, offer: Offer) -> int:
        return self.drafted

    def estimate(self, feature: np.ndarray, head: np.ndarray | None) -> None:
        return None

    def admit(self, estimate: np.ndarray | None, offer: Offer) -> Admission:
        admitted = np.minimum(offer.scheduled, self.verified)
        return Admission(admitted, int(admitted.sum()))

    def observe(
        self, feature: np.ndarray, accepted: np.ndarray, admitted: np.ndarray, limit: np.ndarray
    ) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None


class AdaptiveVerification:
    """vLLM's rule: the budget from the estimates of the step before, its slots by this step's estimates.

    Estimates come from the online estimator, a confidence head, or the maximum probability as it is.
    """

    def __init__(self, arm: Arm, K: int, costs: CostTable, interval: int):
        self.arm, self.K, self.costs = arm, K, costs
        self.estimator = OnlineEstimator(K, interval=interval) if arm.learns else None

    def depth(self, offer: Offer) -> int:
        return self.K

    def estimate(self, feature: np.ndarray, head: np.ndarray | None) -> np.ndarray | None:
        """[B, K] acceptance estimates of this step's drafts."""
        if self.arm.source == "head":
            return head
        return probability(feature) if self.estimator is None else self.estimator.predict(feature)

    def admit(self, estimate: np.ndarray | None, offer: Offer) -> Admission:
        assert estimate is not None  # an adaptive arm always drafts, and drafts always come with estimates
        draft, verify = self.costs.draft_at(self.K), self.costs.verify
        before = offered(survival(offer.earlier), offer.scheduled)
        requests, others = offer.requests, offer.other_tokens
        budget = choose_budget(before, draft, verify, requests, offer.emitting, others)
        expected = float(expected_tokens(before, offer.emitting)[budget])
        cost = float(draft[requests] + verify[others + budget])
        return Admission(allocate(survival(estimate), offer.scheduled, budget), budget, expected, cost)

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

    def __init__(self, policy: "Policy"):
        self.arm, self.depth = policy.arm, policy.depth
        self.estimate, self.admit = policy.estimate, policy.admit

    def observe(
        self, feature: np.ndarray, accepted: np.ndarray, admitted: np.ndarray, limit: np.ndarray
    ) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None


class FullVerification:
    """A window: drafts K and verifies all of them, while another policy predicts and, if wanted, learns."""

    def __init__(self, policy: "Policy", K: int):
        self.arm, self.K = policy.arm, K
        self.estimate, self.observe, self.end_step = policy.estimate, policy.observe, policy.end_step

    def depth(self, offer: Offer) -> int:
        return self.K

    def admit(self, estimate: np.ndarray | None, offer: Offer) -> Admission:
        return Admission(offer.scheduled, int(offer.scheduled.sum()))


Policy = FixedLength | AdaptiveVerification | Untaught | FullVerification


def make_policy(arm: Arm, K: int, costs: CostTable, interval: int) -> Policy:
    """The policy an arm names. Raises PolicyError for one this drafter cannot serve."""
    if K == 0 and arm.kind != "none":
        raise PolicyError(
            f"policy {arm} needs a drafter and this run has none: give --drafter, or use --policy none."
        )
    if arm.k > K:
        raise PolicyError(f"policy {arm} asks for {arm.k} drafts; this drafter makes at most {K}.")
    if arm.kind != "adaptive":
        return FixedLength(arm, K)
    if arm.depth or arm.explore:
        raise PolicyError(f"policy {arm}: +depth and +explore are not served yet; use adaptive:{arm.source}.")
    return AdaptiveVerification(arm, K, costs, interval)
