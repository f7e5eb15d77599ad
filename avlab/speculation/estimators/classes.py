"""One slope, and intercepts for each class of requests.

Requests whose sampling the drafter does not know (penalties, forbidden tokens) would else move the coefficients of all
others. vLLM's pull request #57533 leaves their labels out; here they teach the intercepts of their own class, so that
they are estimated too. A class is what `Features.classes` names, and is known before any draft.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.fading_regression import FadingRegression
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import COLD_START_INTERCEPT, COLD_START_SLOPE, Refit

MOST = 16  # classes; those met later share the last one


@register
class ClassesEstimator(Estimator):
    """1 + 16 K coefficients. A class without labels so far is estimated by the mean of the others."""

    name: ClassVar[str] = "classes"
    title: ClassVar[str] = "intercepts for each class of requests"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)
    learns: ClassVar[bool] = True

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        self.K, self.interval, self.steps = K, interval, 0
        self.numbers: dict[str, int] = {}
        self._positions = np.arange(K)
        self._last: tuple[Sequence[str] | np.ndarray | None, np.ndarray] = None, self._positions
        self.labels = np.zeros(MOST)  # so far, by class
        self.fit = FadingRegression(np.array([COLD_START_SLOPE]), np.full(MOST * K, COLD_START_INTERCEPT))

    def predict(self, features: Features) -> np.ndarray:
        return self.fit.predict(features.only(self.reads).values, self._where(features))

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        labelled, where = labels.labelled, self._where(features)
        self.fit.add(
            features.only(self.reads).values[labelled],
            estimate[labelled],
            labels.label[labelled],
            where[labelled],
        )

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval == 0:
            by_class = self.fit.labels.reshape(MOST, self.K).sum(axis=1)
            self.fit.refit()
            self.labels += by_class
            if (known := self.labels > 0).any():
                intercepts = self.fit.intercepts.reshape(MOST, self.K)
                intercepts[~known] = np.average(intercepts[known], axis=0, weights=self.labels[known])
        return None

    def _where(self, features: Features) -> np.ndarray:
        """The intercept of each slot, [B, K]; found once for the drafts of a step."""
        classes = features.classes
        if classes is None:
            return np.broadcast_to(self._positions, features.values.shape[:2])
        if classes is not self._last[0]:
            number = np.array([self._number(each) for each in classes], dtype=np.intp)
            self._last = classes, number[:, None] * self.K + self._positions
        return self._last[1]

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = min(len(self.numbers), MOST - 1)
        return self.numbers[name]
