"""Outputs drawn rather than enumerated, and how many of them show that a distribution is bent."""

from __future__ import annotations

from functools import reduce
from math import ceil, exp, inf, lgamma, log, log1p

import numpy as np

from avlab.speculation.exact import Pair, Rule, Step, Tokens
from avlab.speculation.sampling import draw, speculative_sample


def sample_outputs(
    pair: Pair,
    rule: Rule,
    trials: int,
    random: np.random.Generator,
    starts: Tokens = (0,),
    length: int = 1,
    steps: int = 2,
    draft_noise_again: bool = False,
) -> np.ndarray:
    """`exact.output_distribution` by sampling: how often each output came; same shape, sums to trials.

    Drafts are drawn and verified by `sampling.draw` and `sampling.speculative_sample`.
    """
    counts = np.zeros((pair.V**length,) * len(starts), dtype=np.int64)
    for _ in range(trials):
        histories: tuple[Tokens, ...] = tuple((s,) for s in starts)
        earlier = None
        noise: list[dict[int, float]] = [{} for _ in starts]
        for _ in range(steps):
            tokens, rows = [], []
            for history, known in zip(histories, noise, strict=True):
                prefix: Tokens = ()
                for k in range(pair.K):
                    uniform = random.random()
                    if draft_noise_again:
                        uniform = known.setdefault(len(history) + k, uniform)
                    prefix += (int(draw(pair.draft(history, prefix), uniform)),)
                tokens.append(prefix)
                rows.append(tuple(pair.draft(history, prefix[:k]) for k in range(pair.K)))
            coins = _one_of(list(rule.toss(len(starts))), random)
            step = Step(histories, tuple(tokens), tuple(rows), earlier, coins)
            admitted = _one_of(list(rule.admit(step)), random)
            earlier = rule.remember(step)
            p = [
                [pair.target(h + t[:k]) for k in range(pair.K + 1)]
                for h, t in zip(histories, tokens, strict=True)
            ]
            outcome = speculative_sample(
                p, rows, tokens, admitted, random.random((len(starts), pair.K)), random.random(len(starts))
            )
            histories = tuple(
                h + t[:kept] + (int(own),)
                for h, t, kept, own in zip(histories, tokens, outcome.accepted, outcome.token, strict=True)
            )
        cells = []
        for history in histories:
            while len(history) <= length:
                history += (int(draw(pair.target(history), random.random())),)
            cells.append(reduce(lambda number, x: number * pair.V + x, history[1 : length + 1], 0))
        counts[tuple(cells)] += 1
    return counts


def _one_of(ways: list[tuple[float, tuple]], random: np.random.Generator) -> tuple:
    return ways[int(draw(np.array([weight for weight, _ in ways]), random.random()))][1]


def chi_square_cdf(x: float, degrees: float, noncentrality: float = 0.0) -> float:
    """Chance that a (noncentral) chi-square variable with these degrees of freedom is at most x."""
    if x <= 0:
        return 0.0
    if noncentrality == 0:
        return _gamma_p(degrees / 2, x / 2)
    # a Poisson mixture of central ones, summed outwards from the most likely term
    half = noncentrality / 2
    spread = ceil(12 * half**0.5) + 30
    terms = range(max(0, int(half) - spread), int(half) + spread)
    return sum(exp(-half + j * log(half) - lgamma(j + 1)) * _gamma_p(degrees / 2 + j, x / 2) for j in terms)


def _gamma_p(a: float, x: float) -> float:
    """Regularised lower incomplete gamma function: a series for x < a + 1, else a continued fraction."""
    front = exp(-x + a * log(x) - lgamma(a))
    if x < a + 1:
        term = total = 1.0 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return min(1.0, front * total)
    b, c = x + 1 - a, 1e300
    d = 1 / b
    fraction = d
    for i in range(1, 100_000):
        step = -i * (i - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return max(0.0, 1.0 - front * fraction)


def _solve(rising, target: float) -> float:
    """Where a function that rises from at most `target` at 0 reaches it, by doubling and bisection."""
    low, high = 0.0, 1.0
    while rising(high) < target:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return high


def audit_sample_size(output, target, level: float = 0.01, power: float = 0.9) -> float:
    """Independent outputs needed for a chi-square test of fit to notice `output` where `target` is due.

    output, target: distributions over the same cells, any shape. level: chance of a false alarm; power:
    chance of noticing. Returns a whole number, or infinity where the two agree to rounding. From the
    noncentral chi-square distribution; outputs the target never gives are instead noticed when the first one
    comes.
    """
    output, target = np.ravel(output), np.ravel(target)
    possible = target > 0
    stray = float(output[~possible].sum())
    if stray > 1e-12:
        return float(ceil(log(1 - power) / log1p(-stray))) if stray < 1 else 1.0
    cells = int(possible.sum())
    if cells < 2 or np.abs(output - target).sum() < 1e-12:
        return inf
    critical = _solve(lambda x: chi_square_cdf(x, cells - 1), 1 - level)
    noncentrality = _solve(lambda shift: 1 - chi_square_cdf(critical, cells - 1, shift), power)
    effect = float(((output - target)[possible] ** 2 / target[possible]).sum())
    return float(ceil(noncentrality / effect))
