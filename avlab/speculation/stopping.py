"""How deep to draft, by how sure recent drafts were; and how many to verify, once this step's drafts are there.

A step is worth its expected tokens less its milliseconds at the going rate (Dinkelbach 1967, "On nonlinear fractional
programming": the pair that is best so at the best rate has the best rate). `plan` averages that worth over recent
estimates. Planning with *one* step's estimates is too timid: a draft may turn out better than expected, and only one
that was made can be verified.

`stop` then goes along the ranking of this step's drafts and ends where going on does not pay. Whether a slot is
verified depends on its own survival and on larger ones, never on the token drawn at it or on slots behind it, so the
output is the target's (`tests/speculation/test_stopping.py` enumerates it). Where a larger step costs more but has room
for many drafts, it counts on as many survivals as planned, each at most as large as the one at hand. The DSpark paper's
early stop (arXiv 2607.05147) is the case that looks one slot ahead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Plan(NamedTuple):
    """depth: positions to draft. rate: tokens per millisecond that a step is expected to reach. curve: the survivals
    that this step's drafts are expected to have, best first, [B x depth]."""

    depth: int
    rate: float
    curve: np.ndarray


def plan(
    survival: np.ndarray,
    sets: int,
    draft_cost: np.ndarray,
    verify_cost: np.ndarray,
    requests: int,
    other_tokens: int,
    shallowest: int = 0,
) -> Plan:
    """The depth whose steps are worth most, over so many sets of recent drafts.

    survival [sets x requests, K]: of drafts of full depth. draft_cost [K + 1]: milliseconds by depth for this many
    requests; verify_cost [tokens + 1]. other_tokens: of the pass besides drafts. shallowest: the least depth. Ties take
    the smaller depth. With prompts in the pass (other_tokens above requests) the rate is that of the step without
    them, as in `budget.choose_depth_and_budget`.
    """
    K = survival.shape[1]
    order = np.argsort(-survival, axis=None)
    best, position = survival.ravel()[order], order % K
    curves = [best[position < depth] for depth in range(shallowest, K + 1)]
    if sets > 1:  # the mean of the 1st, 2nd, ... best of a set
        curves = [curve.reshape(-1, sets).mean(axis=1) for curve in curves]
    totals = [np.concatenate([[0.0], np.cumsum(curve)]) for curve in curves]

    def steps(other: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Tokens beyond one a request, and milliseconds, by depth and budget."""
        found = []
        for depth, total in enumerate(totals, shallowest):
            costs = verify_cost[other : other + len(total)]
            if not len(costs):  # the table ends below this step
                costs = verify_cost[-1:]
            found.append((total[: len(costs)], draft_cost[depth] + costs))
        return found

    alone = steps(requests)
    rates = [float(((requests + tokens) / cost).max()) for tokens, cost in alone]
    rate = max(rates)
    if other_tokens == requests:
        chosen = rates.index(rate)
    else:
        worth = [float((tokens - rate * cost).max()) for tokens, cost in steps(other_tokens)]
        chosen = worth.index(max(worth))
    return Plan(shallowest + chosen, rate, curves[chosen])


def worths(
    survivals: np.ndarray,
    position: np.ndarray,
    K: int,
    draft_cost: np.ndarray,
    verify_cost: np.ndarray,
    other_tokens: int,
    rate: float,
) -> np.ndarray:
    """Most tokens less milliseconds at a rate by depth 0..K, [K + 1], where this step's survivals are known before.

    survivals, position [N]: of its slots. Costs as in `plan`.
    """
    order, found = np.argsort(-survivals), np.empty(K + 1)
    best, where = survivals[order], position[order]
    for depth in range(K + 1):
        tokens = np.concatenate([[0.0], np.cumsum(best[where < depth])])
        costs = verify_cost[other_tokens : other_tokens + len(tokens)]
        found[depth] = (tokens[: len(costs)] - rate * costs).max() - rate * draft_cost[depth]
    return found


def stop(best: np.ndarray, planned: Plan, verify_cost: np.ndarray, other_tokens: int) -> int:
    """How many of this step's drafts to verify. best [N]: their survivals, best first."""
    costs = verify_cost[other_tokens : other_tokens + len(best) + 1]
    n = max(len(costs) - 1, 0)
    best, price = best[:n], planned.rate * costs
    at = np.flatnonzero(best <= price[1:] - price[:-1])  # slots that do not pay by themselves
    if not len(at):
        return n
    curve = np.zeros(n)
    curve[: len(planned.curve)] = planned.curve[:n]
    total = np.concatenate([[0.0], np.cumsum(curve)])
    furthest = np.maximum.accumulate((total - price)[::-1])[::-1]  # best worth with so many slots, or more
    mine = best[at]
    # as many slots as are planned to be better than this one count as much as it; those behind as planned
    level = np.maximum(at + 1, np.searchsorted(-curve, -mine))
    beyond = mine * (level - at) - total[level] + price[at] + furthest[level]
    for slot in np.flatnonzero(beyond <= 0):
        first, last = at[slot], level[slot]
        within = mine[slot] * np.arange(1, last - first + 1) - price[first + 1 : last + 1] + price[first]
        if within.max() <= 0:
            return int(first)
    return n


def ranking(survival: np.ndarray, scheduled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Survivals of the slots that exist, best first, and whose they are, [N] each, in the order of `allocate`."""
    B, K = survival.shape
    exists = np.arange(K)[:, None] < scheduled
    badness = np.where(exists & (survival == survival).T, -survival.T, np.inf).ravel()
    order = np.argsort(badness, kind="stable")
    best = -badness[order]
    count = int(np.searchsorted(-best, np.inf))
    return best[:count], order[:count] % B
