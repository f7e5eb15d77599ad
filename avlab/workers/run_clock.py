"""The clock of a run: this machine's, or the emulated one of a machine whose costs a replay is served with.

Everything that a run says in seconds is on this one clock: arrivals, latencies, blocks, schedules, limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

HELD_BYTES = (
    8 << 20
)  # of frames not stored yet, at which an emulated clock stands still; chosen here: a few seconds of them
HELD_SECONDS = 0.02  # between two looks at them
MOST_BEHIND = 0.5  # seconds that a paced clock makes up for; what it is later than that, it stays


class Clock(Protocol):
    """Seconds since the run began, when called."""

    def __call__(self) -> float: ...

    def ahead(self) -> float:
        """Seconds of this machine's time to wait before the next step."""
        ...

    def rest(self, seconds: float, wait: Callable[[float], None]) -> None:
        """Let so many of the run's seconds pass in which nothing is due. wait: sleeps, less where a command comes."""
        ...


class RealClock:
    """This machine's own clock."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self.began

    def ahead(self) -> float:
        return 0.0

    def rest(self, seconds: float, wait: Callable[[float], None]) -> None:
        wait(seconds)


class EmulatedClock:
    """Moves by what steps cost on another machine, and stands still while nothing is served.

    pace: its seconds in one of this machine's, 1 for that machine's own speed; None for as fast as this one computes.
    held: bytes of frames that the lab has not stored yet. Beyond HELD_BYTES the clock waits for it, so that no frame is
    ever dropped and a reader's questions are answered.
    """

    def __init__(
        self, pace: float | None, held: Callable[[], int], real: Callable[[], float] = time.monotonic
    ):
        self.pace, self._held, self._real = pace, held, real
        self._seconds = 0.0
        self._origin: float | None = None  # of this machine's time, at which a paced clock read 0

    def __call__(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """So much time passes there."""
        self._seconds += seconds

    def reach(self, seconds: float) -> None:
        """A step ended there at this second."""
        self._seconds = max(self._seconds, seconds)

    def ahead(self) -> float:
        if self._held() > HELD_BYTES:
            return HELD_SECONDS
        if self.pace is None:
            return 0.0
        now, due = self._real(), self._seconds / self.pace
        if self._origin is None:
            self._origin = now - due
        wait = self._origin + due - now
        if wait < -MOST_BEHIND:  # a pause, or steps that take longer to compute than to emulate
            self._origin += -wait - MOST_BEHIND
        return max(wait, 0.0)

    def rest(self, seconds: float, wait: Callable[[float], None]) -> None:
        self.advance(seconds)
