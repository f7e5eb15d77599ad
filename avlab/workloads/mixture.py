"""Several kinds of prompts at once, each request's kind drawn by weight."""

import math
from collections.abc import Callable, Mapping

from .arrivals import Moment
from .base import Prompt, WorkloadError, generator
from .stream import Stream


class Mixture:
    """Draws each request's stream by weight. The sequence of draws depends on the seed alone."""

    exhausted = False

    def __init__(self, streams: Mapping[str, Stream], weights: Mapping[str, float], seed: int = 0) -> None:
        self._streams = list(streams.values())
        self._weights = [weights[name] for name in streams]
        self._draw = generator("mixture", seed)

    def take(self, moment: Moment) -> Prompt:
        (stream,) = self._draw.choices(self._streams, self._weights)
        return stream.take(moment)


def parse(argument: str, open_named: Callable[[str], Stream], seed: int) -> Mixture:
    """The mixture "code=2,verse=1" stands for: kinds with their weights, 1 where none is given.

    Raises WorkloadError for an unknown kind, one named twice, and a weight that is not a number above 0.
    """
    weights: dict[str, float] = {}
    for part in argument.split(","):
        name, _, text = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(text or 1)
        except ValueError:
            weight = math.nan
        if not (0 < weight < math.inf):
            raise WorkloadError(f"the mixture's weight {text!r} for {name!r} is not a number above 0.")
        if name in weights:
            raise WorkloadError(f"the mixture names {name!r} twice; give each kind one weight.")
        weights[name] = weight
    return Mixture({name: open_named(name) for name in weights}, weights, seed)
