"""The arms of one load, repeat by repeat. All arms of a repeat are served one after the other, so an arm is compared
with another within a repeat: what the machine does to both cancels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from avlab.experiments import statistics
from avlab.policies.arm import arm_of, load_of, unlabelled
from avlab.store.experiment_rows import BlockRate


class Rates(NamedTuple):
    """Tokens/s of all requests together, and for one user."""

    tokens_per_s: float
    interactivity: float


@dataclass(frozen=True, slots=True)
class Repeats:
    """Whole repeats at one load. tokens_per_s, interactivity (tokens/s for one user): [A, T], for A arms."""

    arms: list[str]
    tokens_per_s: np.ndarray
    interactivity: np.ndarray

    def point(self, arm: str) -> Rates:
        """Geometric means of both over the repeats."""
        place = self.arms.index(arm)
        rows = self.tokens_per_s[place], self.interactivity[place]
        return Rates(*(float(np.exp(np.log(row).mean())) for row in rows))

    @property
    def count(self) -> int:
        """How many repeats there are, T."""
        return self.tokens_per_s.shape[1]

    @property
    def fixed(self) -> list[str]:
        """The fixed lengths among the arms; none is length 0."""
        return [arm for arm in self.arms if arm_of(arm).fixed]


class Gain(NamedTuple):
    """An arm over the best fixed length in throughput. ratio: over the length that is best in the other repeats, with
    the ends of Student's 95 % interval over repeats (0 and infinite for a single one). rival: the best length of all
    repeats; over_rival: the ratio to it, in which the same repeats choose and judge.
    """

    ratio: float
    low: float
    high: float
    rival: str
    over_rival: float


def whole_repeats(blocks: Iterable[BlockRate], arms: Sequence[str]) -> dict[int, Repeats]:
    """By load, the repeats that have every one of these arms; a load without one is left out.

    blocks: the arm of each is a cell's label, such as "fixed:5@16".
    """
    cells: dict[int, dict[tuple[str, int], dict[str, BlockRate]]] = {}
    for block in blocks:
        load = load_of(block.arm)
        if load and block.tokens_per_s and block.interactivity:
            repeat = cells.setdefault(load, {}).setdefault((block.run, block.round), {})
            repeat[unlabelled(block.arm)] = block
    found = {}
    for load, repeats in sorted(cells.items()):
        whole = [repeat for repeat in repeats.values() if set(arms) <= set(repeat)]
        if whole:
            throughput = np.array([[r[arm].tokens_per_s for r in whole] for arm in arms])
            interactivity = np.array([[r[arm].interactivity for r in whole] for arm in arms])
            found[load] = Repeats(list(arms), throughput, interactivity)
    return found


def near_best(repeats: Repeats) -> list[str]:
    """The fixed lengths that these repeats do not show to be slower than the one with the best mean: Student's 95 %
    interval of the ratio to it reaches 1. All of them where there is a single repeat.
    """
    logs = {arm: np.log(repeats.tokens_per_s[repeats.arms.index(arm)]) for arm in repeats.fixed}
    best = max(logs.values(), key=np.mean)
    return [arm for arm, log in logs.items() if statistics.fixed_sample(log - best).high >= 0]


def over_best_fixed(repeats: Repeats, arm: str) -> Gain:
    """What an arm makes of the best fixed length.

    The best of eight noisy rivals looks better than it is where it was chosen; each repeat's rival is therefore the one
    that is best in the other repeats. The ratio to the best is the least of the ratios to all, so its interval goes
    from the least low to the least high of theirs: around the chosen ratio alone it would hold the truth in 74 to 84 %
    where lengths tie.
    """
    log, lengths = np.log(repeats.tokens_per_s), repeats.fixed
    mine, rivals = log[repeats.arms.index(arm)], log[[repeats.arms.index(length) for length in lengths]]
    best = int(rivals.mean(axis=1).argmax())
    x = mine - statistics.best_by_others(rivals)
    ends = [statistics.fixed_sample(mine - rival) for rival in rivals]
    low = float(np.exp(min(each.low for each in ends)))
    high = float(np.exp(max(min(each.high for each in ends), statistics.fixed_sample(x).high)))
    over_rival = np.exp((mine - rivals[best]).mean())
    middle = float(np.clip(np.exp(x.mean()), low, high))
    return Gain(middle, low, high, lengths[best], float(over_rival))
