"""A stream of prompts: what the next request asks, given the moment at which it arrives."""

from typing import Protocol

from .arrivals import Moment
from .base import Prompt, generator
from .registry import prompts


class Stream(Protocol):
    @property
    def exhausted(self) -> bool:
        """True when there is no further prompt; a stream of built-in prompts never ends."""

    def take(self, moment: Moment) -> Prompt:
        """The prompt of the request that arrives now."""


class KindStream:
    """The prompts of one kind without end: all of them, then all of them again in another order."""

    exhausted = False

    def __init__(self, kind: str, split: str = "held-out", seed: int = 0) -> None:
        self.kind, self.split, self.seed = kind, split, seed
        self._taken = 0
        self._order = prompts(kind, split, seed)

    def take(self, moment: Moment) -> Prompt:
        place = self._taken % len(self._order)
        if place == 0 and self._taken:
            generator("pass", self.kind, self.seed, self._taken).shuffle(self._order)
        self._taken += 1
        return self._order[place]
