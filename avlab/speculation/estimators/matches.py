"""Counts by length of the match: vLLM's acceptance statistics of suffix decoding, for drafters without logits.

Source: vLLM, `v1/worker/gpu/spec_decode/suffix/speculator.py` (main, commit 05084858): the chance of a slot is
(accepted + 1) / (observed + 2) over drafts of the same source, of about the same length of match, at the same position;
counts are halved every 1,024 steps. It reads no probability, so nothing is fitted.
"""

from typing import ClassVar

import numpy as np

from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator, register
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit

SHORTEST = np.array([1, 2, 3, 4, 5, 6, 7, 11, 21])  # of the lengths that are counted together
SOURCES = 2
HALVED = 1024  # steps between two halvings


@register
class MatchesEstimator(Estimator):
    """Two counts for each source, length of match and position."""

    name: ClassVar[str] = "matches"
    title: ClassVar[str] = "counts by length of the match"
    reads: ClassVar[tuple[str, ...]] = ("match_length", "match_source")
    learns: ClassVar[bool] = True

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        """interval: not read; every label counts at once."""
        self.accepted, self.observed = np.zeros((2, SOURCES, len(SHORTEST), K))
        self.steps = 0

    def predict(self, features: Features) -> np.ndarray:
        source, length, position, known = self._cells(features)
        accepted, observed = (each[source, length, position] for each in (self.accepted, self.observed))
        return np.where(known, np.log((accepted + 1.0) / (observed - accepted + 1.0)), np.nan)

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        source, length, position, known = self._cells(features)
        seen = labels.labelled & known
        cells = source[seen], length[seen], position[seen]
        np.add.at(self.observed, cells, 1.0)
        np.add.at(self.accepted, cells, labels.label[seen])

    def end_step(self) -> Refit | None:
        self.steps += 1
        if self.steps % HALVED == 0:
            self.accepted /= 2
            self.observed /= 2
        return None

    def _cells(self, features: Features) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Source, length group and position of each slot, and whether there is a draft, [B, K] each."""
        length, source = features["match_length"], features["match_source"]
        known = np.isfinite(length) & np.isfinite(source)
        group = np.searchsorted(SHORTEST, np.where(known, length, 1.0), side="right") - 1
        which = np.where(known, source, 0.0).astype(np.int64).clip(0, SOURCES - 1)
        return which, group.clip(0), np.broadcast_to(np.arange(length.shape[1]), length.shape), known
