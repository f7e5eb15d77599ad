"""The logistic regression of acceptance on a feature: one slope, K intercepts, fitted round by round.

A round's data are kept as 6K sums, whatever the traffic; at its end one damped Newton step moves the coefficients.
Source of the formulas: vLLM 0.33, `acceptance_estimator.py`; sums here are float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avlab.speculation.features import probability

COLD_START_SLOPE = 0.5  # vLLM's: the median of what it found online on five models
COLD_START_INTERCEPT = -0.2
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
        f = np.where(labelled, feature, 0.0).astype(np.float64, copy=False)
        p = np.where(labelled, estimate, 0.0).astype(np.float64, copy=False)
        rows = np.empty((6, *f.shape))
        np.multiply(p, 1.0 - p, out=rows[2])
        np.multiply(rows[2], f, out=rows[1])
        np.multiply(rows[1], f, out=rows[0])
        rows[4] = np.where(labelled, label - p, 0.0)
        np.multiply(rows[4], f, out=rows[3])
        rows[5] = labelled
        return cls(np.add.reduce(rows, axis=1))

    def __add__(self, other: RoundStatistics) -> RoundStatistics:
        return RoundStatistics(self.sums + other.sums)

    @property
    def observations(self) -> np.ndarray:
        """Labelled slots by position, [K]."""
        return self.sums[5]


def slope_step(statistics: RoundStatistics) -> float:
    """The damped Newton step that a round's statistics ask of the slope; may be nan, or make it negative.

    The curvature matrix is an arrowhead (one slope row, a diagonal of intercepts), so its inverse is closed.
    """
    A, B, C, G, H, n = statistics.sums
    total = n.sum()
    with np.errstate(all="ignore"):
        c = C + RIDGE
        step = (G.sum() - (B * H / c).sum()) / (A.sum() + RIDGE - (B * B / c).sum())
        return float(step * (total / (total + DAMPING)))


def intercept_steps(statistics: RoundStatistics, slope_step: float) -> np.ndarray:
    """The damped Newton steps of the intercepts, [K], beside this step of the slope; 0 where not finite."""
    _, B, C, _, H, n = statistics.sums
    with np.errstate(all="ignore"):
        steps = (H - B * slope_step) / (C + RIDGE) * (n / (n + DAMPING))
    return np.where(np.isfinite(steps), steps, 0.0)


def refit(coefficients: Coefficients, statistics: RoundStatistics) -> Coefficients:
    """vLLM's refit: one damped Newton step from a round's statistics; a position without labels keeps its intercept.

    A slope step that is not finite, or that would make the slope negative, is dropped; so is an intercept
    step that is not finite.
    """
    step = slope_step(statistics)
    if not np.isfinite(step) or coefficients.slope + step < 0:
        step = 0.0
    return Coefficients(
        slope=float(coefficients.slope + step),
        intercepts=coefficients.intercepts + intercept_steps(statistics, step),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Refit:
    """What one refit did: its number from 1, the step it closed, coefficients before and after, its data.

    statistics: of the round, where the estimator keeps its data in that form.
    """

    number: int
    step: int
    before: Coefficients
    after: Coefficients
    statistics: RoundStatistics | None = None
