"""What a drafter proposes: tokens, and the distributions they were drawn from."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from avlab.speculation.features import Features


@dataclass(slots=True)
class Drafts:
    """tokens: [B, depth]. draft_probs: the draft distributions over the draft vocabulary, [B, depth, Q], or None where
    every draft is certain (greedy drafting, drafters without logits). vocabulary: [Q] target token ids of
    the columns, or None where they are the target's own. features: of [B, depth] slots; `widen` makes them [B, K].
    lengths: [B] how many of a request's slots hold a draft, where a drafter may find fewer than asked for; the tokens
    behind are any. None: all of them do.
    """

    tokens: Tensor
    draft_probs: Tensor | None
    vocabulary: "DraftVocabulary | None"
    features: Features
    feature_ms: float = 0.0
    lengths: np.ndarray | None = None

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


class DraftVocabulary:
    """The target tokens a drafter can propose. ids: [Q] rising target ids."""

    def __init__(self, ids: Tensor, target_vocabulary: int):
        self.ids = ids
        self.column = torch.full((target_vocabulary,), -1, dtype=torch.long, device=ids.device)
        self.column[ids] = torch.arange(len(ids), device=ids.device)
