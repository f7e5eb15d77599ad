"""Prompt lookup: the end of a request's text is looked for earlier in it, and what followed there is the draft.

The rule is vLLM's `ngram` method (`NgramProposer`, 0.33): the longest end of prompt_lookup_min to prompt_lookup_max
tokens that stands earlier in the text, where it stands first. The idea is Saxena's (2023, "Prompt lookup decoding").
"""

from dataclasses import dataclass

import numpy as np

from avlab.engine.drafters.base import DrafterContext, DrafterKind, DraftInput, register
from avlab.engine.drafters.lookup import FEATURES, NOTE, NOTHING, Copied, proposed
from avlab.engine.drafters.options import read_options
from avlab.engine.drafts import Drafts


@dataclass(frozen=True, slots=True)
class NgramOptions:
    """Lengths of the n-grams that are looked for; where only one is given the other is the same, as in vLLM."""

    prompt_lookup_min: int = 0
    prompt_lookup_max: int = 0

    def __post_init__(self) -> None:
        shortest = self.prompt_lookup_min or self.prompt_lookup_max or 5  # vLLM's default
        longest = self.prompt_lookup_max or shortest
        object.__setattr__(self, "prompt_lookup_min", shortest)
        object.__setattr__(self, "prompt_lookup_max", longest)
        if not 1 <= shortest <= longest:
            raise ValueError(
                f"prompt_lookup_min is {shortest} and prompt_lookup_max {longest}, and 1 <= min <= max must hold"
            )


class NgramDrafter:
    """Drafts of up to K tokens; none where the text's end is new."""

    name = "ngram"
    alone = True
    vocabulary = None
    state_layers: tuple[int, ...] = ()
    features: tuple[str, ...] = FEATURES

    def __init__(self, K: int, options: NgramOptions):
        self.K, self.options = K, options
        self._texts: dict[int, np.ndarray] = {}  # by row: room for its tokens
        self._read: dict[int, int] = {}  # how many of them are there

    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        return proposed(self, inputs, depth)

    def look_up(self, row: int, tokens: list[int], depth: int) -> Copied:
        text = self._text(row, tokens)
        shortest, longest = self.options.prompt_lookup_min, self.options.prompt_lookup_max
        places = np.flatnonzero(text[:-1] == text[-1])  # ends of what may be the same n-gram
        lengths = np.ones_like(places)
        alike, n = places, 1
        while n < longest and len(alike := alike[alike >= n]):
            alike = alike[text[alike - n] == text[-1 - n]]
            if not len(alike):
                break
            n += 1
            lengths[np.searchsorted(places, alike)] = n
        if not len(places) or n < shortest:
            return NOTHING
        follow = places[lengths == n] + 1
        begin = int(follow[0])
        draft = text[begin : begin + depth]
        seen, agreeing = [], []
        for k, token in enumerate(draft):
            seen.append(len(follow))
            follow = follow[follow + k < len(text)]
            follow = follow[text[follow + k] == token]
            agreeing.append(len(follow))
        return Copied(draft.tolist(), seen, agreeing, n)

    def _text(self, row: int, tokens: list[int]) -> np.ndarray:
        """The tokens as an array: those that are new are added to what the row had."""
        read = self._read.get(row, 0)
        room = self._texts.get(row)
        if room is None or len(tokens) > len(room):
            room = self._texts[row] = np.empty(2 * len(tokens), dtype=np.int64)
            read = 0
        room[read : len(tokens)] = tokens[read:]
        self._read[row] = len(tokens)
        return room[: len(tokens)]

    def assume_read(self, cache_row: int, tokens: int) -> None:
        """It reads the text itself."""

    def forget(self, cache_row: int) -> None:
        self._read.pop(cache_row, None)


def make(context: DrafterContext) -> NgramDrafter:
    """The drafter of these options. Raises CheckpointError."""
    return NgramDrafter(context.K, read_options("ngram", context.options, NgramOptions))


register(DrafterKind("ngram", "prompt lookup", "", make, note=NOTE))
