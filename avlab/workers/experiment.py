"""An A/B inside the serving loop: which arm serves the next step, and which steps count.

`Conductor.conduct` is the whole schedule, read from top to bottom: it is a generator, and every `yield` is one engine
step under what was set up before it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator
from typing import Generic, Protocol

import numpy as np

from avlab.engine.request import Sequence
from avlab.engine.served import InProcessEngine, OfEngine, Report, ServedEngine
from avlab.formats import counted
from avlab.liveness import Standstill
from avlab.policies.arm import Arm, PolicyError, load_of, unlabelled
from avlab.wire import commands, frames
from avlab.workers.entry import Order
from avlab.workers.intake import Asked, Intake
from avlab.workers.reporter import Reporter
from avlab.workers.run_clock import RealClock

LEAST_STEPS = 3  # of a block whose length is in seconds
MOST_WASHOUT = 2000  # steps until every prompt of a fresh block must have been computed


Steps = Generator[None, None, None]


class _Disturbed(Exception):
    """Something happened within a round that its blocks must not be compared over."""


class Serving(Protocol[Report, OfEngine]):
    """What an A/B asks of the serving loop."""

    stop_reason: str

    @property
    def order(self) -> Order[Asked]: ...
    @property
    def config(self) -> Asked: ...
    @property
    def engine(self) -> ServedEngine[Report, OfEngine]: ...
    @property
    def report(self) -> Reporter[Report]: ...
    @property
    def intake(self) -> Intake: ...

    def begin_block(
        self, arm: Arm, kind: str, round: int | None = None, taught: bool = True, name: str = ""
    ) -> None:
        """Serve the workload under this arm from the next step on."""
        ...


class Conductor(Generic[Report, OfEngine]):
    """Carries out one plan at the step boundaries of a server.

    Every arm owns its policy, and with it at most one estimator, which learns and counts its steps only while its arm
    serves. Raises PolicyError for an arm that this drafter cannot serve, and for a plan that cannot be carried out.
    """

    def __init__(self, plan: commands.Experiment, server: Serving[Report, OfEngine]):
        self.plan, self.server, self.engine = plan, server, server.engine
        self.kept = self.number = 0  # rounds that count; the number of the round under way
        self._finished: list[Sequence] = []  # sequences that ended within the block
        self._policies: dict[str, OfEngine] = {}
        if not {plan.baseline} < set(plan.arms) or len(set(plan.arms)) < len(plan.arms):
            raise PolicyError(
                f"an A/B needs two or more arms, each once, and a baseline among them; got {plan.arms}."
            )
        if plan.design != "isolated" and any(map(load_of, plan.arms)):
            raise PolicyError(
                "arms under different loads need blocks that begin afresh: choose the isolated design."
            )
        for label in plan.arms:
            self._adopt(label)
        self._traffic(server.config.seed, plan.concurrency)
        server.order.outbox.put(frames.ExperimentBegun(plan, server.order.clock(), self.engine.step_number))
        self._steps = self.conduct()
        next(self._steps)
        self._standstill = Standstill()

    def _adopt(self, label: str) -> None:
        """Make an arm's policy, as good as new."""
        arm = Arm.parse(unlabelled(label), self.server.report.K or None)
        self.engine.forget(arm)
        self._policies[label] = self.engine.policy_for(arm)

    # ---- called by the serving loop ------------------------------------------------------------------------

    def after_step(self, report: Report) -> None:
        """An engine step is over; sets up the next one, and the run's end behind the last. report.counted:
        whether it was a step of the block under way.
        """
        self._finished += [finished.sequence for finished in report.finished]
        if still := self._stood_still():
            self.disturb(f"the machine stood still for {still:.1f} s")
        elif report.counted:
            next(self._steps, None)
        self._standstill.begin()

    def _stood_still(self) -> float:
        """Seconds, where this process computes the steps and their time is this machine's."""
        ours = isinstance(self.engine, InProcessEngine) and isinstance(self.server.order.clock, RealClock)
        return self._standstill.seconds() if ours else 0.0

    def disturb(self, reason: str) -> None:
        """Drop the round under way, and begin another."""
        if self.kept < self.plan.rounds:
            self._steps.throw(_Disturbed(reason))

    def close(self) -> None:
        """The run ends: say what became of a plan that is not finished."""
        if self.kept < self.plan.rounds:
            self._say(
                "warning",
                f"The A/B ended after {self.kept} of {counted(self.plan.rounds, 'round')}; an unfinished round does "
                "not count.",
            )

    # ---- the schedule --------------------------------------------------------------------------------------

    def conduct(self) -> Steps:
        """One `yield` a step: learning, then rounds until enough are kept."""
        plan, order = self.plan, np.random.default_rng(self.plan.seed)
        for label in plan.arms:
            if plan.learn and self._policies[label].arm.learns:
                if load_of(label):
                    self._traffic(self.server.config.seed, self._load(label))
                self._begin(label, "wash-out")
                yield from self._learn()
        learnt = copy.deepcopy(self._policies)
        while self.kept < plan.rounds:
            reason = ""
            try:
                for place in order.permutation(len(plan.arms)):
                    label = plan.arms[place]
                    if plan.design == "isolated":
                        self._policies[label] = copy.deepcopy(learnt[label])
                        self._traffic(self.server.config.seed + plan.seed + self.number, self._load(label))
                    self._begin(label, "wash-out", self.number)
                    yield from self._some(plan.washout)
                    if plan.design == "isolated":
                        yield from self._first_tokens()
                    self._begin(label, "serve", self.number)
                    before = self._progress()
                    yield from self._block()
                    self._report_requests(before)
            except _Disturbed as disturbance:
                reason = str(disturbance)
                self._say("warning", f"Round {self.number + 1} was dropped: {reason}.")
            self._put(frames.RoundDone(self.number, not reason, reason, self._clock(), self._step()))
            self.kept += not reason
            self.number += 1
        self._say("info", f"The A/B is complete: {counted(self.kept, 'round')} of {len(plan.arms)} arms.")
        self.server.stop_reason = "done"

    def _learn(self) -> Steps:
        steps = 0
        while steps < self.plan.learn:
            with contextlib.suppress(_Disturbed):  # nothing is compared yet
                yield
                steps += 1

    def _some(self, steps: int) -> Steps:
        for _ in range(steps):
            yield

    def _first_tokens(self) -> Steps:
        """Steps until all requests that a fresh block began with have emitted a token."""
        waiting = {request.id for request in self.engine.queue}
        waiting |= {sequence.request.id for sequence in self.engine.sequences}
        for _ in range(MOST_WASHOUT):
            late = [s for s in self.engine.sequences if s.request.id in waiting and not s.output_length]
            if not late and not any(request.id in waiting for request in self.engine.queue):
                return
            yield

    def _block(self) -> Steps:
        """The steps of one counted block."""
        plan, steps, began = self.plan, 0, self._clock()
        while True:
            yield
            steps += 1
            if plan.unit == "steps" and steps >= plan.length:
                return
            if plan.unit == "seconds" and steps >= LEAST_STEPS and self._clock() - began >= plan.length:
                return

    # ---- the engine's state --------------------------------------------------------------------------------

    def _begin(self, label: str, kind: str, round: int | None = None) -> None:
        policy = self._policies[label]
        self.engine.adopt(policy)
        self._finished = []
        self.server.begin_block(policy.arm, kind, round, name=label)

    def _load(self, label: str) -> int:
        return load_of(label) or self.plan.concurrency

    def _traffic(self, seed: int, load: int) -> None:
        """No requests; then `load` at a time, with the prompts and seeds that belong to `seed`, without end."""
        config, server = self.server.config, self.server
        server.intake.cancel_all()
        server.intake.first = server.intake.taken
        server.intake.serve(config.open(f"closed:{load}", seed, repeat=True))

    def _progress(self) -> dict[int, tuple[int, float]]:
        """Of each request that has emitted: its tokens so far, and when the last one came."""
        running = self.engine.sequences
        return {
            s.request.id: (s.output_length, s.last_token_at)
            for s in running
            if s.output_length and s.last_token_at is not None
        }

    def _report_requests(self, before: dict[int, tuple[int, float]]) -> None:
        rows: list[tuple[int, int, float]] = []  # request, tokens, seconds
        for s in [*self._finished, *self.engine.sequences]:
            if s.output_length and s.first_token_at is not None and s.last_token_at is not None:
                tokens, since = before.get(s.request.id, (1, s.first_token_at))
                if s.output_length > tokens:
                    rows.append((s.request.id, s.output_length - tokens, s.last_token_at - since))
        request, tokens_of, seconds = [r for r, _, _ in rows], [t for _, t, _ in rows], [x for *_, x in rows]
        self._put(frames.BlockRequests(self.server.report.block, request, tokens_of, seconds))

    def _put(self, frame: frames.Frame) -> None:
        self.server.order.outbox.put(frame)

    def _clock(self) -> float:
        return self.server.order.clock()

    def _step(self) -> int:
        return self.engine.step_number

    def _say(self, level: str, text: str) -> None:
        self.server.order.event(level, "experiment", text)
