"""Rows of which many are the same: what a step's sampler reads in an audit, with each distinct row computed once.

The engine hands them on as it does its own: `SharedRows` is a `LogitRows`, `SharedDrafts` are `Drafts`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from avlab.engine.drafters.draws import AT_THE_DRAW, Draws
from avlab.engine.drafts import Drafts, DraftVocabulary
from avlab.engine.rows import draw, draw_rows, log_sum_exp, probabilities, where_true
from avlab.engine.sampler import TOGETHER, LogitRows, SamplingParameters, excess
from avlab.speculation.features import Features


class SharedRows(LogitRows):
    """Logits [N, V] that are rows of a table, by number.

    table: [T, V] float32; normalisers: [T] the rows' log Σ exp; index: [N].
    """

    def __init__(self, table: Tensor, normalisers: Tensor, index: Tensor):
        self.table, self.normalisers, self.index = table, normalisers, index

    def __len__(self) -> int:
        return len(self.index)

    @property
    def logits(self) -> Tensor:
        return self.table[self.index]

    def over(self, temperature: Tensor) -> "SharedRows":
        """The rows over one temperature, a number: each distinct one is divided once."""
        if float(temperature) == 1:
            return self
        once, index = self.index.unique(return_inverse=True)
        table = self.table[once] / temperature
        return SharedRows(table, log_sum_exp(table), index)

    def probs(self, parameters: SamplingParameters) -> "SharedProbs":
        """Their distributions; an audit samples at one temperature above 0, and cuts nothing."""
        return SharedProbs(self.over(parameters.temperature[0]))


class SharedProbs:
    """The target's distributions over shared rows, as `avlab.engine.sampler.Probs` asks for them."""

    def __init__(self, rows: SharedRows):
        """rows: logits over temperature."""
        self.rows = rows

    def probability(self, row: Tensor, token: Tensor) -> Tensor:
        """p of one token in each of these rows, [M]."""
        number = self.rows.index[row]
        return (self.rows.table[number, token] - self.rows.normalisers[number]).exp()

    def draw(self, row: Tensor, uniforms: Tensor) -> Tensor:
        """A token from p of each of these rows, [M]."""
        return draw_rows(self.rows.table, self.rows.index[row], self.rows.normalisers, uniforms)

    def recover(
        self, row: Tensor, drafts: Drafts, request: Tensor, position: Tensor, uniforms: Tensor
    ) -> Tensor:
        """Recovered tokens [M] from (p - q)+, which is computed once for each distinct pair of p and q."""
        number = self.rows.index[row]
        if not isinstance(drafts, SharedDrafts):
            return self._one_by_one(number, drafts, request, position, uniforms)
        pair = number * len(drafts.draft_probs) + drafts.place[request, position]
        _, back = pair.unique(return_inverse=True)  # [M] which of the U distinct pairs each is
        one = torch.empty(int(back.max()) + 1, dtype=torch.long, device=back.device)  # [U] an example of each
        one[back] = torch.arange(len(back), device=back.device)
        token = torch.empty_like(row)
        for begin, some in enumerate(one.split(TOGETHER)):
            p = probabilities(self.rows.table, number[some], self.rows.normalisers)
            left = excess(p, None, drafts, request[some], position[some])
            whose = where_true(back // TOGETHER == begin)
            token[whose] = draw(left, uniforms[whose], back[whose] % TOGETHER)
        return token

    def _one_by_one(
        self, number: Tensor, drafts: Drafts, request: Tensor, position: Tensor, uniforms: Tensor
    ) -> Tensor:
        """The same where each draft has a distribution of its own. number: [M] rows of the table."""
        token = torch.empty_like(number)
        for some in torch.arange(len(number), device=number.device).split(TOGETHER):
            p = probabilities(self.rows.table, number[some], self.rows.normalisers)
            token[some] = draw(excess(p, None, drafts, request[some], position[some]), uniforms[some])
        return token


@dataclass(slots=True, kw_only=True)
class SharedDrafts(Drafts):
    """Drafts of which many were drawn from the same distribution, each kept once.

    draft_probs: [T, Q] the distinct ones; place: [B, depth] which of them is a slot's.
    """

    draft_probs: Tensor
    place: Tensor

    def probs_at(self, request: Tensor, position: Tensor) -> Tensor:
        return self.draft_probs[self.place[request, position]]

    def probability(self, request: Tensor, position: Tensor, token: Tensor) -> Tensor:
        return self.draft_probs[self.place[request, position], self._column(token)]


class SharedDraws:
    """As `Draws`, from shared rows at one temperature: a row's distribution and feature are computed once."""

    def __init__(self, temperature: Tensor, uniforms: Tensor):
        """temperature: [B] float32, all the same; uniforms: [B, depth] float64."""
        self.temperature, self.uniforms = temperature, uniforms
        self._tables: list[Tensor] = []
        self._places: list[Tensor] = []
        self._features: list[np.ndarray] = []  # [B, F] a position

    def draw(self, rows: SharedRows) -> Tensor:
        """Columns drawn at the next position, [B]."""
        U, k = len(rows.table), len(self._places)
        once = Draws(self.temperature[:1].expand(U).contiguous(), self.uniforms.new_zeros(U, 1))
        once.draw(rows.table)
        self._places.append(sum(map(len, self._tables)) + rows.index)
        self._tables.append(once.draft_probs[:, 0])
        self._features.append(once.features.values[:, 0][rows.index.cpu().numpy()])
        scaled = rows.over(self.temperature[0])
        return draw_rows(scaled.table, scaled.index, scaled.normalisers, self.uniforms[:, k].contiguous())

    def drafts(self, tokens: Tensor, vocabulary: DraftVocabulary) -> SharedDrafts:
        """What was drawn; tokens: [B, depth]."""
        return SharedDrafts(
            tokens=tokens,
            draft_probs=torch.cat(self._tables),
            place=torch.stack(self._places, 1),
            vocabulary=vocabulary,
            features=Features((AT_THE_DRAW,), np.stack(self._features, 1)),
        )
