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
    return best_slots(slots, ranked[slots.size - budget], budget)


def best_slots(slots: np.ndarray, least: float, budget: int) -> np.ndarray:
    """Prefix lengths [B] of the `budget` best of slots [B, K], the last of which is worth `least`."""
    admitted = np.add.reduce(slots >= least, axis=1, dtype=np.int64)
    if np.add.reduce(admitted) == budget:
        return admitted
    # more slots are as good as the last one admitted: by depth, then by request
    lengths = np.add.reduce(slots > least, axis=1, dtype=np.int64)
    alike = np.flatnonzero((slots == least).T)[: budget - lengths.sum()] % len(slots)
    return lengths + np.bincount(alike, minlength=len(slots))


def in_order(survival: np.ndarray, scheduled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots [B, K], -1 where none is scheduled or has an estimate; and the others' survivals, best first, [N].

    scheduled [B]: as in `allocate`.
    """
    K = survival.shape[1]
    if scheduled.min(initial=K) >= K:
        ranked = np.negative(survival).ravel()
        ranked.sort()
        if not len(ranked) or ranked[-1] == ranked[-1]:  # nan would be the last
            return survival, np.negative(ranked)
    exists = (np.arange(K) < scheduled[:, None]) & (survival == survival)
    return np.where(exists, survival, -1.0), -np.sort(-survival[exists])
