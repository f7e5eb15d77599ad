"""Which draft slots the budget goes to."""

from __future__ import annotations

import numpy as np


def allocate(survival, scheduled, budget: int) -> np.ndarray:
    """Admitted prefix length of every request, [B] int64.

    The first `budget` scheduled slots are admitted in the order survival (descending), depth, request index.
    That order is total and knows no chance; as survival never rises along a request, each gets a prefix.

    survival [B, K]: its rows must not rise; a NaN is never admitted. scheduled [B]: slots from this depth on
    do not exist. The lengths sum to min(budget, scheduled slots).
    """
    survival, scheduled = np.asarray(survival), np.asarray(scheduled, dtype=np.int64)
    B, K = survival.shape
    exists = np.arange(K)[:, None] < scheduled
    # depth-major, so that a stable sort breaks ties by depth, then by request
    badness = np.where(exists & (survival == survival).T, -survival.T, np.inf).ravel()
    order = np.argsort(badness, kind="stable")[: max(budget, 0)]
    return np.bincount(order[badness[order] < np.inf] % B, minlength=B)
