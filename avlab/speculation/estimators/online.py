"""vLLM's online estimator: a logistic regression that learns from the accept and reject decisions of serving."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Coefficients, Refit, RoundStatistics, refit


@register
class OnlineEstimator(Estimator):
    """Coefficients in force, the open round's statistics, and a step counter that closes the round.

    Every step counts towards the interval, with labels or without.
    """

    name: ClassVar[str] = "online"
    title: ClassVar[str] = "online estimator"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)
    learns: ClassVar[bool] = True
    coefficients: Coefficients

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.K, self.interval = K, interval
        self.coefficients = Coefficients.cold_start(K)
        self.statistics = RoundStatistics.zero(K)
        self.steps = self.refits = 0

    def predict(self, features: Features) -> np.ndarray:
        return self.coefficients.predict_log_odds(features["max_log_odds"])

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        """Add the labelled slots to the round's statistics; estimate: by the coefficients in force."""
        self.statistics += RoundStatistics.of(features["max_log_odds"], estimate, *labels)

    def end_step(self) -> Refit | None:
        """Count a step; at the end of a round refit, zero the statistics, and say what changed."""
        self.steps += 1
        if self.steps % self.interval:
            return None
        self.refits += 1
        before, statistics = self.coefficients, self.statistics
        self.coefficients = self.fit(before, statistics)
        self.statistics = RoundStatistics.zero(self.K)
        return Refit(self.refits, self.steps, before, self.coefficients, statistics)

    def fit(self, before: Coefficients, statistics: RoundStatistics) -> Coefficients:
        """The coefficients after a round."""
        return refit(before, statistics)
