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
    that this step's drafts are expected to have, best first, [B x depth]. plain: the rate of a step without drafts; 0
    where it was not looked at."""

    depth: int
    rate: float
    curve: np.ndarray
    plain: float = 0.0


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
    depths = np.arange(shallowest, K + 1)  # [D]
    order = np.argsort(-survival, axis=None)
    best, position = survival.ravel()[order], order % K
    slots = requests * depths
    tokens = np.full((len(depths), requests * K + 1), -np.inf)  # beyond one a request, by depth and budget
    tokens[:, 0] = 0.0
    curves = tokens[:, 1:]
    if sets == 1:
        for curve, depth, many in zip(curves, depths.tolist(), slots.tolist(), strict=True):
            curve[:many] = best if depth == K else best[position < depth]
    else:  # the mean of the 1st, 2nd, ... best of a set
        drafted = position < depths[:, None]  # [D, slots]: those that a draft of each depth has
        every = np.broadcast_to(best, drafted.shape)[drafted].reshape(-1, sets)
        curves[np.arange(requests * K) < slots[:, None]] = np.add.reduce(every, axis=1) / sets
    gain = np.add.accumulate(tokens, axis=1)
    draft = draft_cost[depths, None]

    def milliseconds(other: int) -> np.ndarray:
        """By depth and budget, as far as the table reaches; a step without drafts is always possible."""
        first = min(other, len(verify_cost) - 1)
        return draft + verify_cost[first : max(other + requests * K, first) + 1]

    cost = milliseconds(requests)
    rates = ((requests + gain[:, : cost.shape[1]]) / cost).max(axis=1)
    rate = float(rates.max())
    if other_tokens == requests:
        chosen = int(rates.argmax())
    else:
        cost = milliseconds(other_tokens)
        chosen = int((gain[:, : cost.shape[1]] - rate * cost).max(axis=1).argmax())
    plain = 0.0 if shallowest else float(rates[0])
    return Plan(shallowest + chosen, rate, curves[chosen, : slots[chosen]], plain)


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


class Prices(NamedTuple):
    """What `stop` holds survivals against: the same for every step of a plan, of one size, at the same costs.

    N: slots, or as many as the cost table reaches. slot [N]: what each next slot costs, in tokens at the plan's rate.
    price [N + 1]: of the pass with so many. total [N + 1]: the survivals planned, summed. furthest [N + 1]: best worth
    with so many slots, or more, as planned. falling [N]: the planned survivals, negated.
    """

    slot: np.ndarray
    price: np.ndarray
    total: np.ndarray
    furthest: np.ndarray
    falling: np.ndarray


def prices(planned: Plan, verify_cost: np.ndarray, other_tokens: int, slots: int) -> Prices:
    """Of a step with so many slots drafted, and other tokens in the pass."""
    price = planned.rate * verify_cost[other_tokens : other_tokens + slots + 1]
    n = max(len(price) - 1, 0)
    curve = np.zeros(n)
    curve[: len(planned.curve)] = planned.curve[:n]
    total = np.concatenate([[0.0], np.cumsum(curve)])
    worth = total[: len(price)] - price
    return Prices(price[1:] - price[:-1], price, total, np.maximum.accumulate(worth[::-1])[::-1], -curve)


def stop(best: np.ndarray, given: Prices) -> int:
    """How many of this step's drafts to verify. best [N]: their survivals, best first."""
    slot, price, total, furthest, falling = given
    n = len(slot)
    at = (best[:n] <= slot).nonzero()[0]  # slots that do not pay by themselves
    if not len(at):
        return n
    mine = best[at]
    # as many slots as are planned to be better than this one count as much as it; those behind as planned
    level = np.maximum(at + 1, falling.searchsorted(-mine))
    beyond = mine * (level - at) - total[level] + price[at] + furthest[level]
    for one in (beyond <= 0).nonzero()[0].tolist():
        first, last = int(at[one]), int(level[one])
        within = mine[one] * np.arange(1, last - first + 1) - price[first + 1 : last + 1] + price[first]
        if within.max() <= 0:
            return first
    return n
