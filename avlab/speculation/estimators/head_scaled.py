"""The confidence head, recalibrated while it serves by one temperature a position.

Temperature scaling divides log-odds by a number (Guo et al. 2017); it is sequential where each position is fitted on
labels of drafts that were accepted so far, as labels here always are.
"""

from typing import ClassVar

import numpy as np

from avlab.speculation.counts import CENTRES, FadingCounts
from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.features import Features, probability
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit

PRIOR = 64.0  # labels that temperature 1 counts as
LIMITS = 1 / 8, 8.0  # of the factor, 1 / temperature
NEWTON_STEPS = 6


@register
class HeadScaledEstimator(Estimator):
    """K factors of the head's log-odds, from counts that fade. It can sharpen or flatten the head, not shift it."""

    name: ClassVar[str] = "head-scaled"
    title: ClassVar[str] = "confidence head, a temperature for each position"
    reads: ClassVar[tuple[str, ...]] = ("head_log_odds",)
    learns: ClassVar[bool] = True

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.interval, self.steps = interval, 0
        self.factors = np.ones(K)
        self.counts = FadingCounts(K)

    def predict(self, features: Features) -> np.ndarray:
        return self.factors * features["head_log_odds"]

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        self.counts.add(features["head_log_odds"], *labels)

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval == 0:
            self.counts.close_round()
            self.factors = self._fitted()
        return None

    def _fitted(self) -> np.ndarray:
        """Newton's method, all positions side by side. The prior is as curved as `PRIOR` labels are at 1."""
        seen, accepted = self.counts.seen, self.counts.accepted
        certainty = probability(CENTRES)
        spread = (seen @ (certainty * (1 - certainty) * CENTRES**2)) / np.maximum(seen.sum(axis=1), 1.0)
        prior = PRIOR * np.maximum(spread, 1e-3)
        factors = self.factors
        for _ in range(NEWTON_STEPS):
            p = probability(factors[:, None] * CENTRES)
            slope = (accepted - seen * p) @ CENTRES - prior * (factors - 1.0)
            curvature = (seen * p * (1 - p)) @ CENTRES**2 + prior
            step = np.clip(slope / curvature, -factors / 2, factors)
            factors = np.clip(factors + step, *LIMITS)
        return factors
