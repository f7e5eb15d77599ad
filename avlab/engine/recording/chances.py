"""The target's distributions p of many rows, as a recording asks for them: over the tokens that the drafter can say."""

from dataclasses import dataclass

import torch
from torch import Tensor

from avlab.engine.sampler import SamplingParameters, TargetProbs
from avlab.engine.target import Target

TOGETHER = 64  # rows of logits at once


@dataclass(frozen=True, slots=True)
class Sampling:
    """One sampling for all texts. temperature 0: greedy; top_k 0 and top_p 1 cut nothing."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0

    def probs(self, logits: Tensor) -> TargetProbs:
        """p of rows of logits [N, V]."""
        settings = (self.temperature, self.top_k, self.top_p)
        return TargetProbs(
            logits, SamplingParameters(*(torch.full((len(logits),), each) for each in settings))
        )


class Chances:
    """p of N rows over the Q columns of a draft vocabulary: in full, or as the C columns that a cut has kept.

    full: [N, Q], or None. columns: [N, C], -1 for tokens that the drafter lacks; masses: [N, C].
    """

    def __init__(self, full: Tensor | None, columns: Tensor, masses: Tensor):
        self.full, self.columns, self.masses = full, columns, masses

    @classmethod
    def of(cls, probs: TargetProbs, ids: Tensor, column: Tensor) -> "Chances":
        """ids: [Q] the tokens that the drafter can say; column: [V] where each token stands among them, or -1."""
        if probs.top is not None:
            return cls(None, column[probs.top][:, None], torch.ones(len(probs.top), 1))
        nothing = torch.empty(len(probs.scaled), 0)
        if probs.place is None:
            full = probs.scaled if len(ids) == probs.scaled.shape[1] else probs.scaled.index_select(1, ids)
            return cls((full - probs.normaliser[:, None]).exp_(), nothing.long(), nothing)
        return cls(None, torch.where(probs.masses > 0, column[probs.tokens], -1), probs.masses)

    @classmethod
    def joined(cls, parts: "list[Chances]") -> "Chances":
        """The rows of all parts."""
        if parts[0].full is not None:
            return cls(torch.cat([p.full for p in parts if p.full is not None]), *_rows(parts))
        return cls(None, *_rows(parts))

    def take(self, rows: Tensor) -> "Chances":
        full = None if self.full is None else self.full[rows]
        return Chances(full, self.columns[rows], self.masses[rows])

    def overlap(self, q: Tensor) -> Tensor:
        """Σ min(p, q), [N]. q: [N, Q]."""
        if self.full is not None:
            return torch.minimum(self.full, q).sum(1)
        known = self.columns >= 0
        other = q.gather(1, self.columns.clamp_min(0))
        return torch.where(known, torch.minimum(self.masses, other), 0.0).sum(1)

    def of_column(self, column: Tensor) -> Tensor:
        """p of one column in each row, [N]; column: [N]."""
        if self.full is not None:
            return self.full.gather(1, column[:, None])[:, 0]
        return torch.where(self.columns == column[:, None], self.masses, 0.0).sum(1)

    def excess(self, q: Tensor) -> Tensor:
        """(q - p)+, [N, Q]."""
        if self.full is not None:
            return (q - self.full).clamp_min_(0)
        masses = torch.where(self.columns >= 0, self.masses, 0.0)
        return q.scatter_add(1, self.columns.clamp_min(0), -masses).clamp_min_(0)


def _rows(parts: list[Chances]) -> tuple[Tensor, Tensor]:
    """Columns and masses of all parts, padded to the longest."""
    C = max(part.columns.shape[1] for part in parts)
    N = sum(len(part.columns) for part in parts)
    columns, masses, begin = torch.full((N, C), -1), torch.zeros(N, C), 0
    for part in parts:
        n, c = part.columns.shape
        columns[begin : begin + n, :c], masses[begin : begin + n, :c] = part.columns, part.masses
        begin += n
    return columns, masses


def chances(target: Target, states: Tensor, sampling: Sampling, ids: Tensor, column: Tensor) -> Chances:
    """p behind these final states, [N, hidden]."""
    return Chances.joined(
        [Chances.of(sampling.probs(target.logits(some)), ids, column) for some in states.split(TOGETHER)]
    )
