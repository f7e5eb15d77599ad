"""The published frontier beside a replay of its acceptance: each arm over the best fixed length of its load.

The published system's costs are not published, so the replay stands on another machine's: what agrees says that the
rule does it, what does not may be the costs. The acceptance is parametric. Of the published system the vLLM blog post
of 2026-08-14 says that the first of seven drafts survives in more than 70 % and the last in fewer than 10 %: one rate
of 0.715 at every position gives 71.5 % and 9.6 %. Its head's AUC at temperature 1, 0.82, is vLLM's of
DeepSeek-V4-Flash (pull request 52228).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from avlab.experiments.published import PUBLISHED, PublishedPoint, read_frontier
from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_intervals import Ratio, ratio
from avlab.policies.arm import arm_of
from avlab.replay.parametric import Acceptance

ACCEPTANCE = Acceptance(
    (0.715,) * 7, auc=0.82, source="rates as vLLM's blog tells of DeepSeek-V4-Pro with DSpark"
)
SOURCE = (
    "DeepSeek-V4-Pro with DSpark, tensor parallel 8 on 8 B300, figure 3 of the vLLM blog post of 2026-08-14"
)


@dataclass(frozen=True, slots=True)
class Beside:
    """An arm at a load, over the published best fixed length there: as published, and replayed."""

    arm: str
    load: int
    over: str
    published: float
    replayed: Ratio


def published_points() -> list[PublishedPoint]:
    """The frontier that ships."""
    return read_frontier(PUBLISHED.read_text(encoding="utf-8"))


def beside(published: Sequence[PublishedPoint], cells: Sequence[Cell]) -> list[Beside]:
    """Every arm and load that both have, load by load. Both are divided by the same arm: the fixed length (none is one)
    that is the best of its load in the published frontier, among those that were replayed."""
    replayed = {(cell.arm, cell.load): cell for cell in cells}
    found = []
    for load in dict.fromkeys(point.load for point in published):
        here = {p.arm: p for p in published if p.load == load and (p.arm, load) in replayed}
        fixed = [point for point in here.values() if arm_of(point.arm).fixed]
        if not fixed:
            continue
        best = max(fixed, key=lambda point: point.tokens_per_s)
        for arm, point in here.items():
            if arm != best.arm:
                mine = ratio(replayed[arm, load], replayed[best.arm, load])
                share = point.tokens_per_s / best.tokens_per_s
                found.append(Beside(arm, load, best.arm, share, mine))
    return found
