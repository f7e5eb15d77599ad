"""A slope and an intercept for each position, fitted until they stand still."""

from typing import ClassVar

import numpy as np

from avlab.speculation.converged_fit import separate_slopes, shared_slope
from avlab.speculation.counts import FadingCounts
from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Coefficients, Refit

POOLING = 20.0  # precision of the prior at the shared slope; chosen on the shipped traces


@register
class SeparateEstimator(Estimator):
    """2K coefficients, held to the K + 1 of `converged` where labels are few."""

    name: ClassVar[str] = "separate"
    title: ClassVar[str] = "a slope for each position"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)
    learns: ClassVar[bool] = True

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.interval, self.steps = interval, 0
        self.pooled = Coefficients.cold_start(K)
        self.slopes, self.intercepts = np.full(K, self.pooled.slope), self.pooled.intercepts
        self.counts = FadingCounts(K)

    def predict(self, features: Features) -> np.ndarray:
        return self.slopes * features["max_log_odds"] + self.intercepts

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        self.counts.add(features["max_log_odds"], *labels)

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval == 0:
            self.counts.close_round()
            seen, accepted = self.counts.seen, self.counts.accepted
            self.pooled = shared_slope(self.pooled, seen, accepted)
            begin = self.slopes, self.intercepts
            self.slopes, self.intercepts = separate_slopes(begin, self.pooled, seen, accepted, POOLING)
        return None
