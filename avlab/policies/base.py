"""What the engine asks of a policy: how many drafts to make this step, and which of them the target verifies.

A policy is the one thing an A/B switches. It speaks three times in a step: `decide` before anything is drafted, from
what earlier steps and coins say; `estimate` once the draft is there; `admit`, to say which slots are verified. The
mathematics stands in `avlab.speculation.decision`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from avlab.policies.arm import Arm, PolicyError
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.measured_costs import MeasuredCosts
from avlab.speculation.regression import Refit


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


@dataclass(frozen=True, slots=True, eq=False)
class PolicyContext:
    """What a policy is made from.

    K: the most positions that the drafter drafts; 0 without one. costs: of a step, by table. refit_interval: steps
    between an estimator's refits. new_request: what a slot without an earlier estimate counts as, "one" or
    "running-mean". measured: costs as they are, by which `+depth` and `+stop` decide; else by the table.
    """

    K: int
    costs: CostTable
    refit_interval: int = REFIT_INTERVAL
    new_request: str = "one"
    measured: CostTable | MeasuredCosts | None = None


class Policy(Protocol):
    """Decides for B requests and K positions. One step calls the methods in this order, `admit` and `decide` only
    where requests are ready to draft, `estimate` and `observe` only where something was drafted.
    """

    @property
    def arm(self) -> Arm:
        """The arm it was made from, as steps and blocks name it."""
        ...

    @property
    def estimator(self) -> Estimator | None:
        """What it estimates with, and teaches; None for a policy that needs no estimates."""
        ...

    def decide(self, offer: Offer) -> Decision:
        """Settle depth, budget and exploration of the step, before anything is drafted."""
        ...

    def estimate(self, features: Features) -> Estimates | None:
        """Acceptance estimates of this step's drafts, nan where features are; None without an estimator."""
        ...

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        """Prefix lengths. Without estimates of an adaptive policy nothing was drafted, and nothing is admitted."""
        ...

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        """Learn from the labels of a verification, with the features and estimates that it was decided by."""
        ...

    def end_step(self) -> Refit | None:
        """Count a step, also one without drafts; what the estimator's refit did, if there was one."""
        ...


def make_policy(arm: Arm, context: PolicyContext) -> Policy:
    """A new policy of an arm. Raises PolicyError for one that this drafter cannot serve."""
    K = context.K
    if K == 0 and arm.drafts:
        raise PolicyError(
            f"policy {arm} needs a drafter and this run has none: give --drafter, or use --policy none."
        )
    if arm.verified is not None and arm.verified > K:
        raise PolicyError(f"policy {arm} asks for {arm.verified} drafts; this drafter makes at most {K}.")
    return arm.make(context)
