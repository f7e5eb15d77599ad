"""How many outputs show that a distribution is bent, and whether these outputs show it: chi-square and G-test."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, log1p, pi

import numpy as np


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


def chi_square_tail(x: float, degrees: float) -> float:
    """Chance that a chi-square variable is above x; small chances keep their digits."""
    return _gamma(degrees / 2, x / 2)[1] if x > 0 else 1.0


def _gamma_p(a: float, x: float) -> float:
    return _gamma(a, x)[0]


def _gamma(a: float, x: float) -> tuple[float, float]:
    """Regularised incomplete gamma functions, lower and upper: a series for x < a + 1, else a continued fraction."""
    front = exp(-x + a * log(x) - lgamma(a))
    if x < a + 1:
        term = total = 1.0 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        lower = min(1.0, front * total)
        return lower, 1.0 - lower
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
    upper = min(1.0, front * fraction)
    return 1.0 - upper, upper


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


@dataclass(frozen=True, slots=True)
class Fit:
    """How well counts fit a law, by the G-test on pooled cells.

    p_value: of this test alone. corrected: after correction for the number of tests. total_variation: between what
    was counted and the law, on the pooled cells; noise_floor: what a faithful sampler would show there with so few.
    """

    outputs: int
    cells: int
    statistic: float
    p_value: float
    corrected: float
    total_variation: float
    noise_floor: float


LEAST_EXPECTED = 5.0  # cells expected less often are pooled, as is usual for chi-square approximations
MOST_CELLS = 200


def pool(counts, law) -> tuple[np.ndarray, np.ndarray]:
    """Counts and law on at most 200 cells, each expected five times or more: the likeliest, and all others as one.

    counts, law: over the same cells, any shape; the law sums to 1.
    """
    counts, law = np.ravel(counts), np.ravel(law)
    order = np.argsort(-law, kind="stable")
    counts, law = counts[order], law[order]
    kept = min(int((law * counts.sum() >= LEAST_EXPECTED).sum()), MOST_CELLS - 1)
    if law[kept:].sum() * counts.sum() < LEAST_EXPECTED:
        kept = max(kept - 1, 0)  # the rest is too small to stand alone: it takes the lightest cell in
    counts = np.append(counts[:kept], counts[kept:].sum())
    law = np.append(law[:kept], law[kept:].sum())
    return counts[law > 0], law[law > 0]


def fit(counts, law, tests: int = 1) -> Fit:
    """G-test of counts against a law over the same cells, corrected for `tests` tests (Bonferroni).

    The statistic is divided by Williams' factor (Williams 1976), which takes most of the approximation's error away.
    An output that the law never gives is a certain sign: p-value 0.
    """
    total = int(np.sum(counts))
    stray = bool(np.ravel(counts)[np.ravel(law) == 0].any())
    observed, due = pool(counts, law)
    cells, expected = len(observed), due * total
    seen = observed > 0
    statistic = 2 * float((observed[seen] * np.log(observed[seen] / expected[seen])).sum())
    if cells > 1:
        statistic /= 1 + (float((1 / due).sum()) - 1) / (6 * total * (cells - 1))
    p_value = 0.0 if stray else chi_square_tail(statistic, cells - 1) if cells > 1 else 1.0
    return Fit(
        outputs=total,
        cells=cells,
        statistic=inf if stray else max(statistic, 0.0),
        p_value=p_value,
        corrected=min(1.0, p_value * tests),
        total_variation=float(np.abs(observed / total - due).sum() / 2),
        noise_floor=noise_floor(due, total),
    )


def noise_floor(law, outputs: int) -> float:
    """Total variation from its own law that a faithful sample of so many outputs shows on average.

    By the normal approximation of each cell's count: half the sum of sqrt(2 p (1 - p) / (pi n)).
    """
    law = np.ravel(law)
    return float(np.sqrt(2 * law * (1 - law) / (pi * outputs)).sum() / 2)
