"""vLLM's model with sums that fade instead of beginning anew, and steps that are cut."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.fading_regression import FadingRegression
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Coefficients, Refit


@register
class ForgettingEstimator(Estimator):
    """One slope and K intercepts, as in `online`; a round's sums weigh less with every refit."""

    name: ClassVar[str] = "forgetting"
    title: ClassVar[str] = "online estimator, sums that fade"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)
    learns: ClassVar[bool] = True
    coefficients: Coefficients

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.interval = interval
        self.coefficients = Coefficients.cold_start(K)
        self.fit = FadingRegression(np.array([self.coefficients.slope]), self.coefficients.intercepts)
        self.steps = self.refits = 0

    def predict(self, features: Features) -> np.ndarray:
        return self.fit.predict(features.only(self.reads).values)

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        _, position = labelled = labels.labelled.nonzero()
        self.fit.add(
            features.only(self.reads).values[labelled], estimate[labelled], labels.label[labelled], position
        )

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval:
            return None
        self.refits += 1
        self.fit.refit()
        before = self.coefficients
        self.coefficients = Coefficients(float(self.fit.slopes[0]), self.fit.intercepts)
        return Refit(self.refits, self.steps, before, self.coefficients)
