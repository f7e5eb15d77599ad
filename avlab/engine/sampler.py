"""Speculative sampling over a step's logits: exact, and in as few passes over the vocabulary as possible.

The plain form stands in `avlab.speculation.sampling`; tests hold this one to it. Rows of three kinds meet in one step:
plain (temperature only; one normaliser a row, and a distribution only for the row a token is drawn from), nucleus
(top-k or top-p; the kept tokens as a list) and greedy (an argmax).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from avlab.engine.drafts import Drafts
from avlab.engine.native import native_for
from avlab.engine.rows import argmax, draw, draw_rows, log_sum_exp, probabilities, where_true

FIRST_BOUND = 3e-5  # tokens less likely are looked at only where the others do not suffice (measured)
LAST_BOUND = 1e-9  # from here on every token is
# recovered tokens drawn at a time: their rows then stay in a processor's cache (200 rows take 0.4 of the time)
TOGETHER = 16


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


class Probs(Protocol):
    """The target's distributions p of a step's N rows, as `speculative_sample` asks for them."""

    def probability(self, row: Tensor, token: Tensor) -> Tensor:
        """p of one token in each of these rows, [M]."""
        ...

    def draw(self, row: Tensor, uniforms: Tensor) -> Tensor:
        """A token from p of each of these rows, [M]."""
        ...

    def recover(
        self, row: Tensor, drafts: Drafts, request: Tensor, position: Tensor, uniforms: Tensor
    ) -> Tensor:
        """A recovered token for each rejected draft (request, position), from (p - q)+ with p of its row, [M]."""
        ...


class LogitRows:
    """The logits of the rows that a step samples from, [N, V]: what the target hands to the sampler."""

    def __init__(self, logits: Tensor):
        self._logits = logits

    def __len__(self) -> int:
        return len(self._logits)

    @property
    def logits(self) -> Tensor:
        return self._logits

    def probs(self, parameters: SamplingParameters) -> Probs:
        """Their distributions under these parameters, [N]."""
        return TargetProbs(self._logits, parameters)


class Sampled(NamedTuple):
    """Of each of B requests, [B]: how many drafts were accepted, and the target's own token behind them.

    expected: how many were to be expected of these drafts, the sum over positions of the products of min(1, p/q): the
    mean of `accepted` over the coins, whatever the drafts.
    """

    accepted: Tensor
    token: Tensor
    expected: Tensor


def speculative_sample(
    rows: LogitRows,
    drafts: Drafts | None,
    draft_row: Tensor,
    admitted: Tensor,
    parameters: SamplingParameters,
    accept_uniforms: Tensor,
    token_uniforms: Tensor,
) -> Sampled:
    """Accept drafts with min(1, p/q); then draw a recovered token from (p - q)+, or a bonus token from p.

    rows: N, admitted[i] + 1 consecutive ones for each of B requests; row k of one follows k of its drafts.
    draft_row: [B] which of the drafts' rows is a request's (not read where nothing was admitted).
    accept_uniforms: [B, K]; token_uniforms: [B].
    """
    B, device = len(admitted), admitted.device
    first = torch.cumsum(admitted + 1, 0) - (admitted + 1)  # [B] each request's first row
    owner = torch.repeat_interleave(torch.arange(B, device=device), admitted + 1)  # [N]
    probs = rows.probs(parameters.take(owner))
    token = torch.empty_like(admitted)
    if drafts is None or int(admitted.max()) == 0:
        none = torch.zeros_like(admitted)
        return Sampled(none, probs.draw(first, token_uniforms), none.to(torch.float32))

    k = torch.arange(len(owner), device=device) - first[owner]  # [N] position a row judges
    judged = (k < admitted[owner]).nonzero().squeeze(1)  # rows that judge a draft
    request, position = owner[judged], k[judged]
    drafted = drafts.tokens[draft_row[request], position]
    p = probs.probability(judged, drafted)
    q = drafts.probability(draft_row[request], position, drafted)
    # a draft that q cannot have made counts as certain
    q = q.clamp_min(1e-38)
    grid = torch.zeros(2, B, drafts.tokens.shape[1], dtype=torch.float32, device=device)
    grid[0, request, position] = (accept_uniforms[request, position] * q < p).float()  # u < p/q
    grid[1, request, position] = (p / q).clamp_max(1.0).float()
    accepted, expected = grid.cumprod(2).sum(2)
    accepted = accepted.long()

    last = first + accepted
    bonus, rejected = where_true(accepted == admitted), where_true(accepted < admitted)
    if len(bonus):
        token[bonus] = probs.draw(last[bonus], token_uniforms[bonus])
    if len(rejected):
        refused = draft_row[rejected], accepted[rejected]
        token[rejected] = probs.recover(last[rejected], drafts, *refused, token_uniforms[rejected])
    return Sampled(accepted, token, expected)


class TargetProbs:
    """`Probs` of rows of logits, computed only as far as they are asked for."""

    def __init__(self, logits: Tensor, parameters: SamplingParameters):
        """logits: [N, V]; parameters: [N]. Raises SamplingError."""
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
        cut = parameters.nucleus.nonzero().squeeze(1)
        self.place = None
        if len(cut):
            self.place = torch.full((len(logits),), -1, dtype=torch.long, device=logits.device)
            self.place[cut] = torch.arange(len(cut), device=logits.device)
            self.tokens, self.masses = nucleus(self.scaled, cut, self.normaliser, parameters.take(cut))

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

    def draw(self, row: Tensor, uniforms: Tensor) -> Tensor:
        """A token from p of each of these rows, [M]."""
        token, plain, cut = self._by_kind(row)
        if len(plain):
            token[plain] = draw_rows(self.scaled, row[plain], self.normaliser, uniforms[plain])
        if len(cut):
            columns, p = self._kept(row[cut])
            token[cut] = columns.gather(1, draw(p, uniforms[cut])[:, None]).squeeze(1)
        return token

    def recover(
        self, row: Tensor, drafts: Drafts, request: Tensor, position: Tensor, uniforms: Tensor
    ) -> Tensor:
        """A recovered token for each rejected draft (request, position), from (p - q)+ with p of its row, [M]."""
        token, plain, cut = self._by_kind(row)
        for some in plain.split(TOGETHER) if len(plain) else ():
            p = probabilities(self.scaled, row[some], self.normaliser)
            token[some] = draw(excess(p, None, drafts, request[some], position[some]), uniforms[some])
        if len(cut):
            columns, p = self._kept(row[cut])
            left = excess(p, columns, drafts, request[cut], position[cut])
            token[cut] = columns.gather(1, draw(left, uniforms[cut])[:, None]).squeeze(1)
        return token

    def _by_kind(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens with those of greedy rows filled in, and which of these rows are plain and which are cut."""
        token = torch.empty_like(row) if self.top is None else self.top[row]
        plain = ~self.greedy[row]
        if self.place is None:
            return token, where_true(plain), row[:0]
        cut = self.place[row] >= 0
        return token, where_true(plain & ~cut), where_true(cut)

    def _kept(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """The kept tokens of cut rows and their masses, [M, C] each."""
        assert self.place is not None
        place = self.place[row]
        return self.tokens[place], self.masses[place]


def excess(p: Tensor, columns: Tensor | None, drafts: Drafts, request: Tensor, position: Tensor) -> Tensor:
    """What recovered tokens are drawn from; p itself where p and q differ by rounding and nothing is left of p - q."""
    left = residual(p, columns, drafts, request, position)
    some = left.sum(1, keepdim=True) > 0
    return left if bool(some.all()) else torch.where(some, left, p)


def residual(p: Tensor, columns: Tensor | None, drafts: Drafts, request: Tensor, position: Tensor) -> Tensor:
    """(p - q)+ unnormalised, for rows p over the whole vocabulary or over listed tokens `columns`."""
    q = drafts.probs_at(request, position)  # [M, Q]
    if q is None:
        refused = drafts.tokens[request, position]
        if columns is None:
            return p.scatter(1, refused[:, None], 0.0)
        return torch.where(columns == refused[:, None], 0.0, p)
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
