"""The K + 1 coefficients fitted until they stand still, on counts that fade."""

from typing import ClassVar

import numpy as np

from avlab.speculation.converged_fit import shared_slope
from avlab.speculation.counts import FadingCounts
from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Coefficients, Refit


@register
class ConvergedEstimator(Estimator):
    """vLLM's model without its single step: what it would settle at, if its steps always led there."""

    name: ClassVar[str] = "converged"
    title: ClassVar[str] = "online estimator, fitted to convergence"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)
    learns: ClassVar[bool] = True
    coefficients: Coefficients

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.interval = interval
        self.coefficients = Coefficients.cold_start(K)
        self.counts = FadingCounts(K)
        self.steps = self.refits = 0

    def predict(self, features: Features) -> np.ndarray:
        return self.coefficients.predict_log_odds(features["max_log_odds"])

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        self.counts.add(features["max_log_odds"], *labels)

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval:
            return None
        self.refits += 1
        self.counts.close_round()
        before = self.coefficients
        self.coefficients = shared_slope(before, self.counts.seen, self.counts.accepted)
        return Refit(self.refits, self.steps, before, self.coefficients)
