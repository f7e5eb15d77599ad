"""The online acceptance estimator: a logistic regression with one slope and K intercepts.

It learns from the accept and reject decisions of normal serving. A round's data are kept as 6K sums, whatever
the traffic; at the end of a round one damped Newton step moves the coefficients and the sums start again.
Source of the formulas: vLLM 0.33, `acceptance_estimator.py`; sums here are float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avlab.speculation.features import probability

COLD_START_SLOPE = 0.5  # vLLM's: the median of what it found online on five models
COLD_START_INTERCEPT = -0.2
REFIT_INTERVAL = 100  # steps, vLLM's
DAMPING = 50.0  # observations at which a step is taken by half, vLLM's
RIDGE = 1e-3  # added to the curvature: damps the step, does not shrink the coefficients


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """Slope (a number) and intercepts [K] of the acceptance estimate sigma(slope * feature + intercept)."""

    slope: float
    intercepts: np.ndarray

    @classmethod
    def cold_start(cls, K: int) -> Coefficients:
        """Where an estimator begins before it has seen a single label."""
        return cls(COLD_START_SLOPE, np.full(K, COLD_START_INTERCEPT))

    def predict_log_odds(self, feature):
        """Features [..., K] to log-odds of acceptance [..., K]."""
        return self.slope * np.asarray(feature) + self.intercepts

    def predict(self, feature):
        """Features [..., K] to acceptance estimates [..., K]: the chance of a slot given its prefix."""
        return probability(self.predict_log_odds(feature))


def labels(accepted, admitted, K: int, limit=None) -> tuple[np.ndarray, np.ndarray]:
    """What one verification tells about each draft slot.

    accepted [B]: draft tokens kept; admitted [B]: draft tokens the target saw; limit [B], optional: slots
    from this depth on carry no label (they lie behind an accepted end-of-text, or beyond the token limit).
    Returns label [B, K] (accepted slots 1.0, others 0.0) and labelled [B, K] (bool): accepted slots
    and the first rejected. Slots behind a rejection, trimmed slots and slots from `limit` on are censored.
    """
    accepted, admitted = np.asarray(accepted)[:, None], np.asarray(admitted)[:, None]
    position = np.arange(K)
    seen = admitted if limit is None else np.minimum(admitted, np.asarray(limit)[:, None])
    return (position < accepted).astype(np.float64), (position <= accepted) & (position < seen)


@dataclass(frozen=True, slots=True, eq=False)
class RoundStatistics:
    """Six sums a position over the labelled slots of a round, float64 [6, K]; adding two rounds merges them.

    Rows A = sum p(1-p) f^2, B = sum p(1-p) f, C = sum p(1-p), G = sum (y-p) f, H = sum (y-p), n = slots.
    """

    sums: np.ndarray

    @classmethod
    def zero(cls, K: int) -> RoundStatistics:
        """The statistics of no slots at all."""
        return cls(np.zeros((6, K)))

    @classmethod
    def of(cls, feature, estimate, label, labelled) -> RoundStatistics:
        """Statistics of slots given as four arrays [B, K]; unlabelled slots may hold anything, even NaN."""
        labelled = np.asarray(labelled, dtype=bool)
        f = np.where(labelled, feature, 0.0).astype(np.float64)
        p = np.where(labelled, estimate, 0.0).astype(np.float64)
        curvature = p * (1.0 - p)
        residual = np.where(labelled, label - p, 0.0)
        rows = np.array([curvature * f * f, curvature * f, curvature, residual * f, residual, labelled])
        return cls(rows.sum(axis=1))

    def __add__(self, other: RoundStatistics) -> RoundStatistics:
        return RoundStatistics(self.sums + other.sums)

    @property
    def observations(self) -> np.ndarray:
        """Labelled slots by position, [K]."""
        return self.sums[5]


def refit(coefficients: Coefficients, statistics: RoundStatistics) -> Coefficients:
    """One damped Newton step from a round's statistics; a position without labels keeps its intercept.

    The curvature matrix is an arrowhead (one slope row, a diagonal of intercepts), so its inverse is closed.
    A slope step that is not finite, or that would make the slope negative, is dropped; so is an intercept
    step that is not finite.
    """
    A, B, C, G, H, n = statistics.sums
    total = n.sum()
    with np.errstate(all="ignore"):
        c = C + RIDGE
        slope_step = (G.sum() - (B * H / c).sum()) / (A.sum() + RIDGE - (B * B / c).sum())
        slope_step *= total / (total + DAMPING)
        if not np.isfinite(slope_step) or coefficients.slope + slope_step < 0:
            slope_step = 0.0
        steps = (H - B * slope_step) / c * (n / (n + DAMPING))
    return Coefficients(
        slope=float(coefficients.slope + slope_step),
        intercepts=coefficients.intercepts + np.where(np.isfinite(steps), steps, 0.0),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Refit:
    """What one refit did: its number from 1, the step it closed, coefficients before and after, its data."""

    number: int
    step: int
    before: Coefficients
    after: Coefficients
    statistics: RoundStatistics


class OnlineEstimator:
    """Coefficients in force, the open round's statistics, and a step counter that closes the round.

    One step is `predict` for the drafts, `observe` once verified (for each batch), `end_step` once.
    Every step counts towards the interval, with labels or without.
    """

    def __init__(self, K: int, coefficients: Coefficients | None = None, interval: int = REFIT_INTERVAL):
        self.K = K
        self.interval = interval
        self.coefficients = coefficients or Coefficients.cold_start(K)
        self.statistics = RoundStatistics.zero(K)
        self.steps = 0
        self.refits = 0

    def predict(self, feature) -> np.ndarray:
        """Features [B, K] to acceptance estimates [B, K], float64."""
        return self.coefficients.predict(np.asarray(feature, dtype=np.float64))

    def observe(self, feature, accepted, admitted, limit=None) -> None:
        """Learn from one verification: features [B, K] as predicted from; the rest [B] as in `labels`."""
        label, labelled = labels(accepted, admitted, self.K, limit)
        self.statistics += RoundStatistics.of(feature, self.predict(feature), label, labelled)

    def end_step(self) -> Refit | None:
        """Count a step; at the end of a round refit, zero the statistics, and say what changed."""
        self.steps += 1
        if self.steps % self.interval:
            return None
        self.refits += 1
        before, statistics = self.coefficients, self.statistics
        self.coefficients = refit(before, statistics)
        self.statistics = RoundStatistics.zero(self.K)
        return Refit(self.refits, self.steps, before, self.coefficients, statistics)
