"""One kind of prompts, then another, in the middle of a run."""

import re
from collections.abc import Callable, Sequence

from .arrivals import Moment
from .base import Prompt, WorkloadError
from .stream import Stream

UNITS = ("s", "steps", "requests")
GRAMMAR = "drift:KIND,KIND@60s, with s, steps or requests as the unit"


class Drift:
    """Goes to the next stream after every `length` seconds, steps or requests, and stays with the last."""

    exhausted = False

    def __init__(self, stages: Sequence[Stream], length: float, unit: str) -> None:
        self.stages, self.length, self.unit = tuple(stages), length, unit
        self._taken = 0

    def take(self, moment: Moment) -> Prompt:
        passed = {"s": moment.seconds, "steps": moment.steps, "requests": self._taken}[self.unit]
        self._taken += 1
        return self.stages[min(int(passed / self.length), len(self.stages) - 1)].take(moment)


def parse(argument: str, open_named: Callable[[str], Stream]) -> Drift:
    """The drift "verse,tool_calls@60s" stands for: two or more kinds (or "mixed"), and how long each lasts.

    Raises WorkloadError when it is not of that form, or names an unknown kind.
    """
    names, _, length = argument.rpartition("@")
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(\w+)", length.strip())
    stages = [name.strip() for name in names.split(",")]
    if len(stages) < 2 or match is None or match[2] not in UNITS or float(match[1]) <= 0:
        raise WorkloadError(f"'drift:{argument}' is not of the form {GRAMMAR}, and a number above 0.")
    return Drift([open_named(name) for name in stages], float(match[1]), match[2])
