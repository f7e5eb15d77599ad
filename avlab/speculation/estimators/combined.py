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
        self._last: tuple[Features | None, np.ndarray] = None, np.empty(0)

    def predict(self, features: Features) -> np.ndarray:
        return self.fit.predict(self._columns(features))

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        slots = labels.labelled.ravel().nonzero()[0]
        columns = self._columns(features).reshape(-1, len(self.reads)).take(slots, axis=0)
        label, chance = labels.label.ravel().take(slots), estimate.ravel().take(slots)
        self.fit.add(columns, chance, label, slots % labels.label.shape[1])

    def _columns(self, features: Features) -> np.ndarray:
        """What it reads, [B, K, 2]; put together once for the drafts of a step."""
        if features is not self._last[0]:
            columns = np.empty((*features.values.shape[:2], len(self.reads)))
            for place, name in enumerate(self.reads):
                columns[..., place] = features[name]
            self._last = features, columns
        return self._last[1]

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval == 0:
            self.fit.refit()
        return None
