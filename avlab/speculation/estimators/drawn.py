"""The drawn token's own probability: to be judged, never to be served by."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import Estimator, register
from avlab.speculation.features import Features


@register
class DrawnEstimator(Estimator):
    """Unsound: whether a slot is verified would depend on the token drawn there, and the output would be bent."""

    name: ClassVar[str] = "drawn"
    title: ClassVar[str] = "the drawn token's probability (UNSOUND)"
    reads: ClassVar[tuple[str, ...]] = ("drawn_log_odds",)

    def predict(self, features: Features) -> np.ndarray:
        return features["drawn_log_odds"]
