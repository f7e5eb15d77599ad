"""Switchback arithmetic: every arm once a round, in random order; ratios are taken inside a round."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

RESAMPLES = 2000  # of the bootstrap over rounds
Switched = TypeVar("Switched")  # from block to block: an arm by its name, or a setting


@dataclass(frozen=True, slots=True)
class Block:
    """What was served under one arm in one round, wash-out left out."""

    arm: str
    round: int
    tokens: int
    seconds: float
    steps: int

    @property
    def rate(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds


def schedule(arms: Sequence[Switched], rounds: int, seed: int = 0) -> Iterator[tuple[int, Switched]]:
    """(round, arm): every arm once a round, each round in an order of its own."""
    draw = np.random.default_rng(seed)
    for number in range(rounds):
        for i in draw.permutation(len(arms)):
            yield number, arms[i]


def switchback(
    arms: Sequence[str],
    rounds: int,
    serve: Callable[[str, int], Block],
    progress: Callable[[float, float], None] = lambda done, total: None,
    seed: int = 0,
) -> list[Block]:
    """Blocks of all rounds; serve(arm, round) serves one."""
    blocks: list[Block] = []
    for number, arm in schedule(arms, rounds, seed):
        progress(len(blocks), rounds * len(arms))
        blocks.append(serve(arm, number))
    progress(rounds * len(arms), rounds * len(arms))
    return blocks


def rates(blocks: Sequence[Block], arm: str) -> np.ndarray:
    """An arm's tokens a second by round, [rounds]."""
    return np.array([b.rate for b in sorted(blocks, key=lambda b: b.round) if b.arm == arm])


def round_ratios(blocks: Sequence[Block], arm: str, against: str) -> np.ndarray:
    """Throughput of an arm over another's, by round, [rounds]."""
    return rates(blocks, arm) / rates(blocks, against)


def best_arm(blocks: Sequence[Block], arms: Sequence[str]) -> str:
    """The arm of the highest median throughput."""
    return max(arms, key=lambda arm: float(np.median(rates(blocks, arm))))


def interval(values, seed: int = 0) -> tuple[float, float]:
    """A 90 % bootstrap interval of the median of values [N]."""
    values = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[draws], axis=1), [0.05, 0.95])
    return float(low), float(high)


def half_width(low: float | None, high: float | None) -> float:
    """The ± in percent of an interval of positive numbers; infinite where it has no bound."""
    return 100 * (float(np.sqrt(high / low)) - 1) if low and high else float("inf")


def spread(values) -> str:
    """The median of values with its interval, as text."""
    low, high = interval(values)
    return f"{np.median(values):.3f} [{low:.3f}, {high:.3f}]"


def arm_rows(blocks: Sequence[Block], arms: Sequence[str], subject: str) -> list[list]:
    """A row an arm: arm, median tokens/s, tokens a step, ms a step, the subject's ratio to it with its interval."""
    rows = []
    for arm in arms:
        mine = [b for b in blocks if b.arm == arm]
        steps, seconds = sum(b.steps for b in mine), sum(b.seconds for b in mine)
        rows.append(
            [
                arm,
                round(float(np.median(rates(blocks, arm))), 1),
                round(sum(b.tokens for b in mine) / steps, 2),
                round(seconds * 1e3 / steps, 1),
                "" if arm == subject else spread(round_ratios(blocks, subject, arm)),
            ]
        )
    return rows
