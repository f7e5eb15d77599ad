"""A bandit over lengths: `bandit` drafts and verifies one length for all, the one with the best upper bound.

UCB on tokens per millisecond, one bandit for each power of two of requests. Source: BanditSpec (arXiv 2505.15141),
UCBSpec: mean + sqrt(6 log(plays) / plays of the length); Nightjar (arXiv 2512.22420) adds that the best length depends
on the load and that 0 is a length. Rewards are divided by the largest mean so far, since the bound is for [0, 1]. Costs
are the table's. Sound: the length follows from earlier steps.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.arm import Arm, Written, register
from avlab.policies.base import PolicyContext
from avlab.policies.fixed import FixedLength
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit

WIDTH = 6.0  # UCBSpec's


@register
@dataclass(frozen=True, slots=True)
class Bandit(Arm):
    kinds: ClassVar[tuple[str, ...]] = ("bandit",)

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        return None if written.value is not None or written.options else cls()

    def __str__(self) -> str:
        return "bandit"

    def make(self, context: PolicyContext) -> "BanditOverLengths":
        return BanditOverLengths(self, context)


class BanditOverLengths(FixedLength):
    """As a fixed length, chosen anew in every step. Steps that also compute prompts teach nothing."""

    def __init__(self, arm: Arm, context: PolicyContext):
        super().__init__(arm, 0, 0)
        self.costs, self.K = context.costs, context.K
        self.plays: dict[
            int, np.ndarray
        ] = {}  # by power of two of requests: plays and mean reward, [2, K + 1]
        self.offer: Offer | None = None
        self.accepted = self.tokens = 0

    def decide(self, offer: Offer) -> Decision:
        known = self.plays.setdefault(offer.requests.bit_length(), np.zeros((2, self.K + 1)))
        self.offer, self.accepted = offer, 0
        self.drafted = self.verified = self._best(known)
        decision = super().decide(offer)
        self.tokens = decision.budget
        return decision

    def _best(self, known: np.ndarray) -> int:
        plays, means = known
        if not plays.all():
            return int(plays.argmin())
        return int((means / means.max() + np.sqrt(WIDTH * np.log(plays.sum()) / plays)).argmax())

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        self.accepted = int(np.where(labels.labelled, labels.label, 0.0).sum())

    def end_step(self) -> Refit | None:
        offer, self.offer = self.offer, None
        if offer is not None and offer.other_tokens == offer.requests:
            milliseconds = self.costs.step(offer.requests, self.drafted, offer.requests + self.tokens)
            known = self.plays[offer.requests.bit_length()]
            known[0, self.drafted] += 1
            reward = (offer.requests + self.accepted) / milliseconds
            known[1, self.drafted] += (reward - known[1, self.drafted]) / known[0, self.drafted]
        return None
