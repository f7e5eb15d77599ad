"""A drafter's confidence head, as it is."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import Estimator, register
from avlab.speculation.features import Features


@register
class HeadEstimator(Estimator):
    """What the head was trained to say; drafters without one have no such feature."""

    name: ClassVar[str] = "head"
    title: ClassVar[str] = "confidence head"
    reads: ClassVar[tuple[str, ...]] = ("head_log_odds",)

    def predict(self, features: Features) -> np.ndarray:
        return features["head_log_odds"]
