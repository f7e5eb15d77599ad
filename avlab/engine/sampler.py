"""Speculative sampling over a step's logits: exact, and in as few passes over the vocabulary as possible.

The plain form stands in `avlab.speculation.sampling`; tests hold this one to it. Rows of three kinds meet in one step:
plain (temperature only; one normaliser a row, and a distribution only for the row a token is drawn from), nucleus
(top-k or top-p; the kept tokens as a list) and greedy (an argmax).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from avlab.engine.drafters.base import Drafts

FIRST_CANDIDATES = 128  # widened fourfold until the kept mass is reached; chosen here, see docs/benchmarks.md


@dataclass(slots=True)
class SamplingParameters:
    """Per request, [B]: temperature (0: greedy), top_k (0: off), top_p (1: off)."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor

    def take(self, index: Tensor) -> "SamplingParameters":
        return SamplingParameters(self.temperature[index], self.top_k[index], self.top_p[index])

    @property
    def nucleus(self) -> Tensor:
        """Requests whose distribution is cut: [B] bool."""
        return (self.temperature > 0) & ((self.top_k > 0) | (self.top_p < 1))


def speculative_sample(
    logits: Tensor,
    drafts: Drafts | None,
    draft_row: Tensor,
    admitted: Tensor,
    parameters: SamplingParameters,
    accept_uniforms: Tensor,
    token_uniforms: Tensor,
) -> tuple[Tensor, Tensor]:
    """Accept drafts with min(1, p/q); then draw a correction from (p - q)+, or a token from p.

    logits: [N, V], admitted[i] + 1 consecutive rows for each of B requests; row k of a request follows k of its drafts.
    draft_row: [B] which of the drafts' rows is a request's (not read where nothing was admitted). accept_uniforms: [B, K]; token_uniforms: [B] -> (accepted [B], the target's own token [B]).
    """
    B, device = len(admitted), logits.device
    first = torch.cumsum(admitted + 1, 0) - (admitted + 1)  # [B] each request's first row
    owner = torch.repeat_interleave(torch.arange(B, device=device), admitted + 1)  # [N]
    rows = TargetRows(logits, parameters.take(owner))
    accepted = torch.zeros(B, dtype=torch.long, device=device)
    if drafts is not None and int(admitted.max()) > 0:
        k = torch.arange(len(owner), device=device) - first[owner]  # [N] position a row judges
        judged = (k < admitted[owner]).nonzero().squeeze(1)  # rows that judge a draft
        request, position = owner[judged], k[judged]
        token = drafts.tokens[draft_row[request], position]
        p = rows.probability(judged, token)
        q = draft_probability(drafts, draft_row[request], position, token)
        # u < p/q, written without a division; a draft that q cannot have made counts as certain
        kept = accept_uniforms[request, position] * q.clamp_min(1e-38) < p
        grid = torch.zeros(B, drafts.tokens.shape[1], dtype=torch.bool, device=device)
        grid[request, position] = kept
        accepted = grid.long().cumprod(1).sum(1)
    last = first + accepted
    rejected = accepted < admitted
    return accepted, rows.draw(last, token_uniforms, drafts, draft_row, accepted, rejected)


def draft_probability(drafts: Drafts, request: Tensor, position: Tensor, token: Tensor) -> Tensor:
    """q of drawn tokens, [M]."""
    if drafts.rows is None:
        return torch.ones(len(token), device=token.device)
    column = token if drafts.vocabulary is None else drafts.vocabulary.column[token]
    return drafts.rows[request, position, column]


class TargetRows:
    """The target's distributions p of N rows, computed only as far as they are asked for."""

    def __init__(self, logits: Tensor, parameters: SamplingParameters):
        self.parameters = parameters
        temperature = torch.where(parameters.temperature > 0, parameters.temperature, 1.0)
        self.scaled = logits if bool((temperature == 1).all()) else logits / temperature[:, None]
        self.normaliser = self.scaled.logsumexp(1)  # [N]
        self.greedy = parameters.temperature == 0
        self.top = self.scaled.argmax(1) if bool(self.greedy.any()) else None
        self.cut = parameters.nucleus.nonzero().squeeze(1)
        self.place = None
        if len(self.cut):
            self.place = torch.full((len(logits),), -1, dtype=torch.long, device=logits.device)
            self.place[self.cut] = torch.arange(len(self.cut), device=logits.device)
            self.tokens, self.masses = nucleus(
                self.scaled[self.cut], self.normaliser[self.cut], parameters.take(self.cut)
            )

    def probability(self, row: Tensor, token: Tensor) -> Tensor:
        """p of one token in each of these rows, [M]."""
        p = (self.scaled[row, token] - self.normaliser[row]).exp()
        if self.top is not None:
            p = torch.where(self.greedy[row], (self.top[row] == token).to(p.dtype), p)
        if self.place is not None:
            place = self.place[row]
            inside = place >= 0
            match = self.tokens[place] == token[:, None]
            p = torch.where(inside, (match * self.masses[place]).sum(1), p)
        return p

    def draw(self, row, uniforms, drafts: Drafts | None, draft_row, position, rejected) -> Tensor:
        """One token from p, or from (p - q)+ where the draft at `position` was rejected. All [B] -> [B]."""
        place = None if self.place is None else self.place[row]
        plain = torch.ones_like(rejected) if place is None else place < 0
        token = torch.empty_like(row)
        for chosen, listed in ((plain.nonzero().squeeze(1), False), ((~plain).nonzero().squeeze(1), True)):
            if not len(chosen):
                continue
            if listed:
                columns, p = self.tokens[place[chosen]], self.masses[place[chosen]].clone()
            else:
                columns, p = None, (self.scaled[row[chosen]] - self.normaliser[row[chosen], None]).exp()
            again = rejected[chosen].nonzero().squeeze(1)
            if len(again):
                request = chosen[again]
                listed_columns = None if columns is None else columns[again]
                p[again] = residual(p[again], listed_columns, drafts, draft_row[request], position[request])
            cumulative = p.cumsum(1, dtype=torch.float64)
            draw = uniforms[chosen, None].double() * cumulative[:, -1:]
            index = torch.searchsorted(cumulative, draw, right=True).squeeze(1).clamp_max(p.shape[1] - 1)
            token[chosen] = index if columns is None else columns.gather(1, index[:, None]).squeeze(1)
        return token if self.top is None else torch.where(self.greedy[row], self.top[row], token)


def residual(p: Tensor, columns: Tensor | None, drafts: Drafts, request: Tensor, position: Tensor) -> Tensor:
    """(p - q)+ unnormalised, for rows p over the whole vocabulary or over listed tokens `columns`."""
    if drafts.rows is None:
        refused = drafts.tokens[request, position]
        if columns is None:
            return p.scatter(1, refused[:, None], 0.0)
        return torch.where(columns == refused[:, None], 0.0, p)
    q = drafts.rows[request, position]  # [M, Q]
    ids = drafts.vocabulary
    if columns is not None:
        column = columns if ids is None else ids.column[columns]
        p = p - torch.where(column >= 0, q.gather(1, column.clamp_min(0)), 0.0)
    elif ids is None:
        p = p - q
    else:
        p = p.index_add(1, ids.ids, q, alpha=-1)
    return p.clamp_min_(0)


def nucleus(scaled: Tensor, normaliser: Tensor, parameters: SamplingParameters) -> tuple[Tensor, Tensor]:
    """The kept tokens of rows cut by top-k, then top-p: (ids [M, C], renormalised masses [M, C], 0 where not kept).

    The best few tokens are looked at; where they do not reach the mass to keep (or k tokens), more are, up to all of
    them, so the cut is exact. Equal logits rank by token id; the token that crosses top-p is kept.
    """
    M, V = scaled.shape
    wanted_k = torch.where(parameters.top_k > 0, parameters.top_k.clamp_max(V), V)
    C = min(V, FIRST_CANDIDATES)
    while True:
        values, tokens = scaled.topk(min(V, C + 1), dim=1)
        p = (values - normaliser[:, None]).exp()
        # a tie between the last candidate and the first outside it would make the cut depend on topk's order
        tied = (values[:, -1] == values[:, -2]) if values.shape[1] > C else torch.zeros(M, dtype=torch.bool)
        values, tokens, p = values[:, :C], tokens[:, :C], p[:, :C]
        inside_k = torch.arange(C, device=scaled.device) < wanted_k[:, None]
        kept_mass = (p * inside_k).sum(1)
        enough = (wanted_k <= C) | ((p.sum(1) >= parameters.top_p) & (wanted_k >= V))
        # with both cuts, top-p is a share of the top-k mass, so k candidates are needed unless top-p alone suffices
        enough |= (p.sum(1) >= parameters.top_p) & (parameters.top_p < 1)
        if C >= V or bool((enough & ~tied).all()):
            break
        C = min(V, C * 4)
    order = torch.sort(tokens, dim=1).indices  # first by id, then stably by logit: equals rank by id
    tokens, values, p = tokens.gather(1, order), values.gather(1, order), p.gather(1, order)
    order = torch.sort(values, dim=1, descending=True, stable=True).indices
    tokens, p = tokens.gather(1, order), p.gather(1, order).double() * inside_k
    total = torch.where(wanted_k >= V, 1.0, kept_mass.double())
    above = p.cumsum(1) - p
    keep = (above < parameters.top_p.double()[:, None] * total[:, None]) | (parameters.top_p >= 1)[:, None]
    keep[:, 0] = True
    p = torch.where(keep, p, 0.0)
    return tokens, (p / p.sum(1, keepdim=True)).to(scaled.dtype)
