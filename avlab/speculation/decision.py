"""What adaptive verification settles before a draft token is drawn, and which slots are admitted afterwards.

Depth, budget and exploration follow from estimates of earlier steps and from coins that know no draft, so they
cannot betray a draw; only the ranking looks at this step's estimates, as in `allocation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from avlab.speculation.allocation import allocate
from avlab.speculation.budget import (
    choose_depth_and_budget,
    expected_tokens,
    offered,
    peak,
    rates,
    require_fit,
    survival,
)
from avlab.speculation.costs import CostTable
from avlab.speculation.measured_costs import MeasuredCosts

LEARNT = (
    0.05  # weight of one request's estimate in the running mean; of twenty requests or steps, chosen here
)
FORGOTTEN = 0.0005  # a step's way back to 1 for a position without estimates; 2,000 steps, chosen here


@dataclass(slots=True)
class Offer:
    """What a policy decides on. B requests are ready to draft; the pass also holds other tokens.

    scheduled: [B] the most drafts each request may be offered. earlier: [B, K] estimates of the step before, nan
    where there are none: a new request, or a position that step did not draft. coins: [B] uniforms of this step
    that know no draft. emitting: requests that will emit a token this step. other_tokens: prompt and newest tokens
    of the pass.
    """

    scheduled: np.ndarray
    earlier: np.ndarray
    coins: np.ndarray
    requests: int
    emitting: int
    other_tokens: int


class Decision(NamedTuple):
    """Settled before the draft. drafted: positions the drafter runs for. explored: [B] requests to verify in full.

    depth, budget: draft tokens to verify by rank, among the first `depth` positions; `drafted` is larger where
    exploration asks for full drafts. expected_tokens: of the step without exploration; nan without estimates.
    """

    drafted: int
    depth: int
    budget: int
    explored: np.ndarray
    expected_tokens: float = float("nan")


def running_mean(mean: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """The mean estimate by position, [K], renewed by a step's estimates [B, K] (nan: none).

    The estimates of a step count as if they had come one after another, each as the step's mean: with many requests
    a single step tells all there is to know. A position that nobody estimated returns slowly to 1, what it began
    with, so that a depth that has not been drafted for long is tried again.
    """
    total = np.add.reduce(earlier, axis=0)
    if len(earlier) and (total == total).all():  # everybody has an estimate everywhere
        return mean + _learnt(len(earlier), len(mean)) * (total / len(earlier) - mean)
    known = np.isfinite(earlier)
    count = np.add.reduce(known, axis=0, dtype=np.int64)
    fresh = np.add.reduce(np.where(known, earlier, 0.0), axis=0) / np.maximum(count, 1)
    learnt = 1.0 - (1.0 - LEARNT) ** count
    return np.where(count > 0, mean + learnt * (fresh - mean), mean + FORGOTTEN * (1.0 - mean))


@lru_cache(1024)
def _learnt(estimates: int, K: int) -> np.ndarray:
    """Weight of so many estimates in the running mean of every position, [K]."""
    weights = 1.0 - (1.0 - LEARNT) ** np.full(K, estimates)
    weights.flags.writeable = False
    return weights


def decide(
    offer: Offer,
    unknown: np.ndarray,
    costs: CostTable | MeasuredCosts,
    choose_depth: bool,
    explored: np.ndarray,
) -> Decision:
    """Depth, budget and exploration of a step.

    unknown: [K] what a slot without an earlier estimate counts as. choose_depth: whether the depth is chosen with
    the budget, or is K. explored: [B] whose coin fell so; with choose_depth the first request's coin is everybody's,
    as all requests are drafted for at one depth, and it makes that depth K.
    """
    K = offer.earlier.shape[1]
    before = survival(np.where(np.isnan(offer.earlier), unknown, offer.earlier))
    size = offer.requests, offer.emitting, offer.other_tokens
    if choose_depth:
        explored = np.full(len(explored), explored[:1].any())
        depth, budget, tokens = choose_depth_and_budget(
            before, offer.scheduled, costs.by_depth(K), costs.verify, *size
        )
    else:
        require_fit(costs.draft_at(K), costs.verify, offer.requests, offer.other_tokens)
        by_budget = expected_tokens(offered(before, offer.scheduled), offer.emitting)
        draft_ms = costs.draft_at(K)[offer.requests]
        depth, budget = K, peak(rates(by_budget, draft_ms, costs.verify, offer.other_tokens))
        tokens = float(by_budget[budget])
    return Decision(K if explored.any() else depth, depth, budget, explored, tokens)


def admit(decision: Decision, survivals: np.ndarray, scheduled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prefix lengths by rank, and with exploration, [B] each. survivals: [B, K] of this step's drafts.

    Explored slots come on top: what the ranking admits is what it would have admitted without the coins.
    """
    if decision.budget:
        ranked = allocate(survivals[:, : decision.depth], scheduled, decision.budget)
    else:
        ranked = np.zeros(len(scheduled), dtype=np.int64)
    return ranked, np.where(decision.explored, scheduled, ranked) if decision.explored.any() else ranked
