"""What the engine asks of a drafter, whatever it is made of."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from avlab.engine.cache import KVCache
from avlab.speculation.features import DEFAULT_FEATURES, FEATURES, Features


@dataclass(slots=True)
class DraftInput:
    """The requests a step drafts for, in rising slot order.

    newest: [B] the newest token of each, not yet in the cache. starts: its position. states: [B, S * hidden], the
    target's states at the last verified position (final, then the tapped layers the drafter asked for).
    uniforms: [B, K] draws for the draft tokens. history: the tokens of each request, prompt included, for drafters
    that read text.
    """

    slots: list[int]
    starts: list[int]
    newest: Tensor
    states: Tensor
    temperature: Tensor
    uniforms: Tensor
    cache: KVCache
    history: list[list[int]]


@dataclass(slots=True)
class Drafts:
    """tokens: [B, depth]. draft_probs: the draft distributions over the draft vocabulary, [B, depth, Q], or None where
    every draft is certain (greedy drafting, drafters without logits). vocabulary: [Q] target token ids of
    the columns, or None where they are the target's own. features: of [B, depth] slots; `widen` makes them [B, K].
    """

    tokens: Tensor
    draft_probs: Tensor | None
    vocabulary: "DraftVocabulary | None"
    features: Features
    feature_ms: float = 0.0

    def over(self, V: int, request: int = 0) -> np.ndarray:
        """A request's draft distributions over the target's V tokens, [depth, V] float64; one-hot where certain."""
        tokens = self.tokens[request].cpu().numpy()
        q, position = np.zeros((len(tokens), V)), torch.arange(len(tokens), device=self.tokens.device)
        rows = self.probs_at(torch.full_like(position, request), position)
        if rows is None:
            q[np.arange(len(tokens)), tokens] = 1.0
        else:
            ids = slice(None) if self.vocabulary is None else self.vocabulary.ids.cpu().numpy()
            q[:, ids] = rows.double().cpu().numpy()
        return q

    def probs_at(self, request: Tensor, position: Tensor) -> Tensor | None:
        """The distributions [M, Q] behind these drafts, (request, position) [M] each; None where all are certain."""
        return None if self.draft_probs is None else self.draft_probs[request, position]

    def probability(self, request: Tensor, position: Tensor, token: Tensor) -> Tensor:
        """q of the tokens drawn there, [M]; 1 where drafts are certain."""
        if self.draft_probs is None:
            return torch.ones(len(token), device=token.device)
        return self.draft_probs[request, position, self._column(token)]

    def _column(self, token: Tensor) -> Tensor:
        return token if self.vocabulary is None else self.vocabulary.column[token]

    def widen(self, K: int) -> "Drafts":
        """These drafts with features of [B, K] slots, nan behind what was drafted."""
        self.features = self.features.widen(K)
        return self


def features_given(wanted: tuple[str, ...], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The features that a drafter with logits gives: of those wanted, and of what policies read.

    own: those it knows beside what its draft rows say; they come last.
    """
    asked = tuple(dict.fromkeys((*DEFAULT_FEATURES, *wanted)))
    return (*(name for name in asked if FEATURES[name].of_row), *(name for name in asked if name in own))


class DraftVocabulary:
    """The target tokens a drafter can propose. ids: [Q] rising target ids."""

    def __init__(self, ids: Tensor, target_vocabulary: int):
        self.ids = ids
        self.column = torch.full((target_vocabulary,), -1, dtype=torch.long, device=ids.device)
        self.column[ids] = torch.arange(len(ids), device=ids.device)


class Drafter(Protocol):
    """Proposes up to K tokens a request. `state_layers` names the target layers whose inputs it wants to see.

    Autoregressive drafters (EAGLE, MTP) keep a cache of their own by slot: `forget(slot)` is called when a request
    ends. features: the names of what it tells of its drafts, always the same; `max_log_odds` is among them. Drafters
    without logits (n-gram, suffix) give draft_probs=None and a nan `max_log_odds`.
    """

    name: str
    K: int
    state_layers: tuple[int, ...]
    features: tuple[str, ...]

    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        """Drafts of this depth, 1 to K."""
        ...

    def forget(self, slot: int) -> None:
        """The request in this slot has ended."""
        ...
