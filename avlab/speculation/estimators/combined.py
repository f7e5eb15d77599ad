"""The log-odds of the maximum and the confidence head together."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.fading_regression import FadingRegression
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import COLD_START_INTERCEPT, COLD_START_SLOPE, Refit


@register
class CombinedEstimator(Estimator):
    """Two slopes and K intercepts, with sums that fade. It begins with half of each alone."""

    name: ClassVar[str] = "combined"
    title: ClassVar[str] = "log-odds of the maximum with the head"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds", "head_log_odds")
    learns: ClassVar[bool] = True

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.interval, self.steps = interval, 0
        self.fit = FadingRegression(
            np.array([COLD_START_SLOPE / 2, 0.5]), np.full(K, COLD_START_INTERCEPT / 2)
        )

    def predict(self, features: Features) -> np.ndarray:
        return self.fit.predict(features.only(self.reads).values)

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        _, position = labelled = labels.labelled.nonzero()
        self.fit.add(
            features.only(self.reads).values[labelled], estimate[labelled], labels.label[labelled], position
        )

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval == 0:
            self.fit.refit()
        return None
