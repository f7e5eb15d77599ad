"""Speculative sampling over a step's logits: exact, and in as few passes over the vocabulary as possible.

The plain form stands in `avlab.speculation.sampling`; tests hold this one to it. Rows of three kinds meet in one step:
plain (temperature only; one normaliser a row, and a distribution only for the row a token is drawn from), nucleus
(top-k or top-p; the kept tokens as a list) and greedy (an argmax).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from avlab.engine.drafters.base import Drafts
from avlab.engine.native import native_for
from avlab.engine.rows import alike, argmax, draw, draw_rows, log_sum_exp, probabilities, where_true

FIRST_BOUND = (
    3e-5  # tokens less likely than this are looked at only where the others do not suffice (measured)
)
LAST_BOUND = 1e-9  # from here on every token is
CORRECTED = 16  # rows corrected at a time: they stay in a processor's cache (200 rows take 0.4 of the time)


# whose distributions, whom they are drawn for, and whose is whose (None: each has its own)
Corrections = tuple[Tensor, Tensor, Tensor | None]


class SamplingError(RuntimeError):
    """The target's logits cannot be sampled from. The message says what to do."""


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

    logits: [N, V], admitted[i] + 1 consecutive rows for each of B requests; row k of one follows k of its drafts.
    draft_row: [B] which of the drafts' rows is a request's (not read where nothing was admitted).
    accept_uniforms: [B, K]; token_uniforms: [B] -> (accepted [B], the target's own token [B]).
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
        self.normaliser = log_sum_exp(self.scaled)  # [N]
        if not bool(self.normaliser.isfinite().all()):
            raise SamplingError(
                "The target gave logits that are not finite: its weights are damaged, or --dtype bfloat16 is too "
                "narrow for them; fetch the checkpoint again, or try --dtype float32."
            )
        self.greedy = parameters.temperature == 0
        self.top = None
        if bool(self.greedy.any()):
            self.top = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
            self.top[self.greedy] = argmax(logits if bool(self.greedy.all()) else logits[self.greedy])
        self.cut = parameters.nucleus.nonzero().squeeze(1)
        self.place = None
        if len(self.cut):
            self.place = torch.full((len(logits),), -1, dtype=torch.long, device=logits.device)
            self.place[self.cut] = torch.arange(len(self.cut), device=logits.device)
            self.tokens, self.masses = nucleus(
                self.scaled, self.cut, self.normaliser, parameters.take(self.cut)
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
        place = torch.full_like(row, -1) if self.place is None else self.place[row]
        token = torch.empty_like(row) if self.top is None else self.top[row]
        plain = (place < 0) & ~self.greedy[row]
        fresh, again, cut = (
            where_true(plain & ~rejected),
            where_true(plain & rejected),
            where_true(place >= 0),
        )
        if len(fresh):
            token[fresh] = draw_rows(self.scaled, row[fresh], self.normaliser, uniforms[fresh])
        for some, whom, which in self._corrections(again, row, drafts, draft_row, position):
            p = probabilities(self.scaled, row[some], self.normaliser)
            left = excess(p, None, drafts, draft_row[some], position[some])
            token[whom] = draw(left, uniforms[whom], which)
        if len(cut):
            columns, p = self.tokens[place[cut]], self.masses[place[cut]].clone()
            refused = where_true(rejected[cut])
            if len(refused):
                request = cut[refused]
                p[refused] = excess(
                    p[refused], columns[refused], drafts, draft_row[request], position[request]
                )
            token[cut] = columns.gather(1, draw(p, uniforms[cut])[:, None]).squeeze(1)
        return token

    def _corrections(
        self, again: Tensor, row, drafts: Drafts | None, draft_row, position
    ) -> Iterator[Corrections]:
        """The rejected requests `again`, [M], some distributions at a time."""
        if not len(again):
            return
        assert drafts is not None  # something was rejected
        same = alike(self.scaled, row[again], drafts.rows, (draft_row[again], position[again]))
        if same is None:
            yield from ((some, some, None) for some in again.split(CORRECTED))
            return
        one, back = same
        for begin, some in enumerate(one.split(CORRECTED)):
            whom = where_true(back // CORRECTED == begin)
            yield again[some], again[whom], back[whom] % CORRECTED


def excess(p: Tensor, columns: Tensor | None, drafts: Drafts | None, request, position) -> Tensor:
    """What a correction is drawn from; p itself where p and q differ by rounding alone and nothing is left of p - q."""
    assert drafts is not None  # something was rejected
    left = residual(p, columns, drafts, request, position)
    some = left.sum(1, keepdim=True) > 0
    return left if bool(some.all()) else torch.where(some, left, p)


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
        p = p.scatter_add(1, ids.ids.expand_as(q), -q)  # index_add takes eight times as long (measured)
    return p.clamp_min_(0)


def nucleus(
    scaled: Tensor, rows: Tensor, normaliser: Tensor, parameters: SamplingParameters
) -> tuple[Tensor, Tensor]:
    """The kept tokens of rows cut by top-k, then top-p, by rank: (ids [M, C], renormalised masses [M, C], 0 beyond).

    scaled: [N, V] logits over temperature; normaliser: [N]; rows: [M] those to cut; parameters: theirs, [M]. Only
    tokens above a small probability are looked at; where those do not hold the mass to keep (or k tokens), the bound is
    lowered, down to every token, so the cut is exact. Tokens rank by logit, equals by id; the token that crosses top-p
    is kept.
    """
    if native := native_for(scaled.dtype, scaled.device):
        cut = (rows, normaliser, parameters.top_k, parameters.top_p)
        return native.nucleus(scaled.contiguous(), *cut, math.log(FIRST_BOUND), math.log(LAST_BOUND))
    M, V = len(rows), scaled.shape[1]
    normaliser = normaliser[rows]
    wanted = torch.where(parameters.top_k > 0, parameters.top_k.clamp_max(V), V)  # [M]
    bound = torch.full((M,), math.log(FIRST_BOUND), device=scaled.device)
    while True:
        flat = where_true(scaled[rows] > (normaliser + bound)[:, None])
        row, tokens = flat // V, flat % V  # by row, then by token
        counts = torch.bincount(row, minlength=M)
        mass = torch.zeros(M, device=scaled.device, dtype=torch.float64)
        mass.index_add_(0, row, (scaled[rows[row], tokens] - normaliser[row]).double().exp())
        short = torch.where(wanted < V, counts < wanted, mass < parameters.top_p) & torch.isfinite(bound)
        if not bool(short.any()):
            break
        bound[short] = torch.where(bound[short] > math.log(LAST_BOUND), bound[short] - math.log(8), -math.inf)
    C = int(counts.max())
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    ids = torch.zeros(M, C, dtype=torch.long, device=row.device)
    values = torch.full((M, C), -math.inf, device=row.device)
    ids[row, place], values[row, place] = tokens, scaled[rows[row], tokens]
    ranked, order = values.sort(dim=1, descending=True, stable=True)  # equals stay in the order of their ids
    masses = (ranked - normaliser[:, None]).double().exp()
    masses *= torch.arange(C, device=row.device) < wanted[:, None]
    running = masses.cumsum(1)
    total = torch.where(wanted < V, running[:, -1], 1.0)
    inside = running - masses < (parameters.top_p.double() * total)[:, None]
    inside |= (parameters.top_p >= 1)[:, None]
    kept = torch.minimum((inside & (masses > 0)).sum(1).clamp_min(1), wanted)  # [M] how many, in rank order
    most = int(kept.max())
    p = masses[:, :most] * (torch.arange(most, device=row.device) < kept[:, None])
    return ids.gather(1, order[:, :most]), (p / p.sum(1, keepdim=True)).float()
