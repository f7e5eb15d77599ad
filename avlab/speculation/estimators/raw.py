"""The draft row's maximum probability, as it is."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import Estimator, register
from avlab.speculation.features import Features


@register
class RawEstimator(Estimator):
    """What a drafter says of itself, uncorrected."""

    name: ClassVar[str] = "raw"
    title: ClassVar[str] = "raw maximum probability"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)

    def predict(self, features: Features) -> np.ndarray:
        return features["max_log_odds"]
