"""Policies around another policy: it decides and is not taught, or it is taught while everything is verified."""

from copy import copy

import numpy as np

from avlab.policies.arm import Arm
from avlab.policies.base import Admission, Policy
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators.base import Estimator
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit


class Frozen:
    """Decides as another policy does, and leaves what that one has learnt, and its steps to a refit, as they are."""

    def __init__(self, policy: Policy):
        self.policy = copy(policy)  # what deciding changes, the running mean, changes here alone

    @property
    def arm(self) -> Arm:
        return self.policy.arm

    @property
    def estimator(self) -> Estimator | None:
        return self.policy.estimator

    def decide(self, offer: Offer) -> Decision:
        return self.policy.decide(offer)

    def estimate(self, features: Features) -> Estimates | None:
        return self.policy.estimate(features)

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        return self.policy.admit(decision, estimates, offer)

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None


class FullVerification:
    """A window: drafts K and verifies all of them, while another policy predicts and, unless `Frozen`, learns."""

    def __init__(self, policy: Policy, K: int):
        self.policy, self.K = policy, K

    @property
    def arm(self) -> Arm:
        return self.policy.arm

    @property
    def estimator(self) -> Estimator | None:
        return self.policy.estimator

    def decide(self, offer: Offer) -> Decision:
        return Decision(
            self.K, self.K, int(offer.scheduled.sum()), np.zeros(len(offer.scheduled), dtype=bool)
        )

    def estimate(self, features: Features) -> Estimates | None:
        return self.policy.estimate(features)

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        return Admission(offer.scheduled, decision.budget)

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        self.policy.observe(features, estimates, labels)

    def end_step(self) -> Refit | None:
        return self.policy.end_step()
