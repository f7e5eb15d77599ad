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
    least = np.partition(slots, slots.size - budget, axis=None)[slots.size - budget]
    lengths = (slots > least).sum(axis=1)
    # of the slots that are as good as the last one admitted: by depth, then by request
    alike = np.flatnonzero((slots == least).T)[: budget - lengths.sum()]
    return lengths + np.bincount(alike % B, minlength=B)
