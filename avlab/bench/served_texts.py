"""The same prompts served by the engine and in replay, and how far tokens a step differ, with intervals by text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from avlab.bench.base import NotMeasured
from avlab.machines import Machine
from avlab.policies.arm import Arm
from avlab.replay.server import ReplayServer
from avlab.replay.trace import Trace
from avlab.speculation.costs import CostTable
from avlab.workloads import Moment, open_workload

if TYPE_CHECKING:
    from avlab.bench.lab import Lab


@dataclass(frozen=True, slots=True)
class Texts:
    """Of each of the first N prompts: output tokens, and steps that emitted some, [N] each."""

    tokens: np.ndarray
    steps: np.ndarray

    @property
    def tokens_per_step(self) -> float:
        """Of all texts together."""
        return float(self.tokens.sum() / self.steps.sum())

    def influence(self) -> np.ndarray:
        """What each text adds to the error of the logarithm of tokens a step, [N] (the delta method)."""
        return self.tokens / self.tokens.sum() - self.steps / self.steps.sum()


@dataclass(frozen=True, slots=True)
class Difference:
    """Replayed over served tokens a step, with an interval of the joint confidence that was asked for."""

    ratio: float
    low: float
    high: float


def prompts_of(lab: Lab, trace: Trace) -> list[tuple[list[int], str]]:
    """The prompts of a trace's texts, encoded, with their kinds: each kind's own in order. Raises NotMeasured."""
    streams = {kind: open_workload(kind, seed=trace.about.seed).stream for kind in set(trace.kind)}
    prompts = [(lab.text.encode(streams[kind].take(Moment(0.0)).messages), kind) for kind in trace.kind]
    if [len(tokens) for tokens, _ in prompts] != trace.prompt_tokens.tolist():
        raise NotMeasured(
            "the workloads have other prompts now than the trace was recorded with: record it again."
        )
    return prompts


def served_by_engine(
    lab: Lab,
    arm: str,
    load: int,
    prompts: Sequence[tuple[list[int], str]],
    count: int,
    progress: Callable[[float, float], None],
) -> Texts:
    """The first `count` of these prompts in a closed loop; later ones keep the load until all of those have ended."""
    lab.clear()
    lab.engine.policies.clear()
    lab.engine.set_policy(Arm.parse(arm))
    lab.prompts, lab.count, lab.concurrency = itertools.cycle(prompts), 0, load
    found: dict[int, tuple[int, int]] = {}
    while len(found) < count:
        report, _ = lab.step()
        for finished in report.finished:
            sequence = finished.sequence
            if sequence.request.id < count:
                found[sequence.request.id] = sequence.output_length, sequence.steps
                progress(len(found), count)
    lab.clear()
    tokens, steps = zip(*(found[number] for number in range(count)), strict=True)
    return Texts(np.array(tokens), np.array(steps))


def served_in_replay(
    trace: Trace,
    machine: Machine,
    costs: CostTable,
    arm: str,
    load: int,
    count: int,
    limit: int,
    prefill_tokens: int,
) -> Texts:
    """The trace's first `count` texts, cut at `limit` tokens, in the same closed loop, by policies that decide by the
    same costs."""
    server = ReplayServer(trace, machine, Arm.parse(arm), load, costs=costs, prefill_tokens=prefill_tokens)
    numbers = itertools.count()
    found: dict[int, tuple[int, int]] = {}
    while len(found) < count:
        while len(server.running) + len(server.queue) < load:
            number = next(numbers)
            server.add(number, number % trace.texts, limit=limit)
        step = server.step()
        assert step is not None
        for ended in step.ended:
            if ended.request.id < count:
                found[ended.request.id] = ended.request.tokens, ended.request.steps
    tokens, steps = zip(*(found[number] for number in range(count)), strict=True)
    return Texts(np.array(tokens), np.array(steps))


def difference(replayed: Texts, served: Texts, quantile: float) -> Difference:
    """Of the same prompts, so by their pairs. quantile: standard errors on either side."""
    log_ratio = np.log(replayed.tokens_per_step / served.tokens_per_step)
    error = float(np.sqrt(((replayed.influence() - served.influence()) ** 2).sum()))
    return Difference(*(float(np.exp(log_ratio + z * error)) for z in (0.0, -quantile, quantile)))


def pooled(pairs: Sequence[tuple[Texts, Texts]], quantile: float) -> Difference:
    """The mean difference of cells (replayed, served), as a ratio: cells of one prompt count together."""
    count = max(len(replayed.tokens) for replayed, _ in pairs)
    logs, errors = [], np.zeros(count)
    for replayed, served in pairs:
        logs.append(np.log(replayed.tokens_per_step / served.tokens_per_step))
        errors[: len(replayed.tokens)] += (replayed.influence() - served.influence()) / len(pairs)
    middle, error = float(np.mean(logs)), float(np.sqrt((errors**2).sum()))
    return Difference(*(float(np.exp(middle + z * error)) for z in (0.0, -quantile, quantile)))
