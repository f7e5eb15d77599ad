"""How many outputs show that a distribution is bent, and whether these outputs show it: chi-square and G-test."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log, log1p, pi

import numpy as np


def audit_sample_size(output, target, level: float = 0.01, power: float = 0.9) -> float:
    """Independent outputs needed for a chi-square test of fit to notice `output` where `target` is due.

    output, target: distributions over the same cells, any shape. level: chance of a false alarm; power:
    chance of noticing. Returns a whole number, or infinity where the two agree to rounding. From the
    noncentral chi-square distribution; outputs the target never gives are instead noticed when the first one
    comes.
    """
    from scipy import special

    output, target = np.ravel(output), np.ravel(target)
    possible = target > 0
    stray = float(output[~possible].sum())
    if stray > 1e-12:
        return float(ceil(log(1 - power) / log1p(-stray))) if stray < 1 else 1.0
    cells = int(possible.sum())
    if cells < 2 or np.abs(output - target).sum() < 1e-12:
        return inf
    critical = special.chdtri(cells - 1, level)
    noncentrality = special.chndtrinc(critical, cells - 1, 1 - power)
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
    from scipy import special

    total = int(np.sum(counts))
    stray = bool(np.ravel(counts)[np.ravel(law) == 0].any())
    observed, due = pool(counts, law)
    cells, expected = len(observed), due * total
    seen = observed > 0
    statistic = 2 * float((observed[seen] * np.log(observed[seen] / expected[seen])).sum())
    if cells > 1:
        statistic /= 1 + (float((1 / due).sum()) - 1) / (6 * total * (cells - 1))
    p_value = 0.0 if stray else float(special.chdtrc(cells - 1, max(statistic, 0.0))) if cells > 1 else 1.0
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
