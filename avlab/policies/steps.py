"""SGLang's adaptive steps: `steps` drafts and verifies one length for all, moved by a mean of accepted lengths.

The lengths it may take follow the number of requests. Source: sgl-project/sglang, `speculative/adaptive_spec_params.py`
(`AdaptiveStepSlot`, `DEFAULT_ADAPTIVE_CONFIG`) and `adaptive_step_router.py`. It looks at no estimate and no cost.
Sound: the length follows from earlier steps.
"""

from bisect import bisect_right
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

CANDIDATES = {
    1: (1, 3, 5, 7),
    8: (0, 1, 3),
    32: (0, 1),
    64: (0,),
}  # SGLang's defaults, from so many requests on
DOWN = {1: -0.25}  # added to the threshold for a shorter length; 0 elsewhere
WEIGHT = 0.2  # of a step in the mean
INTERVAL = 5  # steps between two changes
WARM_UP = 10  # steps before the first


@register
@dataclass(frozen=True, slots=True)
class Steps(Arm):
    kinds: ClassVar[tuple[str, ...]] = ("steps",)

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        return None if written.value is not None or written.options else cls()

    def __str__(self) -> str:
        return "steps"

    def make(self, context: PolicyContext) -> "AdaptiveSteps":
        return AdaptiveSteps(self, context)


class Slot:
    """The lengths of one range of loads, and the one in force."""

    def __init__(self, candidates: tuple[int, ...], down: float, first: int):
        self.candidates, self.down = candidates, down
        self.length = first if first in candidates else candidates[len(candidates) // 2]
        self.mean = float(
            self.length - 1
        )  # accepted drafts of a request; begins where the length is just right
        self.steps = 0

    def observe(self, accepted: float | None) -> None:
        """Accepted drafts of a request, mean over a step; None where nothing was drafted."""
        if accepted is not None:
            self.mean += WEIGHT * (accepted - self.mean)
        self.steps += 1
        if self.steps > WARM_UP and (self.steps - WARM_UP) % INTERVAL == 0:
            self.length = self._chosen()

    def _chosen(self) -> int:
        place = before = self.candidates.index(self.length)
        if self.length == 0:  # nothing is known while nothing is drafted: the next length is tried
            length = self.candidates[min(place + 1, len(self.candidates) - 1)]
            if length > 0 and self.mean < 0:
                self.mean = float(length - 1)
            return length
        while place:
            shorter = self.candidates[place - 1]
            if self.mean > (0.5 if shorter == 0 else shorter - 0.5) + self.down:
                break
            place -= 1
        if place == before:
            while place < len(self.candidates) - 1 and self.mean > self.candidates[place] - 0.5:
                place += 1
        return self.candidates[place]


class AdaptiveSteps(FixedLength):
    """As a fixed length, that changes between steps."""

    def __init__(self, arm: Arm, context: PolicyContext):
        super().__init__(arm, 0, 0)
        self.slots = {
            load: Slot(
                tuple(k for k in lengths if k <= context.K) or (context.K,), DOWN.get(load, 0.0), context.K
            )
            for load, lengths in CANDIDATES.items()
        }
        self.loads = sorted(self.slots)
        self.slot: Slot | None = None  # of the step under way
        self.accepted: float | None = None

    def decide(self, offer: Offer) -> Decision:
        self.slot = self.slots[self.loads[max(bisect_right(self.loads, offer.requests) - 1, 0)]]
        self.accepted, self.drafted, self.verified = None, self.slot.length, self.slot.length
        return super().decide(offer)

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        self.accepted = float(np.where(labels.labelled, labels.label, 0.0).sum() / len(labels.label))

    def end_step(self) -> Refit | None:
        if self.slot is not None:
            self.slot.observe(self.accepted)
        self.slot = None
        return None
