"""What drafters with logits share: a draft token and its distribution from one row of logits a request."""

import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.drafters.base import Drafts, DraftVocabulary
from avlab.engine.native import native_for
from avlab.engine.rows import argmax, draw
from avlab.speculation.features import log_odds_of_maximum


class Draws:
    """Draws position after position; keeps distributions and features.

    draft_probs: the distributions drawn from so far, [B, positions, Q]. feature_ms: time spent on features alone; 0
    where the native draw gives them along with its token.
    """

    def __init__(self, temperature: Tensor, uniforms: Tensor):
        """temperature: [B] float32, 0 for greedy; uniforms: [B, depth] float64."""
        self.temperature, self.uniforms, self.feature_ms = temperature, uniforms, 0.0
        self._probs: Tensor | None = None
        self._features: list[Tensor] = []
        self._greedy = temperature == 0
        self._some_greedy = bool(self._greedy.any())
        self._unscaled = bool(((temperature == 1) | self._greedy).all())

    @property
    def draft_probs(self) -> Tensor:
        assert self._probs is not None  # at least one position was drawn
        return self._probs[:, : len(self._features)]

    @property
    def feature(self) -> np.ndarray:
        """[B, positions] float64."""
        return torch.stack(self._features, 1).double().cpu().numpy()

    def draw(self, logits: Tensor) -> Tensor:
        """Columns drawn at the next position. logits: [B, Q] -> [B]; a greedy request takes its first maximum."""
        if self._probs is None:
            shape = (len(logits), self.uniforms.shape[1], logits.shape[1])
            self._probs = torch.empty(shape, device=logits.device)
        k = len(self._features)
        q, uniforms = self._probs[:, k], self.uniforms[:, k]
        if native := native_for(logits.dtype, logits.device):
            column, feature = native.draw(logits.contiguous(), self.temperature, uniforms, q)
        else:
            column, feature = self._draw(logits.float(), uniforms, q)
        self._features.append(feature)
        return column

    def drafts(self, tokens: Tensor, vocabulary: DraftVocabulary | None) -> Drafts:
        """What was drawn; tokens: [B, positions]."""
        return Drafts(tokens, self.draft_probs, vocabulary, self.feature, feature_ms=self.feature_ms)

    def _draw(self, logits: Tensor, uniforms: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        if not self._unscaled:
            logits = logits / torch.where(self._greedy, 1.0, self.temperature)[:, None]
        q.copy_(logits.softmax(-1))
        began = time.perf_counter()
        feature = log_odds_of_maximum(q, torch)
        self.feature_ms += (time.perf_counter() - began) * 1e3
        column = draw(q, uniforms)
        if self._some_greedy:
            top = argmax(logits[self._greedy])
            column[self._greedy] = top
            q[self._greedy] = F.one_hot(top, q.shape[1]).to(q.dtype)
        return column, feature
