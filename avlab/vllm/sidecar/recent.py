"""Calibration of the last minutes: sums since the start say little of an hour ago."""

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from avlab.speculation.calibration import BINS, Scores, scores

WINDOW = 300.0  # seconds
BETWEEN = 5.0  # at least, between two snapshots


class Recent:
    """Snapshots of a source's sums. Until a window is full it begins where they do; the first says nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._kept: deque[tuple[float, np.ndarray]] = deque()

    def scores(self, cells: Sequence[Sequence[float]]) -> Scores:
        """Scores of what came since the oldest snapshot of the window. cells: as the file has them, since the start."""
        now, sums = self._clock(), np.zeros((BINS, 5))
        for _, number, *values in cells:
            sums[int(number)] += values
        if self._kept and (sums < self._kept[-1][1]).any():  # another worker's
            self._kept.clear()
        while len(self._kept) > 1 and self._kept[1][0] <= now - WINDOW:
            self._kept.popleft()
        begin = self._kept[0][1] if self._kept else sums
        if not self._kept or now - self._kept[-1][0] >= BETWEEN:
            self._kept.append((now, sums))
        return scores(np.maximum(sums - begin, 0.0))
