"""Steps as rows of the record: kept as the engine reported them, and made into rows together.

Sums by position are a few small array operations a step. Made for hundreds of steps at once they cost a tenth of that,
which a replay feels that computes thousands of steps a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from avlab.engine.report import Slots, StepReport
from avlab.wire import frames

NAN = float("nan")


class Kept(NamedTuple):
    """A step until its row is made. time: of its end. report_ms: spent on reporting since the step before."""

    report: StepReport
    time: float
    block: int
    idle_ms: float
    report_ms: float


class StepRows:
    """Collects steps with K draft positions."""

    def __init__(self, K: int):
        self.K = K
        self._kept: list[Kept] = []

    def add(self, kept: Kept) -> None:
        self._kept.append(kept)

    def take(self) -> list[frames.Step]:
        """The rows of what was collected, which is then forgotten."""
        kept, self._kept = self._kept, []
        drafted = [each.report.slots for each in kept if each.report.slots is not None]
        none = (0,) * self.K
        vectors = zip(*self._by_position(drafted), strict=True) if drafted else iter(())
        return [
            _row(each, none, none, none, none) if each.report.slots is None else _row(each, *next(vectors))
            for each in kept
        ]

    def _by_position(self, steps: list[Slots]) -> list[list[tuple[int, ...]]]:
        """Scheduled, admitted, accepted and labelled slots by position: each a vector [K] a step."""
        sizes = [len(each.scheduled) for each in steps]
        step = np.repeat(np.arange(len(steps)), sizes)
        found = []
        for lengths in (
            np.concatenate([each.scheduled for each in steps]),
            np.concatenate([each.admitted for each in steps]),
            np.concatenate([each.accepted for each in steps]),
        ):
            # a prefix of length n reaches positions 0 to n - 1
            ends = np.bincount(step * (self.K + 1) + lengths, minlength=len(steps) * (self.K + 1))
            reach = ends.reshape(len(steps), -1)[:, :0:-1].cumsum(axis=1)[:, ::-1]
            found.append(list(map(tuple, reach.tolist())))
        known = np.concatenate([each.label >= 0 for each in steps])
        running = np.concatenate([np.zeros((1, self.K), dtype=np.int64), np.cumsum(known, axis=0)])
        ends = np.cumsum(sizes)
        labelled = running[ends] - running[ends - sizes]
        return [*found, list(map(tuple, labelled.tolist()))]


def _row(
    kept: Kept,
    scheduled: tuple[int, ...],
    admitted: tuple[int, ...],
    accepted: tuple[int, ...],
    labelled: tuple[int, ...],
) -> frames.Step:
    report, admission = kept.report, kept.report.admission
    return frames.Step(
        step=report.step,
        time=kept.time,
        block=kept.block,
        running=report.running,
        waiting=report.waiting,
        emitting=report.emitting,
        prompt_tokens=report.prompt_tokens,
        target_tokens=report.target_tokens,
        drafted=report.drafted,
        budget=int(admission.budget) if admission else 0,
        tokens=report.tokens,
        scheduled=scheduled,
        admitted=admitted,
        accepted=accepted,
        labelled=labelled,
        expected_tokens=float(admission.expected_tokens) if admission else NAN,
        expected_ms=float(admission.expected_ms) if admission else NAN,
        draft_ms=report.ms["draft"],
        verify_ms=report.ms["verify"],
        sample_ms=report.ms["sample"],
        decide_ms=report.ms["decide"],
        report_ms=kept.report_ms,
        idle_ms=kept.idle_ms,
        explored=int(admission.explored) if admission else 0,
        explored_ms=float(admission.explored_ms) if admission else 0.0,
        surplus=report.surplus,
    )
