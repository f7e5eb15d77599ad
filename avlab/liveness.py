"""Whether another process lives, by signs and not by seconds.

A process that is stopped, frozen with its container, or asleep with its machine is silent and as alive as ever; a clock
that goes on meanwhile would condemn it. So time counts only while we ran ourselves, and silence only while the other
process ran too, which its processor time shows.
"""

import threading
import time
from collections.abc import Callable

import psutil

LONGEST_STEP = (
    1.0  # seconds that two looks may be apart; in a longer gap it was this process that stood still
)
LOOK_SECONDS = 0.2
WORKING = 0.1  # of a processor: a process that serves takes more, on a busy machine too


class Awake:
    """A clock that goes only while this process runs. It must be read several times a second.

    gap: seconds between the last two readings beyond what they may be apart, 0 for none.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._last = clock, clock()
        self.seconds = self.gap = 0.0

    def read(self) -> float:
        """Seconds for which this process has run."""
        now = self._clock()
        passed, self._last = now - self._last, now
        self.gap = passed if passed > LONGEST_STEP else 0.0
        self.seconds += LOOK_SECONDS if self.gap else max(passed, 0.0)
        return self.seconds


class Standstill:
    """Whether a process that had something to do did next to nothing of it: its machine, or itself, stood still.

    clock, work: seconds that pass, and seconds of a processor that this process takes meanwhile.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.process_time,
    ):
        self._clock, self._work = clock, work
        self.begin()

    def begin(self) -> None:
        """From now on there is something to do."""
        self._began = self._clock(), self._work()

    def seconds(self) -> float:
        """For how long it stood still since then; 0 for less than a second, or where it worked."""
        passed, worked = self._clock() - self._began[0], self._work() - self._began[1]
        return passed if passed > LONGEST_STEP and worked < WORKING * passed else 0.0


class Silence:
    """How long another process has said nothing although it ran, and so did we.

    pid: of that process; None where there is none to look at, and our own time counts alone.
    """

    def __init__(self, pid: int | None, clock: Callable[[], float] = time.monotonic):
        self.seconds = 0.0
        self._awake = Awake(clock)
        self._process: psutil.Process | None = None
        if pid is not None:
            try:
                self._process = psutil.Process(pid)
            except psutil.Error:
                self._process = None
        self._worked = self._work()

    def heard(self) -> None:
        """It said something."""
        self.seconds = 0.0

    def look(self) -> float:
        """Count what passed since the last look; seconds of silence by now."""
        before = self._awake.seconds
        passed, worked = self._awake.read() - before, self._work()
        if worked is None or worked != self._worked:
            self.seconds += passed
        self._worked = worked
        return self.seconds

    def _work(self) -> float | None:
        """Processor seconds that the other process has used; None where nobody can tell."""
        if self._process is None:
            return None
        try:
            times = self._process.cpu_times()
        except psutil.Error:
            return None
        return float(times.user + times.system)


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait for an event for so many seconds in which this process runs; whether it came."""
    awake = Awake()
    while not event.is_set() and (left := seconds - awake.read()) > 0:
        event.wait(min(left, LOOK_SECONDS))
    return event.is_set()
