"""Drafting along a text that is known already, at many of its positions at once: what recording asks of a drafter.

The anchor at position i of a text is where token i is the newest one: the draft behind it proposes tokens i + 1 on.
Drafts at an anchor are rows of one batch: the one that is recorded, and those that leave it, each with a state.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from avlab.engine.cache import KVCache
from avlab.engine.drafts import DraftVocabulary


@dataclass(frozen=True, slots=True, eq=False)
class ReadText:
    """A text as the target has read it. tokens: [L], prompt and output. states: [L, S * hidden], the target's at each
    position, as drafters see them. cache, row: where its keys and values lie."""

    tokens: Tensor
    states: Tensor
    cache: KVCache
    row: int


class Slots(Protocol):
    """Drafts at B anchors of a text, slot by slot."""

    def next(self, k: int, owner: Tensor, previous: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Draft rows of slot k: the new state of each, [R, ...], and its logits over the draft vocabulary, [R, Q].

        owner: [R] the anchor, 0 to B - 1. previous: [R] the token before, the newest one at slot 0. state: [R, ...] as
        the slot before gave it, None at slot 0.
        """
        ...

    def own_features(self, k: int, owner: Tensor, state: Tensor) -> Tensor | None:
        """What the drafter tells beside its rows, [R, features], in the order of its `features`."""
        ...


class DraftedText(Protocol):
    """A drafter that has read a text."""

    def begin(self, at: Tensor) -> Slots:
        """At the anchors of these positions of the text, [B] rising."""
        ...


@runtime_checkable
class Recordable(Protocol):
    """A drafter whose drafts along a known text can be recorded. vocabulary: None where it is the target's own."""

    name: str
    K: int
    state_layers: tuple[int, ...]
    features: tuple[str, ...]

    @property
    def vocabulary(self) -> DraftVocabulary | None: ...

    def follow(self, text: ReadText) -> DraftedText:
        """Along one text; what an earlier call gave is not used any more."""
        ...
