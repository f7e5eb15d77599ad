"""vLLM's online estimator with its steps cut instead of dropped: the remedy for a slope that is stuck."""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import register
from avlab.speculation.estimators.online import OnlineEstimator
from avlab.speculation.regression import Coefficients, RoundStatistics, intercept_steps, slope_step


@register
class CutEstimator(OnlineEstimator):
    """The same sums and the same steps, but a slope moves by -w/2 to w at once, and an intercept by at most 1."""

    name: ClassVar[str] = "cut"
    title: ClassVar[str] = "online estimator, steps cut"

    def fit(self, before: Coefficients, statistics: RoundStatistics) -> Coefficients:
        step = slope_step(statistics)
        step = float(np.clip(step, -before.slope / 2, before.slope)) if np.isfinite(step) else 0.0
        shift = np.clip(intercept_steps(statistics, step), -1.0, 1.0)
        return Coefficients(before.slope + step, before.intercepts + shift)
