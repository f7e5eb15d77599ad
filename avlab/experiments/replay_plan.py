"""A plan out of a sweep: which policy from which load on, what it is worth, and what vLLM can do of it.

Arms whose difference the interval does not separate count as equal, and the simplest of them is recommended: no
speculation before a fixed length, a fixed length before adaptive verification, that before its options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_intervals import Ratio, over_best_fixed, ratio
from avlab.experiments.words import requests
from avlab.policies.arm import Arm, arm_of, unlabelled


@dataclass(frozen=True, slots=True)
class Choice:
    """One policy for the loads first to last. equal: arms that are as good in all of these loads, as far as the replay
    can tell. Worth by load, of those: over the best fixed length (none of a choice that is one) and over none."""

    arm: str
    first: int
    last: int
    equal: list[str]
    over_fixed: list[Ratio]
    over_none: list[Ratio]


@dataclass(frozen=True, slots=True)
class Whole:
    """One setting for all loads: the arm that loses least, where it loses most. worst: its tokens/s over those of the
    best arm, at the load where that is least."""

    arm: str
    worst: float
    load: int


def choices(cells: Sequence[Cell], servable: Callable[[Arm], bool] = lambda arm: True) -> list[Choice]:
    """The plan, by rising load, of the arms that can be served."""
    by_load: dict[int, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.load):
        if servable(arm_of(cell.arm)):
            by_load.setdefault(cell.load, []).append(cell)
    equals = {load: _equal(here) for load, here in by_load.items()}
    picked: list[tuple[str, list[int]]] = []
    for load in equals:
        arm = _simplest(load, equals, picked[-1][0] if picked else "")
        if picked and picked[-1][0] == arm:
            picked[-1][1].append(load)
        else:
            picked.append((arm, [load]))
    return [_choice(arm, loads, by_load, equals) for arm, loads in picked]


def whole(cells: Sequence[Cell], servable: Callable[[Arm], bool] = lambda arm: True) -> Whole:
    """The one setting that loses least, over all loads, against the best arm of each."""
    best: dict[int, float] = {}
    for cell in cells:
        best[cell.load] = max(best.get(cell.load, 0.0), cell.tokens_per_s)
    found = []
    for arm in dict.fromkeys(cell.arm for cell in cells if servable(arm_of(cell.arm))):
        worst = min((cell.tokens_per_s / best[cell.load], cell.load) for cell in cells if cell.arm == arm)
        found.append(Whole(arm, *worst))
    return max(found, key=lambda each: each.worst)


def simplicity(label: str) -> tuple[int, int]:
    """Where an arm stands among equals: the lower, the simpler."""
    arm = arm_of(label)
    if arm.fixed:
        return (1, 0) if arm.drafts else (0, 0)
    return 2 + (not arm.adaptive), len(unlabelled(label))


def _equal(here: Sequence[Cell]) -> list[str]:
    """The best arm of a load, and those that the interval does not separate from it."""
    best = max(here, key=lambda cell: cell.tokens_per_s)
    return [cell.arm for cell in here if cell is best or not ratio(best, cell).separated]


def _simplest(load: int, equals: dict[int, list[str]], before: str) -> str:
    """The simplest of equals; among fixed lengths the one of the load before, else what stays equal longest."""
    least = min(map(simplicity, equals[load]))
    found = [arm for arm in equals[load] if simplicity(arm) == least]
    following = [names for at, names in equals.items() if at >= load]

    def stays(arm: str) -> int:
        return next((at for at, names in enumerate(following) if arm not in names), len(following))

    return before if before in found else max(found, key=stays)


def _choice(
    arm: str, loads: list[int], by_load: dict[int, list[Cell]], equals: dict[int, list[str]]
) -> Choice:
    here = [cell for load in loads for cell in by_load[load]]
    over_none = [
        ratio(_cell(by_load[load], arm), _cell(by_load[load], "none"))
        for load in loads
        if arm != "none" and any(cell.arm == "none" for cell in by_load[load])
    ]
    over_fixed = [] if arm_of(arm).fixed else [each for each in over_best_fixed(here) if each.arm == arm]
    equal = [name for name in equals[loads[0]] if name != arm and all(name in equals[load] for load in loads)]
    return Choice(arm, loads[0], loads[-1], equal, over_fixed, over_none)


def _cell(here: Sequence[Cell], arm: str) -> Cell:
    return next(cell for cell in here if cell.arm == arm)


# ---- in words ------------------------------------------------------------------------------------------------------


def sentence(choice: Choice, K: int) -> str:
    """A choice in words: "With 16 to 128 requests: K = 7, policy adaptive; worth 3.8 % [2.2, 5.5] (at 16) ..."."""
    at = at_loads(choice)
    worth = [_worth(choice.over_fixed, "the best fixed length"), _worth(choice.over_none, "no speculation")]
    said = f"With {at}: {_set(choice.arm, K)}"
    if told := [each for each in worth if each]:
        said += f"; worth {', and '.join(told)}"
    if choice.equal:
        said += f". Equal as far as this replay can tell: {', '.join(choice.equal)}"
    return said + "."


def at_loads(choice: Choice) -> str:
    """The loads of a choice: "1 request", or "16 to 64 requests"."""
    return (
        requests(choice.last) if choice.first == choice.last else f"{choice.first} to {requests(choice.last)}"
    )


def _set(label: str, K: int) -> str:
    arm = arm_of(label)
    if not arm.drafts:
        return "no speculation"
    return f"K = {K if arm.drafted is None else arm.drafted}, policy {label}"


def _worth(ratios: Sequence[Ratio], over: str) -> str:
    """What a choice is worth at the load where that is least, and where most."""
    if not ratios:
        return ""
    ordered = sorted(ratios, key=lambda each: each.ratio)
    ends = ordered[:1] if len(ordered) == 1 else [ordered[0], ordered[-1]]
    return f"{' to '.join(f'{_percent(each)} (at {each.load})' for each in ends)} over {over}"


def _percent(each: Ratio) -> str:
    middle = f"{100 * (each.ratio - 1):.1f} %"
    if each.low is None or each.high is None:
        return middle
    return f"{middle} [{100 * (each.low - 1):.1f}, {100 * (each.high - 1):.1f}]"
