"""Rules that decide which draft slots are verified, sound ones and unsound ones, for `exact`.

A rule is sound when whether slot k is verified depends on the prefix before k, never on the token drawn at k
or later. Four ways to break that are built from the parts here: the drawn token's own probability as score; a
budget from this step's estimates under a cost that is not convex; draft noise used twice (`exact`); ties by
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product
from math import comb, prod

import numpy as np

from avlab.bias.exact import Rule, Step, Tokens
from avlab.speculation.allocation import allocate
from avlab.speculation.budget import choose_budget, peak, survival
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Decision, Offer, admit, decide, running_mean

Score = Callable[[np.ndarray, int], float]
Ways = list[tuple[float, tuple[int, ...]]]
ROUNDING = 1e-9  # what a score may miss a threshold by


def drawn_token_probability(row: np.ndarray, token: int) -> float:
    """q of the drawn token: ranks best, and is not sound, as it looks at the token it decides on."""
    return float(row[token])


def maximum_probability(row: np.ndarray, token: int) -> float:
    """The largest q of the row; vLLM's feature."""
    return float(row.max())


def entropy_certainty(row: np.ndarray, token: int) -> float:
    """exp(-entropy) of the row: 1 for a certain row, 1 / V for a flat one."""
    weights = row[row > 0]
    return float(np.exp((weights * np.log(weights)).sum()))


def top_two_margin(row: np.ndarray, token: int) -> float:
    """The largest q of the row less the second largest."""
    second, first = np.partition(row, len(row) - 2)[-2:]
    return float(first - second)


SCORES: dict[str, Score] = {
    "drawn-token probability": drawn_token_probability,
    "maximum probability": maximum_probability,
    "entropy": entropy_certainty,
    "top-two margin": top_two_margin,
}


def fixed(length: int) -> Rule:
    """Verify the first `length` slots of every request, whatever they are."""
    return Rule(lambda step: [(1.0, (length,) * len(step.tokens))])


def threshold(score: Score, cut: float) -> Rule:
    """Verify every request's slots up to the first that scores below `cut`.

    A score that misses the cut by rounding alone, as 1 − 0.8 misses 0.2, reaches it.
    """

    def length(rows: tuple[np.ndarray, ...], tokens: Tokens) -> int:
        low = [
            k
            for k, (row, token) in enumerate(zip(rows, tokens, strict=True))
            if score(row, token) < cut - ROUNDING
        ]
        return low[0] if low else len(tokens)

    return Rule(lambda step: [(1.0, tuple(map(length, step.rows, step.tokens)))])


def by_score(score: Score) -> Rule:
    """Trimming by chance: slot k is verified, if all before it are, with its score as the chance."""

    def ways(rows: tuple[np.ndarray, ...], tokens: Tokens) -> list[tuple[float, int]]:
        found, reached = [], 1.0
        for k, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            go_on = min(max(score(row, token), 0.0), 1.0)
            found.append((reached * (1.0 - go_on), k))
            reached *= go_on
        return [*found, (reached, len(tokens))]

    return Rule(lambda step: _independent([ways(r, t) for r, t in zip(step.rows, step.tokens, strict=True)]))


def _independent(ways: list[list[tuple[float, int]]]) -> Ways:
    """Every combination of the requests' own ways, (chance, length) each."""
    return [
        (weight, tuple(length for _, length in choice))
        for choice in product(*ways)
        if (weight := prod(w for w, _ in choice)) > 0
    ]


def by_prefix(chance: Callable[[Tokens, Tokens, object, int], float], remember=lambda step: None) -> Rule:
    """The general sound rule for requests on their own: slot k is verified, if all before it are, with
    chance(history, prefix before k, what was remembered, request), a number in [0, 1]."""

    def admit(step: Step) -> Ways:
        lengths = []
        for request, (history, tokens) in enumerate(zip(step.histories, step.tokens, strict=True)):
            ways, reached = [], 1.0
            for k in range(len(tokens)):
                go_on = chance(history, tokens[:k], step.earlier, request)
                ways.append((reached * (1.0 - go_on), k))
                reached *= go_on
            lengths.append([*ways, (reached, len(tokens))])
        return _independent(lengths)

    return Rule(admit, remember)


def by_cost(cost, rule=peak) -> Callable[[np.ndarray], int]:
    """A budget from survivals [B, K] for `ranked`: most expected tokens a millisecond, cost by draft tokens.

    cost [B K + 1 or more]: milliseconds of a step that verifies 0, 1, 2, .. draft tokens; rule: `peak`, or
    `first_peak` to stop early.
    """
    return lambda survivals: choose_budget(
        survivals, [0.0] * (len(survivals) + 1), cost, len(survivals), len(survivals), 0, rule
    )


def ranked(
    score: Score, budget: Callable[[np.ndarray], int], earlier_budget: bool = True, chance_ties: bool = False
) -> Rule:
    """Adaptive verification: a budget over all requests goes to the largest survivals of this step.

    score: used as the acceptance estimate. budget: from survivals [B, K], of the step before when
    earlier_budget (a first step has survivals of 1, as in vLLM), else of this step. chance_ties: slots tied
    for the last places are drawn at random, and only each request's count is used; otherwise the total order
    of `allocate` decides.
    """

    def survivals(step: Step) -> np.ndarray:
        estimate = [
            [score(row, token) for row, token in zip(rows, tokens, strict=True)]
            for rows, tokens in zip(step.rows, step.tokens, strict=True)
        ]
        return survival(estimate)

    def admit(step: Step) -> Ways:
        now = survivals(step)
        basis = now
        if earlier_budget:
            basis = np.ones(now.shape) if step.earlier is None else np.array(step.earlier)
        size = budget(basis)
        if chance_ties:
            return list(_ties_by_chance(now, size))
        return [(1.0, tuple(allocate(now, np.full(len(now), now.shape[1]), size).tolist()))]

    def remember(step: Step):
        return tuple(map(tuple, survivals(step).tolist())) if earlier_budget else None

    return Rule(admit, remember)


def _ties_by_chance(survivals: np.ndarray, budget: int) -> Iterable[tuple[float, tuple[int, ...]]]:
    """Every way to fill the last places among equals, all with the same chance."""
    budget = min(budget, survivals.size)
    last = np.sort(survivals, axis=None)[::-1][budget - 1] if budget else np.inf
    above = (survivals > last).sum(axis=1)
    tied = np.nonzero(survivals == last)[0].tolist()
    places = budget - int(above.sum())
    for chosen in combinations(tied, places):
        yield 1 / comb(len(tied), places), tuple((above + np.bincount(chosen, minlength=len(above))).tolist())


def with_exploration(rule: Rule, share: float) -> Rule:
    """A rule plus a coin that knows no draft: with chance `share` a request is verified in full."""

    def admit(step: Step) -> Ways:
        def lengths(ranked: tuple[int, ...]) -> tuple[int, ...]:
            ways = zip(step.coins, ranked, step.tokens, strict=True)
            return tuple(len(tokens) if coin else length for coin, length, tokens in ways)

        return [(weight, lengths(ranked)) for weight, ranked in rule.admit(step)]

    return Rule(admit, rule.remember, _coins(share))


def _coins(share: float):
    """One coin a request: every outcome, [(chance, coins), ...], by the number of requests."""

    def toss(requests: int) -> list[tuple[float, tuple[bool, ...]]]:
        outcomes = product((False, True), repeat=requests)
        chances = ((prod(share if coin else 1.0 - share for coin in coins), coins) for coins in outcomes)
        return [(chance, coins) for chance, coins in chances if chance > 0]

    return toss


def adaptive(
    score: Score,
    costs: CostTable,
    choose_depth: bool = False,
    explore: float = 0.0,
    unknown: float | None = 1.0,
) -> Rule:
    """The engine's `adaptive[+depth][+explore]` policy, by the same functions of `decision`.

    score: used as the acceptance estimate. unknown: what a slot without an earlier estimate counts as; None is the
    running mean. Remembers the estimates of the positions that were drafted, None for the others, and the mean.
    """

    def before(step: Step) -> tuple[Offer, np.ndarray]:
        B, K = len(step.tokens), len(step.tokens[0])
        earlier, mean = step.earlier or (((None,) * K,) * B, (1.0,) * K)
        offer = Offer(np.full(B, K), np.array(earlier, dtype=float), np.zeros(B), B, B, B)
        return offer, running_mean(np.array(mean), offer.earlier)

    def settle(step: Step, offer: Offer, mean: np.ndarray) -> Decision:
        instead = mean if unknown is None else np.full(len(mean), unknown)
        return decide(offer, instead, costs, choose_depth, np.array(step.coins))

    def estimates(step: Step) -> np.ndarray:
        slots = zip(step.rows, step.tokens, strict=True)
        return np.array([[score(*slot) for slot in zip(*request, strict=True)] for request in slots])

    def way(step: Step) -> Ways:
        offer, mean = before(step)
        _, lengths = admit(settle(step, offer, mean), survival(estimates(step)), offer.scheduled)
        return [(1.0, tuple(lengths.tolist()))]

    def remember(step: Step):
        offer, mean = before(step)
        drafted = settle(step, offer, mean).drafted
        known = [(*row[:drafted], *[None] * (len(row) - drafted)) for row in estimates(step).tolist()]
        return tuple(known), tuple(mean.tolist())

    return Rule(way, remember, _coins(explore))
