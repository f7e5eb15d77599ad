"""The same prompts served by the engine and in replay, and how far tokens a step differ, with intervals by text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from avlab.bench.base import NotMeasured
from avlab.machines import Machine
from avlab.policies.arm import Arm
from avlab.policies.fixed import NONE
from avlab.replay.server import ReplayServer
from avlab.replay.trace import Trace
from avlab.speculation.costs import CostTable
from avlab.workers.intake import request_seed
from avlab.workloads import Moment, open_workload

if TYPE_CHECKING:
    from avlab.bench.lab import Lab

AGAIN = (
    1000  # the seed of the first texts that are recorded again; the trace's and the workloads' are smaller
)


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


def recorded_again(
    lab: Lab,
    trace: Trace,
    prompts: Sequence[tuple[list[int], str]],
    limit: int,
    draw: int,
    folder: Path,
    progress: Callable[[float, float], None],
) -> Trace:
    """Other texts of the same prompts, cut at `limit` tokens: one set of texts has luck of its own, which every cell of
    a comparison would share. folder: keeps what is recorded, so that an interrupted recording goes on. Raises
    NotMeasured."""
    from avlab.engine.drafters.along import Recordable
    from avlab.engine.recording.chances import Sampling
    from avlab.engine.recording.work import Plan, joined, record_parts
    from avlab.engine.request import Request

    about, drafter = replace(trace.about, seed=AGAIN + draw), lab.engine.drafter
    if not isinstance(drafter, Recordable):
        raise NotMeasured("this drafter does not draft along a known text.")
    sampling = Sampling(about.temperature, about.top_p, about.top_k)
    requests = [
        Request(
            i,
            tokens,
            limit,
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            request_seed(about.seed, i),
            kind,
        )
        for i, (tokens, kind) in enumerate(prompts)
    ]
    plan = Plan(requests, sampling, about.seed, folder, f"{about} {len(prompts)} {limit}")
    plan.open()
    lab.clear()
    lab.engine.set_policy(NONE)
    record_parts(plan, lab.built, drafter, range(plan.parts), lambda done: progress(done, len(requests)))
    found = joined(plan.folder, plan.parts, about)
    if found.texts != len(prompts):
        raise NotMeasured("a text ended with its first token, which no trace holds: measure at another seed.")
    return found


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


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A cell of the comparison, in replay: the first `count` texts of a trace, cut at `limit` tokens, `load` requests
    at a time, under an arm that decides by these costs."""

    machine: Machine
    costs: CostTable
    arm: str
    load: int
    count: int
    limit: int
    prefill_tokens: int

    def of_all(self, traces: Sequence[Trace]) -> Texts:
        """Traces of the same prompts, each in a loop of its own; a prompt's texts together."""
        each = [self.served(trace) for trace in traces]
        return Texts(
            np.sum([found.tokens for found in each], axis=0), np.sum([found.steps for found in each], axis=0)
        )

    def served(self, trace: Trace, order: np.ndarray | None = None) -> Texts:
        """order: of the first texts; None: as they stand."""
        server = ReplayServer(
            trace,
            self.machine,
            Arm.parse(self.arm),
            self.load,
            costs=self.costs,
            prefill_tokens=self.prefill_tokens,
        )
        texts = np.arange(trace.texts)
        if order is not None:
            texts[: len(order)] = order
        numbers = itertools.count()
        found: dict[int, tuple[int, int]] = {}
        while len(found) < self.count:
            while len(server.running) + len(server.queue) < self.load:
                number = next(numbers)
                server.add(number, int(texts[number % trace.texts]), limit=self.limit)
            step = server.step()
            assert step is not None
            for ended in step.ended:
                if ended.request.id < self.count:
                    found[ended.request.id] = ended.request.tokens, ended.request.steps
        tokens, steps = zip(*(found[number] for number in range(self.count)), strict=True)
        return Texts(np.array(tokens), np.array(steps))

    def spread_of_learning(self, trace: Trace, orders: int = 12) -> float:
        """Standard deviation of the logarithm of tokens a step over orders of the texts. A policy that learns learns
        from other drafts then, so it serves every text otherwise, which intervals by text do not see. 0 of a fixed
        length."""
        if not Arm.parse(self.arm).adaptive:
            return 0.0
        draw = np.random.default_rng(0)
        found = [
            np.log(self.served(trace, draw.permutation(self.count)).tokens_per_step) for _ in range(orders)
        ]
        return float(np.std(found, ddof=1))


def difference(replayed: Texts, served: Texts, quantile: float, spread: float = 0.0) -> Difference:
    """Of the same prompts, so by their pairs. quantile: standard errors on either side. spread: of learning, of the
    difference."""
    log_ratio = np.log(replayed.tokens_per_step / served.tokens_per_step)
    error = float(np.sqrt(((replayed.influence() - served.influence()) ** 2).sum() + spread**2))
    return Difference(*(float(np.exp(log_ratio + z * error)) for z in (0.0, -quantile, quantile)))


def pooled(
    pairs: Sequence[tuple[Texts, Texts]], quantile: float, spreads: Sequence[float] = ()
) -> Difference:
    """The mean difference of cells (replayed, served), as a ratio: cells of one prompt count together. spreads: of
    learning, of each cell's difference."""
    count = max(len(replayed.tokens) for replayed, _ in pairs)
    logs, errors = [], np.zeros(count)
    for replayed, served in pairs:
        logs.append(np.log(replayed.tokens_per_step / served.tokens_per_step))
        errors[: len(replayed.tokens)] += (replayed.influence() - served.influence()) / len(pairs)
    learning = sum(each**2 for each in spreads) / len(pairs) ** 2
    middle, error = float(np.mean(logs)), float(np.sqrt((errors**2).sum() + learning))
    return Difference(*(float(np.exp(middle + z * error)) for z in (0.0, -quantile, quantile)))
