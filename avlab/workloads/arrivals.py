"""When requests arrive. Nothing here looks at a clock: the serving loop says what moment it is."""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from .base import WorkloadError, generator

PATTERNS = {
    "closed:N": "N requests are always under way: one that finishes makes room for the next; closed:4,64,4@60s steps "
    "to the next number after every 60 s (or steps), and stays with the last",
    "poisson:RATE": "RATE requests a second on average, however busy the engine; RATE/step counts steps",
    "burst:N": "N requests at once; burst:N@30s or burst:N@200steps repeats it",
    "replay": "the arrival times of a file; replay:2x runs through them twice as fast",
}
MOST_REQUESTS, MOST_A_SECOND = 100_000, 10_000.0  # chosen as far beyond what one machine can serve


class Moment(NamedTuple):
    """What the serving loop knows when it asks for requests: seconds and steps since the run began, how many
    requests are running, and how many have arrived but wait for a place."""

    seconds: float
    steps: int = 0
    running: int = 0
    waiting: int = 0


class Arrivals(Protocol):
    @property
    def exhausted(self) -> bool:
        """True when nothing more will ever arrive."""

    def due(self, moment: Moment) -> list[float]:
        """When the requests arrived, in seconds, that are here by now and were not yet returned."""

    def wait(self, moment: Moment) -> float | None:
        """Seconds an idle loop can sleep before it asks again; None when nothing more will arrive."""


class ClosedLoop:
    """Keeps so many requests under way; a request arrives at the moment there is room for it.

    `levels` are the numbers of requests, each for `length` seconds (or steps, by `unit`), the last one for good. Where
    the level falls no request is ended: the loop waits until enough have finished.
    """

    exhausted = False

    def __init__(self, levels: Sequence[int], length: float = math.inf, unit: str = "seconds") -> None:
        self.levels, self.length, self.unit = tuple(levels), length, unit

    def concurrency(self, moment: Moment) -> int:
        """Requests that are to be under way at this moment."""
        passed = moment.steps if self.unit == "steps" else moment.seconds
        return self.levels[min(int(passed / self.length), len(self.levels) - 1)]

    def due(self, moment: Moment) -> list[float]:
        return [moment.seconds] * max(0, self.concurrency(moment) - moment.running - moment.waiting)

    def wait(self, moment: Moment) -> float | None:
        return 0.0


class OpenLoop:
    """Follows a timetable, whatever the engine does.

    `times` do not decrease, and may never end. They are seconds, or with `unit` "steps" they are steps, which
    makes a run repeatable token for token; a request then arrives at the second in which its step begins.
    """

    def __init__(self, times: Iterable[float], unit: str = "seconds") -> None:
        self.unit = unit
        self._times = iter(times)
        self._next = next(self._times, None)

    @property
    def exhausted(self) -> bool:
        return self._next is None

    def due(self, moment: Moment) -> list[float]:
        now = moment.steps if self.unit == "steps" else moment.seconds
        arrived = []
        while self._next is not None and self._next <= now:
            arrived.append(moment.seconds if self.unit == "steps" else self._next)
            self._next = next(self._times, None)
        return arrived

    def wait(self, moment: Moment) -> float | None:
        if self._next is None:
            return None
        return 0.0 if self.unit == "steps" else max(0.0, self._next - moment.seconds)


def closed(concurrency: float) -> ClosedLoop:
    """`concurrency` requests under way at any time."""
    return ClosedLoop([_count("closed", concurrency)])


def steps_of_load(levels: Sequence[float], length: float, unit: str = "seconds") -> ClosedLoop:
    """A closed loop whose number of requests steps to the next level after every `length` seconds (or steps)."""
    if not (0 < length < math.inf):
        raise WorkloadError(f"a load cannot step every {length:g} {unit}; give a number above 0.")
    return ClosedLoop([_count("closed", level) for level in levels], length, unit)


def poisson(rate: float, seed: int = 0, unit: str = "seconds") -> OpenLoop:
    """Independent arrivals, `rate` a second (or a step): gaps are exponential with mean 1 / rate."""
    if not (0 < rate <= MOST_A_SECOND):
        raise WorkloadError(
            f"poisson:{rate:g} is no usable rate; give a number of requests a {unit[:-1]} "
            f"above 0 and up to {MOST_A_SECOND:g}."
        )
    draw = generator("poisson", seed)
    return OpenLoop(itertools.accumulate(draw.expovariate(rate) for _ in itertools.count()), unit)


def burst(count: float, every: float | None = None, unit: str = "seconds") -> OpenLoop:
    """`count` requests at the beginning; with `every`, again after each so many seconds (or steps)."""
    count = _count("burst", count)
    if every is None:
        return OpenLoop([0.0] * count, unit)
    if not (0 < every < math.inf):
        raise WorkloadError(f"a burst cannot come every {every:g} {unit}; give a number above 0.")
    return OpenLoop((number * every for number in itertools.count() for _ in range(count)), unit)


def replay(times: Sequence[float], speed: float = 1.0) -> OpenLoop:
    """The given arrival times, in seconds and in order, counted from the first; `speed` 2 halves the gaps."""
    if not (0 < speed < math.inf):
        raise WorkloadError(
            f"replay:{speed:g}x is no usable speed; give a number above 0, such as replay:2x."
        )
    return OpenLoop([(time - times[0]) / speed for time in times])


def open_arrivals(pattern: str, seed: int = 0, times: Sequence[float] | None = None) -> Arrivals:
    """The arrivals a pattern such as "closed:16" or "poisson:2.5" stands for; PATTERNS lists the grammar.

    `times` are the arrival times of the workload's file, needed by "replay". Raises WorkloadError.
    """
    name, _, argument = pattern.partition(":")
    if name == "closed" and (match := re.fullmatch(r"([^@]+)@([^@]+?) ?(s|steps)", argument)):
        levels = [_number(pattern, level) for level in match[1].split(",")]
        return steps_of_load(
            levels, _number(pattern, match[2]), "steps" if match[3] == "steps" else "seconds"
        )
    if name == "closed" and argument:
        return closed(_number(pattern, argument))
    if name == "poisson" and (match := re.fullmatch(r"([^/]+)(/s|/step)?", argument)):
        return poisson(_number(pattern, match[1]), seed, "steps" if match[2] == "/step" else "seconds")
    if name == "burst" and (match := re.fullmatch(r"([^@]+)(?:@([^@]+?) ?(s|steps))?", argument)):
        every = None if match[2] is None else _number(pattern, match[2])
        return burst(_number(pattern, match[1]), every, "steps" if match[3] == "steps" else "seconds")
    if name == "replay" and (match := re.fullmatch(r"(?:(.+)x)?", argument)):
        if times is None:
            raise WorkloadError(
                "replay needs a file whose every entry has an arrival time, and there is none."
            )
        return replay(times, _number(pattern, match[1] or "1"))
    raise WorkloadError(f"there is no arrival pattern {pattern!r}; the known ones are {', '.join(PATTERNS)}.")


def _number(pattern: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WorkloadError(
            f"the arrival pattern {pattern!r} needs a number where it says {text!r}."
        ) from None


def _count(name: str, count: float) -> int:
    if not (1 <= count <= MOST_REQUESTS) or count != int(count):
        raise WorkloadError(
            f"{name}:{count:g} is no usable number of requests; give a whole one from 1 to {MOST_REQUESTS}."
        )
    return int(count)
