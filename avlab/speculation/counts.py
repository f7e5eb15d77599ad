"""Labels counted by position and by bins of a feature: sums that fade, from which a fit to convergence is possible.

Bins are equal in asinh(f / 2): an eighth of a log-odds wide near 0, where estimates change most, and two wide at the
clamp of 40, where low temperatures put most drafts.
"""

from __future__ import annotations

import numpy as np

BINS = 100
_LOW, _HIGH = -2.4, 3.7  # asinh(f / 2) at f = -11 and f = 40
_SCALE = BINS / (_HIGH - _LOW)
CENTRES = 2.0 * np.sinh(
    (np.arange(BINS) + 0.5) / _SCALE + _LOW
)  # the feature in the middle of each bin, [BINS]
TOGETHER = 2048  # labelled slots that are counted at once: it takes a third of the time
FADE = 0.8  # of older labels at each refit; 0.9 unlearns another sampling too slowly, and scores no better


def bin_of(feature: np.ndarray) -> np.ndarray:
    """The bin of each feature, of any shape; 0 for nan."""
    place = (np.arcsinh(feature * 0.5) - _LOW) * _SCALE
    return np.fmin(np.fmax(place, 0.0), BINS - 1).astype(np.intp)


class FadingCounts:
    """seen, accepted: labelled slots and those accepted, [K, BINS] float64."""

    def __init__(self, K: int):
        self.seen, self.accepted = np.zeros((K, BINS)), np.zeros((K, BINS))
        self._open = np.zeros(2 * K * BINS)  # this round's: refused and accepted side by side in each cell
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # features, labels, positions
        self._slots = 0  # of those

    def add(self, feature: np.ndarray, label: np.ndarray, labelled: np.ndarray) -> None:
        """Count the labelled slots of [B, K]; many steps at once, some steps later."""
        slots = labelled.ravel().nonzero()[0]
        self._waiting.append((feature.ravel().take(slots), label.ravel().take(slots), slots % len(self.seen)))
        self._slots += len(slots)
        if self._slots >= TOGETHER:
            self._count()

    def _count(self) -> None:
        if self._waiting:
            feature, label, position = map(np.concatenate, zip(*self._waiting, strict=True))
            cell = 2 * (bin_of(feature) + BINS * position) + (label > 0)
            self._open += np.bincount(cell, minlength=len(self._open))
            self._waiting, self._slots = [], 0

    def close_round(self, fade: float = FADE) -> None:
        """Older labels fade, and the round's are added."""
        self._count()
        refused, accepted = self._open.reshape(*self.seen.shape, 2).transpose(2, 0, 1)
        self.seen = fade * self.seen + refused + accepted
        self.accepted = fade * self.accepted + accepted
        self._open = np.zeros_like(self._open)
