"""The confidence head, recalibrated while it serves: acceptance as a rising curve of it."""

from typing import ClassVar

from avlab.speculation.estimators.base import register
from avlab.speculation.estimators.monotone import MonotoneEstimator


@register
class HeadMonotoneEstimator(MonotoneEstimator):
    """As `monotone`, of the head's log-odds; it begins with the head as it is."""

    name: ClassVar[str] = "head-monotone"
    title: ClassVar[str] = "rising curve of the head"
    reads: ClassVar[tuple[str, ...]] = ("head_log_odds",)
    cold_start: ClassVar[tuple[float, float]] = (1.0, 0.0)
