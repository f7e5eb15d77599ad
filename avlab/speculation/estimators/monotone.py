"""Acceptance as a rising curve of one feature, a curve for each position."""

from typing import ClassVar

import numpy as np

from avlab.speculation.counts import BINS, CENTRES, FadingCounts, bin_of
from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.features import Features, log_odds, probability
from avlab.speculation.isotonic import isotonic
from avlab.speculation.labels import Labels
from avlab.speculation.regression import COLD_START_INTERCEPT, COLD_START_SLOPE, Refit

GROUPS = 24  # of a curve, of equal mass
COLD_START_WEIGHT = 4.0  # labels that the cold start counts as, in each group of the pooled curve
POOLING = 20.0  # labels that the pooled curve counts as, in each group of a position


def rising_curves(seen: np.ndarray, accepted: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Acceptance by position and bin as log-odds, [K, BINS], from counts [K, BINS].

    Bins are merged to groups of equal mass over all positions. The pooled curve leans on `prior`, the acceptance
    [BINS] believed in without labels, and a position's curve on the pooled one; both are made to rise. Between the
    groups' mean features lie straight lines in log-odds.
    """
    everything = seen.sum(axis=0)
    if not everything.any():
        return np.broadcast_to(log_odds(prior), seen.shape).copy()
    middle = np.cumsum(everything) - everything / 2
    group = np.minimum((middle * GROUPS / everything.sum()).astype(np.intp), GROUPS - 1)
    begins = np.flatnonzero(np.diff(group, prepend=-1))  # [G] first bins of the groups that are there

    def by_group(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, begins, axis=-1)

    mass, hits = by_group(seen), by_group(accepted)  # [K, G]
    weight = everything + 1e-9
    feature, believed = (by_group(weight * x) / by_group(weight) for x in (CENTRES, prior))
    whole = by_group(everything) + COLD_START_WEIGHT
    pooled = isotonic((hits.sum(axis=0) + COLD_START_WEIGHT * believed) / whole, whole)
    curves = isotonic((hits + POOLING * pooled) / (mass + POOLING), mass + POOLING)
    return np.array(
        [np.interp(CENTRES, feature, curve) for curve in log_odds(np.clip(curves, 1e-4, 1 - 1e-4))]
    )


@register
class MonotoneEstimator(Estimator):
    """A table by position and bin of the feature, learnt from counts that fade. Any rising curve can be learnt."""

    name: ClassVar[str] = "monotone"
    title: ClassVar[str] = "rising curve of the log-odds"
    reads: ClassVar[tuple[str, ...]] = ("max_log_odds",)
    learns: ClassVar[bool] = True
    cold_start: ClassVar[tuple[float, float]] = (COLD_START_SLOPE, COLD_START_INTERCEPT)

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        slope, intercept = self.cold_start
        self.interval, self.steps = interval, 0
        self.prior = probability(slope * CENTRES + intercept)
        self.counts = FadingCounts(K)
        self.table = rising_curves(self.counts.seen, self.counts.accepted, self.prior)
        self._first = np.arange(K) * BINS

    def predict(self, features: Features) -> np.ndarray:
        feature = features[self.reads[0]]
        return self.table.take(bin_of(feature) + self._first) + 0.0 * feature  # nan stays nan

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        self.counts.add(features[self.reads[0]], *labels)

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % self.interval == 0:
            self.counts.close_round()
            self.table = rising_curves(self.counts.seen, self.counts.accepted, self.prior)
        return None
