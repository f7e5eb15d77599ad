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
