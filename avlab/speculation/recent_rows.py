"""The estimates of recent drafts, a row each: what the next drafts may be expected to look like."""

import numpy as np

MOST = 256  # rows; chosen here: some 16 steps of 16 requests, and a full step of 256


class RecentRows:
    """A ring of the last rows [K] that had an estimate at the first position; nan behind what was drafted."""

    def __init__(self, K: int, most: int = MOST):
        self._rows = np.full((most, K), np.nan)
        self._met = self._next = self._turn = 0

    def add(self, earlier: np.ndarray) -> None:
        """A step's estimates [B, K]; requests without any (nan) are left out."""
        first = earlier[:, 0]
        rows = earlier if (first == first).all() else earlier[first == first]
        rows = rows[-len(self._rows) :]
        end = self._next + len(rows)
        if end <= len(self._rows):
            self._rows[self._next : end] = rows
        else:
            self._rows[(self._next + np.arange(len(rows))) % len(self._rows)] = rows
        self._next = (self._next + len(rows)) % len(self._rows)
        self._met = min(self._met + len(rows), len(self._rows))

    def take(self, count: int) -> np.ndarray:
        """So many rows [count, K], in turn, each as often as the others; nan where none was ever added."""
        if not self._met:
            return np.full((count, self._rows.shape[1]), np.nan)
        places = (self._turn + np.arange(count)) % self._met
        self._turn = (self._turn + count) % self._met
        return self._rows[places]
