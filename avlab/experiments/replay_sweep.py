"""Every arm under every load on one machine, replayed with common random numbers.

A cell is served some repeats long. Each repeat serves texts drawn anew from the trace's, with replacement, the same
for every arm and load: so what repeats differ by is what another set of texts would have given (a bootstrap by text),
and two arms are compared repeat by repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from avlab.experiments.statistics import student_quantile
from avlab.machines import Machine
from avlab.policies.arm import Arm, labels, unlabelled
from avlab.policies.base import PolicyContext, make_policy
from avlab.replay.serving import Replay
from avlab.replay.trace import Trace

ARMS = (
    "none", "fixed:1", "fixed:2", "fixed:3", "fixed:4", "fixed:5", "fixed:7",
    "adaptive", "adaptive+depth", "adaptive:head", "adaptive:head+depth", "adaptive:raw",
)  # fmt: skip
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REPEATS = 10
LEARN = 300  # steps before the first repeat: three refits
SETTLE = 20  # steps of a repeat that are not counted
STEPS = 80  # counted steps of a repeat, at 80 requests or more
REQUEST_STEPS = 640  # counted request-steps of a repeat, at the least
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """An arm under a load. Rates by repeat, [repeats]: tokens_per_s of all requests. Means over all repeats:
    tokens_per_s_per_user while decoding, tokens_per_step of a request, admitted drafts of a request-step, depth."""

    arm: str
    load: int
    tokens_per_s: np.ndarray
    tokens_per_s_per_user: float
    tokens_per_step: float
    admitted: float
    depth: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm over the best fixed length of its load (chosen afterwards): ratio of tokens/s, with its 95 % interval."""

    arm: str
    load: int
    fixed: str
    ratio: float
    low: float
    high: float


def sweep(
    trace: Trace,
    machine: Machine,
    arms: Sequence[str] = ARMS,
    loads: Sequence[int] = LOADS,
    seed: int = 0,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Cell]:
    """All cells, load by load. Raises PolicyError for an arm that the trace cannot serve, TraceError for a load that
    the machine cannot."""
    names, cells = labels(arms, trace.about.K), []
    for load in loads:
        for name in names:
            cells.append(serve(trace, machine, name, load, seed, repeats))
            progress(len(cells), len(names) * len(loads))
    return cells


def serve(trace: Trace, machine: Machine, name: str, load: int, seed: int, repeats: int) -> Cell:
    """One cell. An adaptive arm keeps what it has learnt from repeat to repeat, as a server would."""
    K = trace.about.K
    cached = load * trace.typical_length()
    arm = Arm.parse(unlabelled(name), K).served_with(trace.about.features)
    policy = make_policy(arm, PolicyContext(K, machine.table(cached)))
    if arm.learns:
        replay = Replay(trace, machine, policy, load, seed)
        for _ in range(LEARN):
            replay.step()
    rates, steps = [], []
    for repeat in range(repeats):
        texts = np.random.default_rng([seed, 4, repeat]).integers(0, trace.texts, trace.texts)
        replay = Replay(trace, machine, policy, load, seed + 1 + repeat, texts)
        for _ in range(SETTLE):
            replay.step()
        counted = [replay.step() for _ in range(max(STEPS, REQUEST_STEPS // load))]
        rates.append(1e3 * sum(s.tokens for s in counted) / sum(sum(s.milliseconds) for s in counted))
        steps += counted
    emitting, decoding = sum(s.emitting for s in steps), max(sum(s.decoding for s in steps), 1)
    tokens, milliseconds = sum(s.tokens for s in steps), sum(sum(s.milliseconds) for s in steps)
    return Cell(
        arm=name,
        load=load,
        tokens_per_s=np.array(rates),
        tokens_per_s_per_user=tokens / emitting / (milliseconds / len(steps)) * 1e3,
        tokens_per_step=tokens / emitting,
        admitted=sum(s.admitted for s in steps) / decoding,
        depth=sum(s.depth for s in steps) / len(steps),
    )


def over_best_fixed(cells: Sequence[Cell]) -> list[Comparison]:
    """Every adaptive arm over the best fixed length of its load."""
    found = []
    for load in dict.fromkeys(cell.load for cell in cells):
        here = [cell for cell in cells if cell.load == load]
        fixed = [cell for cell in here if not Arm.parse(unlabelled(cell.arm)).adaptive]
        if fixed:
            best = max(fixed, key=lambda cell: cell.tokens_per_s.mean())
            found += [_compared(cell, best) for cell in here if Arm.parse(unlabelled(cell.arm)).adaptive]
    return found


def _compared(cell: Cell, other: Cell) -> Comparison:
    ratios = np.log(cell.tokens_per_s / other.tokens_per_s)
    n, middle, half = len(ratios), float(ratios.mean()), np.inf
    if n > 1:
        half = student_quantile(n - 1, (1 + CONFIDENCE) / 2) * float(
            ratios.std(ddof=1)
        )  # a bootstrap's own spread
    return Comparison(
        cell.arm, cell.load, other.arm, *(float(np.exp(x)) for x in (middle, middle - half, middle + half))
    )


def plan(cells: Sequence[Cell]) -> list[tuple[int, str, float, float]]:
    """The best arm of each load: (load, arm, tokens/s, tokens/s of one user)."""
    loads = dict.fromkeys(cell.load for cell in cells)
    best = (max((c for c in cells if c.load == load), key=lambda c: c.tokens_per_s.mean()) for load in loads)
    return [(c.load, c.arm, float(c.tokens_per_s.mean()), c.tokens_per_s_per_user) for c in best]
