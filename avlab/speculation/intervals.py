"""Intervals for observed rates."""

import numpy as np


def wilson(positives, count, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Wilson score interval of a rate: (lower, upper), arrays of the arguments' shape; [0, 1] where count is 0.

    z: standard deviations, 1.96 for 95 %. Source: Wilson 1927; unlike the plain normal interval it stays within
    [0, 1] and holds its level for small counts and rates near 0 or 1.
    """
    n = np.asarray(count, dtype=np.float64)
    known = n > 0
    n = np.where(known, n, 1.0)
    rate = np.asarray(positives, dtype=np.float64) / n
    scale = 1 + z * z / n
    middle = (rate + z * z / (2 * n)) / scale
    half = z * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    return np.where(known, np.maximum(middle - half, 0), 0.0), np.where(
        known, np.minimum(middle + half, 1), 1.0
    )


def auc_error(auc, positives, negatives) -> np.ndarray:
    """Standard error of an AUC, an array of the arguments' shape; nan where a class is empty.

    Source: Hanley and McNeil 1982, with their exponential approximation.
    """
    auc, p, n = (np.asarray(each, dtype=np.float64) for each in (auc, positives, negatives))
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (p - 1) * (first - auc**2) + (n - 1) * (second - auc**2)
    known = (p > 0) & (n > 0)
    return np.where(known, np.sqrt(np.maximum(variance, 0) / np.where(known, p * n, 1.0)), np.nan)
