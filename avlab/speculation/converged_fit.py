"""Logistic regressions of binned counts, fitted until they stand still."""

from __future__ import annotations

import numpy as np

from avlab.speculation.counts import CENTRES
from avlab.speculation.features import probability
from avlab.speculation.regression import COLD_START_INTERCEPT, COLD_START_SLOPE, Coefficients

PRIOR = 1.0  # precision of the prior at the cold start, for slope and intercepts alike: weak
MOST_STEPS = 12
MOST_SEPARATE_STEPS = 3  # a refit goes on where the last one ended
STEEPEST = 4.0  # of a slope; the largest published is 0.83
STILL = 1e-6


def _loss(slope, intercepts: np.ndarray, seen: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Negative log-likelihood by position, [K]; slope: a number, or one a position [K, 1]."""
    x = slope * CENTRES + intercepts[:, None]
    return (seen * np.logaddexp(0.0, x) - accepted * x).sum(axis=1)


def shared_slope(start: Coefficients, seen: np.ndarray, accepted: np.ndarray) -> Coefficients:
    """The K + 1 coefficients of most posterior weight, by Newton's method with halved steps from `start`.

    seen, accepted: [K, BINS]. The slope stays in [0, 4].
    """

    def worth(slope: float, intercepts: np.ndarray) -> float:
        far = (slope - COLD_START_SLOPE) ** 2 + ((intercepts - COLD_START_INTERCEPT) ** 2).sum()
        return float(_loss(slope, intercepts, seen, accepted).sum() + PRIOR / 2 * far)

    slope, intercepts = start.slope, start.intercepts
    now = worth(slope, intercepts)
    for _ in range(MOST_STEPS):
        p = probability(slope * CENTRES + intercepts[:, None])
        curvature, residual = seen * p * (1.0 - p), accepted - seen * p
        a = (curvature @ (CENTRES * CENTRES)).sum() + PRIOR
        b, c = curvature @ CENTRES, curvature.sum(axis=1) + PRIOR
        g = float((residual @ CENTRES).sum() - PRIOR * (slope - COLD_START_SLOPE))
        h = residual.sum(axis=1) - PRIOR * (intercepts - COLD_START_INTERCEPT)
        slope_step = (g - (b * h / c).sum()) / (a - (b * b / c).sum())
        share = 1.0
        while share > 1e-3:
            new = float(np.clip(slope + share * slope_step, 0.0, STEEPEST))
            found = intercepts + share * (h - b * slope_step) / c
            if (then := worth(new, found)) < now:
                break
            share /= 2
        else:
            break
        still = now - then < STILL * (1.0 + abs(now))
        slope, intercepts, now = new, found, then
        if still:
            break
    return Coefficients(slope, intercepts)


def separate_slopes(
    start: tuple[np.ndarray, np.ndarray],
    pooled: Coefficients,
    seen: np.ndarray,
    accepted: np.ndarray,
    weight: float,
) -> tuple[np.ndarray, np.ndarray]:
    """A slope and an intercept a position, [K] each, by damped Newton from `start`.

    weight: precision of the prior at the pooled fit, which carries positions with few labels.
    """

    def worth(slopes: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        far = (slopes - pooled.slope) ** 2 + (intercepts - pooled.intercepts) ** 2
        return _loss(slopes[:, None], intercepts, seen, accepted) + weight / 2 * far

    slopes, intercepts = start
    now = worth(slopes, intercepts)
    for _ in range(MOST_SEPARATE_STEPS):
        p = probability(slopes[:, None] * CENTRES + intercepts[:, None])
        curvature, residual = seen * p * (1.0 - p), accepted - seen * p
        a, b, c = (
            curvature @ (CENTRES * CENTRES) + weight,
            curvature @ CENTRES,
            curvature.sum(axis=1) + weight,
        )
        g = residual @ CENTRES - weight * (slopes - pooled.slope)
        h = residual.sum(axis=1) - weight * (intercepts - pooled.intercepts)
        whole = a * c - b * b
        step, shift = (c * g - b * h) / whole, (a * h - b * g) / whole
        share, before = np.ones(len(slopes)), now
        for _ in range(4):
            new, found = np.clip(slopes + share * step, 0.0, STEEPEST), intercepts + share * shift
            then = worth(new, found)
            if (then <= now).all():
                break
            share = np.where(then <= now, share, share / 2)
        better = then <= now
        slopes, intercepts = np.where(better, new, slopes), np.where(better, found, intercepts)
        now = np.where(better, then, now)
        if (before - now).sum() < STILL * (1.0 + np.abs(now).sum()):
            break
    return slopes, intercepts
