"""How sure a replayed ratio is: intervals by text, from the blocks of a sweep's cells.

A block serves n texts of a sample drawn anew from the trace's T, so what blocks differ by is what other texts, in
another order, would have given. With R blocks and the standard deviation s between them, the variance of a cell's
result is s² (min(n, T) / T + 1 / R): the first part since the trace holds no more than T texts, which no longer replay
mends, the second since the replay is not endless. Intervals are Student's with R − 1 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from avlab.experiments.replay_cells import Cell
from avlab.experiments.statistics import student_quantile
from avlab.policies.arm import arm_of

CONFIDENCE = 0.95
MOST_REPEATS = 1000
Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Tokens/s of an arm over those of another at one load, with the ends of its interval (None of one block)."""

    arm: str
    load: int
    over: str
    ratio: float
    low: float | None
    high: float | None

    @property
    def separated(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)


@dataclass(frozen=True, slots=True)
class Precision:
    """What it takes to know a ratio to a half-width. repeats: None where no number of blocks is enough, because the
    trace has too few texts; texts: how many it then needs."""

    half_width: float
    repeats: int | None
    texts: int


def ratio(cell: Cell, other: Cell) -> Ratio:
    """One arm over another, block by block, of the blocks that both have by now."""
    cell, other = _even([cell, other])
    return _between(cell, _sums(cell), _sums(other), other.arm)


def over_best_fixed(cells: Sequence[Cell]) -> list[Ratio]:
    """Every other arm over the best fixed length of its load (`none` is one).

    No block takes part in the choice that it judges: the length is the best of the other blocks. What is left of the
    winner's luck is that all blocks draw from one trace's texts: in simulated trials (`test_replay_sweep.py`) with four
    lengths that tie exactly the ratio is 0.2 % low and the 95 % interval holds the true one in 92 %; with one length
    somewhat ahead, in 93 %, and well ahead, in 96 %. `over` names the length that is the best of all.
    """
    found = []
    for load in dict.fromkeys(cell.load for cell in cells):
        here = _even([cell for cell in cells if cell.load == load])
        fixed = [cell for cell in here if arm_of(cell.arm).fixed]
        if fixed:
            best = max(fixed, key=lambda cell: cell.tokens_per_s)
            sums = _best_by_others([_sums(cell) for cell in fixed])
            found += [
                _between(cell, _sums(cell), sums, best.arm) for cell in here if not arm_of(cell.arm).fixed
            ]
    return found


def rate(cell: Cell) -> Ends:
    """Interval of a cell's own tokens/s."""
    return _ends(cell.tokens_per_s, _deviations(_sums(cell)), cell)


def rate_of_user(cell: Cell) -> Ends:
    """Interval of the tokens/s of one request while it decodes."""
    tokens, milliseconds, steps, emitting = (
        cell.by_block(name) / cell.by_block(name).mean()
        for name in ("tokens", "milliseconds", "steps", "emitting")
    )
    return _ends(cell.tokens_per_s_per_user, tokens + steps - milliseconds - emitting, cell)


def precision(cell: Cell, other: Cell, half_width: float) -> Precision | None:
    """Blocks and texts that it takes to know the ratio to ± half_width (0.01: 1 %); None of one block, where nothing is
    known. Goes by the spread between the blocks seen."""
    cell, other = _even([cell, other])
    z = _deviations(_sums(cell)) - _deviations(_sums(other))
    if len(z) < 2:
        return None
    variance, goal = float(z.var(ddof=1)), math.log1p(half_width)
    normal = student_quantile(10**6, (1 + CONFIDENCE) / 2)
    floor = normal**2 * variance * _share(cell)  # of endless replay
    texts = cell.of if floor < goal**2 else math.ceil(2 * cell.of * floor / goal**2)
    if floor >= goal**2:
        return Precision(half_width, None, texts)
    for repeats in range(2, MOST_REPEATS + 1):
        share = variance * (_share(cell) + 1 / repeats)
        if student_quantile(repeats - 1, (1 + CONFIDENCE) / 2) ** 2 * share <= goal**2:
            return Precision(half_width, repeats, texts)
    return Precision(half_width, None, 2 * cell.of)


def _even(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the blocks that all of them have by now: a block's number says which texts it serves."""
    least = min(len(cell.blocks) for cell in cells)
    return [replace(cell, blocks=cell.blocks[:least]) for cell in cells]


def _sums(cell: Cell) -> np.ndarray:
    """Tokens and milliseconds by block, [2, R]."""
    return np.stack([cell.by_block("tokens"), cell.by_block("milliseconds")])


def _deviations(sums: np.ndarray) -> np.ndarray:
    """What each block adds to the log rate of all, to first order, [R]; their mean is 0."""
    tokens, milliseconds = sums / sums.mean(axis=1, keepdims=True)
    return tokens - milliseconds


def _best_by_others(sums: Sequence[np.ndarray]) -> np.ndarray:
    """Sums [2, R] of what is the best in all other blocks, of several arms' sums; a single block judges itself."""
    every = np.stack(sums)  # [arms, 2, R]
    others = every.sum(axis=2, keepdims=True) - every if every.shape[2] > 1 else every
    return every[(others[:, 0] / others[:, 1]).argmax(axis=0), :, np.arange(every.shape[2])].T


def _between(cell: Cell, mine: np.ndarray, theirs: np.ndarray, over: str) -> Ratio:
    totals = mine.sum(axis=1) / theirs.sum(axis=1)
    middle = float(totals[0] / totals[1])
    return Ratio(
        cell.arm, cell.load, over, middle, *_ends(middle, _deviations(mine) - _deviations(theirs), cell)
    )


def _ends(middle: float, deviations: np.ndarray, cell: Cell) -> Ends:
    """Interval of a rate or ratio, from what each block adds to its logarithm; (None, None) of one block."""
    R = len(deviations)
    if R < 2:
        return None, None
    share = math.sqrt(_share(cell) + 1 / R)
    half = student_quantile(R - 1, (1 + CONFIDENCE) / 2) * float(deviations.std(ddof=1)) * share
    return middle * math.exp(-half), middle * math.exp(half)


def _share(cell: Cell) -> float:
    """Variance of an endless replay of the trace's texts over that of a block."""
    return min(cell.texts, cell.of) / cell.of
