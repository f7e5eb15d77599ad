"""A scene: a small target and drafter under several rules, worked out over two steps, exactly or by sampling."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from avlab.bias.exact import (
    Pair,
    Rule,
    Tokens,
    drafts_to_enumerate,
    output_distribution,
    target_law,
    token_distribution,
    total_variation,
)
from avlab.bias.goodness_of_fit import audit_sample_size, fit
from avlab.bias.sampled import sample_outputs

LETTERS = "abcdefgh"


@dataclass(frozen=True, slots=True)
class Arm:
    """A rule as a scene shows it. sound: in every case, not in this one only. faults: of `output_distribution`."""

    name: str
    rule: Rule
    sound: bool
    faults: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scene:
    """A small target and drafter, and rules under which to watch them.

    cause: the row of the list of faults. starts: a start token for each request. length: tokens of the output that
    are looked at together; position: the one whose own distribution bends most. rows: the tables, for the reader.
    """

    name: str
    cause: str
    sentence: str
    try_this: str
    shows: str
    pair: Pair
    arms: tuple[Arm, ...]
    starts: Tokens = (0,)
    length: int = 1
    position: int = 0
    rows: tuple[tuple[str, tuple[float, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """An arm of a scene, worked out. joint, due: over sequences, flat; token, token_due: at the scene's position, [V].

    draws: how many outputs were sampled, 0 where the result is exact.
    """

    arm: Arm
    joint: np.ndarray
    due: np.ndarray
    token: np.ndarray
    token_due: np.ndarray
    draws: int = 0

    @property
    def total_variation(self) -> float:
        return total_variation(self.joint, self.due)

    @property
    def sample_size(self) -> float:
        return audit_sample_size(self.joint, self.due)

    @property
    def bends(self) -> bool:
        """Whether the output differs from what is due: at all, or by more than sampling explains (p < 0.001)."""
        if self.draws:
            return fit(np.rint(self.joint * self.draws), self.due).p_value < 1e-3
        return self.total_variation > 1e-9


def outcomes(scene: Scene) -> list[Outcome]:
    """Every arm of a scene over two consecutive steps, exactly."""
    return [
        _outcome(
            scene, arm, output_distribution(scene.pair, arm.rule, scene.starts, scene.length, **arm.faults)
        )
        for arm in scene.arms
    ]


def sampled_outcomes(scene: Scene, draws: int, seed: int = 0) -> list[Outcome]:
    """As `outcomes`, from so many sampled outputs of each arm."""
    random = np.random.default_rng(seed)
    found = []
    for arm in scene.arms:
        counts = sample_outputs(scene.pair, arm.rule, draws, random, scene.starts, scene.length, **arm.faults)
        found.append(_outcome(scene, arm, counts / draws, draws))
    return found


def _outcome(scene: Scene, arm: Arm, joint: np.ndarray, draws: int = 0) -> Outcome:
    due = target_law(scene.pair, scene.starts, scene.length)
    token, token_due = (token_distribution(law, scene.pair.V, 0, scene.position) for law in (joint, due))
    return Outcome(arm, joint.ravel(), due.ravel(), token, token_due, draws)


def work_of(scene: Scene) -> int:
    """Drafts that `outcomes` enumerates for each arm, at least."""
    return drafts_to_enumerate(scene.pair.V, scene.pair.K, len(scene.starts), scene.length)


def names_of_outputs(V: int, length: int, requests: int) -> list[str]:
    """Names of a joint distribution's cells: "ab", and "a|b" for two requests."""
    texts = [""]
    for _ in range(length):
        texts = [text + LETTERS[x] for text in texts for x in range(V)]
    names = texts
    for _ in range(requests - 1):
        names = [f"{name}|{text}" for name in names for text in texts]
    return names
