"""What drafters without logits share: drafts that are copied from text seen before.

Such a draft follows from the text alone: nothing is drawn, so its distribution q has all its mass on the drafted token,
and verification accepts with the target's probability of it. What these drafters know of a draft is how long the match
is, and how often the text went on so: `max_log_odds` is made of those counts, in the place of a draft row's maximum.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from avlab.engine.drafters.base import DraftInput
from avlab.engine.drafts import Drafts
from avlab.speculation.features import Features

FEATURES = ("max_log_odds", "match_length", "match_source")
NOTE = (
    "This drafter has no logits: its feature max_log_odds is log((c + 1) / (n - c + 1)), where c of n earlier "
    "continuations of the match have the drafted token."
)
OWN, ELSEWHERE = 0, 1  # match_source


@dataclass(frozen=True, slots=True)
class Copied:
    """A draft copied from text.

    seen: how many continuations agreed with the draft before each token; agreeing: how many of these have the token.
    match: tokens before the draft that were found again. source: OWN or ELSEWHERE.
    """

    tokens: list[int]
    seen: list[int]
    agreeing: list[int]
    match: int
    source: int = OWN


NOTHING = Copied([], [], [], 0)


@runtime_checkable
class Lookup(Protocol):
    """A drafter without logits, as recording asks for it: what it drafts behind a known text.

    alone: whether a request's drafts depend on its own text only.
    """

    name: str
    K: int
    alone: bool
    vocabulary: None
    state_layers: tuple[int, ...]
    features: tuple[str, ...]

    def look_up(self, row: int, tokens: list[int], depth: int) -> Copied:
        """The draft behind these tokens, which go on those that this row had before."""
        ...

    def forget(self, cache_row: int) -> None:
        """The request in this row has ended."""
        ...


def proposed(drafter: Lookup, inputs: DraftInput, depth: int) -> Drafts:
    """The drafts of a step's requests, each as long as was found."""
    rows = zip(inputs.cache_rows, inputs.history, strict=True)
    return drafts([drafter.look_up(row, tokens, depth) for row, tokens in rows], depth, inputs.newest)


def drafts(found: list[Copied], depth: int, newest: Tensor) -> Drafts:
    """These drafts side by side, [B, depth]; slots behind a draft's end have no features."""
    tokens = newest[:, None].repeat(1, depth)
    lengths = np.array([len(each.tokens) for each in found], dtype=np.int64)
    values = np.full((len(found), depth, len(FEATURES)), np.nan)
    for row, each in enumerate(found):
        if n := len(each.tokens):
            tokens[row, :n] = torch.tensor(each.tokens, device=newest.device)
            values[row, :n] = described(each)
    return Drafts(tokens, None, None, Features(FEATURES, values), lengths=lengths)


def described(copied: Copied) -> np.ndarray:
    """The features of a draft of n tokens, [n, F]."""
    seen, agreeing = np.array(copied.seen, dtype=np.float64), np.array(copied.agreeing, dtype=np.float64)
    counted = np.log((agreeing + 1) / (seen - agreeing + 1))
    return np.stack([counted, np.full_like(counted, copied.match), np.full_like(counted, copied.source)], 1)
