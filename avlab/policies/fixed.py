"""Fixed lengths: `fixed:k` drafts and verifies k, `none` is `fixed:0`, `verify:k` drafts K and verifies k."""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from avlab.policies.arm import Arm, PolicyError, Written, register
from avlab.policies.base import Admission, PolicyContext
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators.base import Estimator
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit

_NUMBER = re.compile(r"[0-9]{1,4}")


@register
@dataclass(frozen=True, slots=True)
class Fixed(Arm):
    """k: draft tokens verified. drafts_all: K positions are drafted whatever k is (`verify:k`)."""

    kinds: ClassVar[tuple[str, ...]] = ("fixed", "verify", "none")

    k: int
    drafts_all: bool = False

    @classmethod
    def forms(cls) -> tuple[str, ...]:
        return "fixed:k", "verify:k", "none"

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        kind, value = written.kind, written.value
        if written.options:
            return None
        if kind == "none":
            return NONE if value is None else None
        if not _NUMBER.fullmatch(value or ""):
            return None
        k = int(value or 0)
        if K is not None and k > K:
            raise PolicyError(
                f"policy {written.text!r} asks for {k} draft token{'s' * (k != 1)}; the drafter makes K = {K}."
            )
        return cls(k, drafts_all=kind == "verify")

    def __str__(self) -> str:
        if self.drafts_all:
            return f"verify:{self.k}"
        return f"fixed:{self.k}" if self.k else "none"

    @property
    def drafted(self) -> int | None:
        return None if self.drafts_all else self.k

    @property
    def verified(self) -> int:
        return self.k

    def make(self, context: PolicyContext) -> "FixedLength":
        return FixedLength(self, context.K if self.drafts_all else self.k, self.k)


NONE = Fixed(0)  # no drafts


class FixedLength:
    """Drafts so many positions and verifies so many draft tokens of every request, in every step."""

    estimator: Estimator | None = None

    def __init__(self, arm: Arm, drafted: int, verified: int):
        self.arm, self.drafted, self.verified = arm, drafted, verified

    def decide(self, offer: Offer) -> Decision:
        budget = int(np.minimum(offer.scheduled, self.verified).sum())
        return Decision(self.drafted, self.drafted, budget, np.zeros(len(offer.scheduled), dtype=bool))

    def estimate(self, features: Features) -> None:
        """None: the length is fixed."""

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        return Admission(np.minimum(offer.scheduled, self.verified), decision.budget)

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None
