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
    exists = (np.arange(K) < scheduled[:, None]) & (survival == survival)
    if budget <= 0:
        return np.zeros(B, dtype=np.int64)
    if budget >= np.count_nonzero(exists):
        return exists.sum(axis=1)
    slots = np.where(exists, survival, -1.0)
    ranked = slots.flatten()
    ranked.partition(slots.size - budget)
    least = ranked[slots.size - budget]
    admitted = slots >= least
    if np.count_nonzero(admitted) == budget:
        return np.add.reduce(admitted, axis=1, dtype=np.int64)
    # more slots are as good as the last one admitted: by depth, then by request
    lengths = np.add.reduce(slots > least, axis=1, dtype=np.int64)
    alike = np.flatnonzero((slots == least).T)[: budget - lengths.sum()]
    return lengths + np.bincount(alike % B, minlength=B)
