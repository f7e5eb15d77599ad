"""What drafters with logits share: a draft token and its distribution from one row of logits a request."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.rows import argmax, draw
from avlab.speculation.features import log_odds_of_maximum


@dataclass(slots=True)
class Draws:
    """Draws position after position; keeps distributions and features. temperature: [B]; uniforms: [B, K]."""

    temperature: Tensor
    uniforms: Tensor
    columns: list[Tensor] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    feature_ms: float = 0.0

    def draw(self, logits: Tensor) -> Tensor:
        """Columns drawn at the next position. logits: [B, Q] float32 -> [B]; a greedy request takes its maximum."""
        greedy = self.temperature == 0
        if not bool(((self.temperature == 1) | greedy).all()):
            logits = logits / torch.where(greedy, 1.0, self.temperature)[:, None]
        q = logits.softmax(-1)
        began = time.perf_counter()
        self.features.append(log_odds_of_maximum(q, torch))
        self.feature_ms += (time.perf_counter() - began) * 1e3
        column = draw(q, self.uniforms[:, len(self.rows)])
        if bool(greedy.any()):
            top = argmax(logits[greedy])
            column[greedy] = top
            q[greedy] = F.one_hot(top, q.shape[1]).to(q.dtype)
        self.columns.append(column)
        self.rows.append(q)
        return column
