"""The raw draft slots of a window of steps, as calibration sums and as the rows of a Drafts frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from avlab.speculation import calibration
from avlab.speculation.estimates import Estimates
from avlab.speculation.features import Features
from avlab.wire import draft_rows, frames

if TYPE_CHECKING:  # importing it imports torch
    from avlab.engine.report import Slots

SOURCES = {"raw": "max_log_odds", "head": "head_log_odds"}  # estimates that are a feature as it is


@dataclass(frozen=True, slots=True, eq=False)
class RawSlots:
    """One row a request and step: arrays [R], label and estimates [R, K], features [R, K, F].

    The estimates are nan where the policy makes none.
    """

    step: np.ndarray
    request: np.ndarray
    kind: np.ndarray
    temperature: np.ndarray
    scheduled: np.ndarray
    admitted: np.ndarray
    label: np.ndarray
    estimates: Estimates
    features: Features

    @classmethod
    def of(cls, steps: Sequence[tuple[int, Slots]]) -> RawSlots:
        """Of at least one step: its number and what it reported."""
        slots = [each for _, each in steps]
        sizes = [len(each.request) for each in slots]

        def joined(form: Callable[[Estimates], np.ndarray]) -> np.ndarray:
            known = [None if each.estimates is None else form(each.estimates) for each in slots]
            return np.concatenate(
                [
                    np.full(each.label.shape, np.nan) if values is None else values
                    for each, values in zip(slots, known, strict=True)
                ]
            )

        return cls(
            step=np.repeat([step for step, _ in steps], sizes),
            request=np.concatenate([each.request for each in slots]),
            kind=np.concatenate([each.kind for each in slots]),
            temperature=np.concatenate([each.temperature for each in slots]),
            scheduled=np.concatenate([each.scheduled for each in slots]),
            admitted=np.concatenate([each.admitted for each in slots]),
            label=np.concatenate([each.label for each in slots]),
            estimates=Estimates(joined(lambda e: e.log_odds), joined(lambda e: e.probability)),
            features=Features(
                slots[0].features.names, np.concatenate([each.features.values for each in slots])
            ),
        )

    def sums(self, estimator: str) -> Iterator[tuple[str, str, float, np.ndarray]]:
        """Calibration sums [K, 128, 5] by source, and kind and temperature of the requests.

        estimator: whose estimates these are, "" where there are none.
        """
        sources = {
            source: self.features[name] for source, name in SOURCES.items() if name in self.features.names
        }
        if estimator and estimator not in sources:
            sources[estimator] = self.estimates.log_odds
        pairs = list(zip(self.kind.tolist(), self.temperature.tolist(), strict=True))
        classes = {pair: number for number, pair in enumerate(sorted(set(pairs)))}
        of_row = np.fromiter((classes[pair] for pair in pairs), dtype=np.int64, count=len(pairs))
        for source, x in sources.items():
            known = (self.label >= 0) & np.isfinite(x)
            sums = calibration.grouped_bin_sums(x, self.label, known, of_row, len(classes))
            for (kind, temperature), number in classes.items():
                yield source, kind, temperature, sums[number]

    def frame(self, block: int, every: int, features: Sequence[str]) -> frames.Drafts | None:
        """The scheduled slots of every so-manieth step with the features named; None where there are none."""
        K = self.label.shape[1]
        kept = (np.arange(K) < self.scheduled[:, None]) & (self.step % every == 0)[:, None]
        row, k = np.nonzero(kept)
        if not len(row):
            return None
        names = [name for name in features if name in self.features.names]
        values = np.array([self.features[name][row, k] for name in names])
        columns = {
            "block": np.full(len(row), block),
            "step": self.step[row],
            "request": self.request[row],
            "position": k,
            "features": values.reshape(len(names), len(row)).T,
            "estimate": self.estimates.probability[row, k],
            "survival": self.estimates.survival[row, k],
            "admitted": k < self.admitted[row],
            "label": self.label[row, k],
        }
        return frames.Drafts(len(row), draft_rows.pack(columns))
