"""What drafters with logits share: a draft token and its distribution from one row of logits a request."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.drafts import Drafts, DraftVocabulary
from avlab.engine.native import native_for
from avlab.engine.rows import argmax, draw
from avlab.speculation.features import FEATURES, Features, log_odds_of_maximum

AT_THE_DRAW = "max_log_odds"  # the feature that a native draw gives along with its token


def row_features(
    names: Sequence[str],
    at_the_draw: Tensor,
    weights: Tensor | None = None,
    columns: Tensor | None = None,
) -> Features:
    """Features of drawn rows [B, depth]: those of `names` that have a formula.

    at_the_draw: [B, depth], of that name. weights: [B, depth, Q], as `RowFormula` says, and columns: [B, depth], drawn
    from the rows; None where no other feature is asked for.
    """
    found: dict[str, np.ndarray] = {}
    for name in names:
        value, formula = at_the_draw, FEATURES[name].of_row
        if formula is None:
            continue
        if name != AT_THE_DRAW:
            assert weights is not None and columns is not None
            value = formula(weights, weights.gather(-1, columns[..., None])[..., 0], torch)
        found[name] = value.double().cpu().numpy()
    return Features.of(found)


def needs_weights(names: Sequence[str]) -> bool:
    """Whether a feature is among these that takes another look at the rows."""
    return any(FEATURES[name].of_row and name != AT_THE_DRAW for name in names)


class Draws:
    """Draws position after position; keeps distributions and features.

    draft_probs: the distributions drawn from so far, [B, positions, Q]. feature_ms: time spent on features alone; the
    native draw gives `AT_THE_DRAW` along with its token.
    """

    def __init__(self, temperature: Tensor, uniforms: Tensor, names: Sequence[str] = (AT_THE_DRAW,)):
        """temperature: [B] float32, 0 for greedy; uniforms: [B, depth] float64; names: of the features wanted."""
        self.temperature, self.uniforms, self.names, self.feature_ms = temperature, uniforms, names, 0.0
        self._probs: Tensor | None = None
        self._weights: Tensor | None = (
            None  # the same before greedy rows are made certain, where a feature asks
        )
        self._features: list[Tensor] = []  # at the draw, [B] a position
        self._columns: list[Tensor] = []
        self._greedy = temperature == 0
        self._some_greedy = bool(self._greedy.any())
        self._unscaled = bool(((temperature == 1) | self._greedy).all())

    @property
    def draft_probs(self) -> Tensor:
        assert self._probs is not None  # at least one position was drawn
        return self._probs[:, : len(self._features)]

    @property
    def features(self) -> Features:
        """The features wanted that are of rows, [B, positions, F]."""
        at_the_draw = torch.stack(self._features, 1)
        if self._weights is None:
            return row_features(self.names, at_the_draw)
        began = time.perf_counter()
        weights, columns = self._weights[:, : len(self._features)], torch.stack(self._columns, 1)
        found = row_features(self.names, at_the_draw, weights, columns)
        self.feature_ms += (time.perf_counter() - began) * 1e3
        return found

    def draw(self, logits: Tensor) -> Tensor:
        """Columns drawn at the next position. logits: [B, Q] -> [B]; a greedy request takes its first maximum."""
        if self._probs is None:
            shape = (len(logits), self.uniforms.shape[1], logits.shape[1])
            self._probs = torch.empty(shape, device=logits.device)
            self._weights = torch.empty_like(self._probs) if needs_weights(self.names) else None
        k = len(self._features)
        q, uniforms = self._probs[:, k], self.uniforms[:, k]
        weights = None if self._weights is None else self._weights[:, k]
        if native := native_for(logits.dtype, logits.device):
            column, feature = native.draw(logits.contiguous(), self.temperature, uniforms, q, weights)
        else:
            column, feature = self._draw(logits.float(), uniforms, q, weights)
        self._features.append(feature)
        self._columns.append(column)
        return column

    def instead(self, columns: Tensor) -> None:
        """These columns [B] were taken at the last position, not those drawn."""
        self._columns[-1] = columns

    def drafts(self, tokens: Tensor, vocabulary: DraftVocabulary | None) -> Drafts:
        """What was drawn; tokens: [B, positions]."""
        features = self.features  # first: it counts its time
        return Drafts(tokens, self.draft_probs, vocabulary, features, self.feature_ms)

    def _draw(
        self, logits: Tensor, uniforms: Tensor, q: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if not self._unscaled:
            logits = logits / torch.where(self._greedy, 1.0, self.temperature)[:, None]
        q.copy_(logits.softmax(-1))
        if weights is not None:
            weights.copy_(q)
        began = time.perf_counter()
        feature = log_odds_of_maximum(q, torch)
        self.feature_ms += (time.perf_counter() - began) * 1e3
        column = draw(q, uniforms)
        if self._some_greedy:
            top = argmax(logits[self._greedy])
            column[self._greedy] = top
            q[self._greedy] = F.one_hot(top, q.shape[1]).to(q.dtype)
        return column, feature
