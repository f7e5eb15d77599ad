"""The serving loop around an engine: commands, steps, reports, until a limit or a Stop. No torch here."""

from __future__ import annotations

from typing import Generic

from avlab.engine.served import OfEngine, Report, ServedEngine, Texts
from avlab.policies.arm import Arm, PolicyError
from avlab.wire import commands
from avlab.workers.entry import Order
from avlab.workers.experiment import Conductor
from avlab.workers.intake import Asked, Intake, ServingError, open_traffic
from avlab.workers.interludes import Interludes
from avlab.workers.reporter import Reporter
from avlab.workloads import Workload, WorkloadError

LONGEST_SLEEP = 0.25  # seconds; commands wake the loop sooner


class Server(Generic[Report, OfEngine]):
    """Serves a workload with an engine and reports everything it does.

    refusals: what `text` raises for messages that it cannot encode.
    """

    def __init__(
        self,
        order: Order[Asked],
        engine: ServedEngine[Report, OfEngine],
        text: Texts,
        workload: Workload,
        report: Reporter[Report],
        refusals: tuple[type[Exception], ...] = (),
    ):
        engine.clock = order.clock
        self.order, self.config, self.engine, self.report = order, order.config, engine, report
        self.paused = self.draining = False
        self.stop_reason = ""
        self.conductor: Conductor[Report, OfEngine] | None = None  # of the A/B that runs
        self.intake = Intake(order, engine, text, report, workload, refusals)
        self.interludes = Interludes(self)

    @property
    def experimenting(self) -> bool:
        """Whether an A/B runs."""
        return self.conductor is not None

    def run(self) -> str:
        """Serve until the end; returns "done" (a limit was reached, or nothing more will come) or "stopped".

        Raises ServingError when nothing can be served or the lab is gone.
        """
        self.order.state = "serving"
        self.intake.serve(self.intake.workload)
        self.begin_block(self.engine.policy.arm, "serve")
        began, idle_since, shown = self.order.clock(), None, False
        reason = ""
        while not reason:
            self._obey()
            if not self.stop_reason and self.interludes.turn():
                idle_since, shown = None, False
                continue
            served = self.order.clock() - self.intake.held_seconds - began
            reason = self.stop_reason or self._limit(served)
            if reason:
                break
            if (ahead := self.order.clock.ahead()) > 0:
                self.order.outbox.wait(min(ahead, LONGEST_SLEEP))
                continue
            busy = not self.paused and (self.intake.busy if self.draining else self.intake.take())
            if not busy:
                idle_since = self.order.clock() if idle_since is None else idle_since
                reason = "" if self.paused else self._nothing_left()
                if not reason:
                    shown = self._idle(self.order.clock() - idle_since, shown)
                continue
            shown = False
            idle_ms = 0.0 if idle_since is None else (self.order.clock() - idle_since) * 1e3
            idle_since = None
            result = self.engine.step()
            if result is None:  # an engine that works by itself has nothing to tell yet
                continue
            self.order.step = self.engine.step_number
            self.report.take(result, idle_ms)
            for finished in result.finished:
                self.intake.finish(finished)
            self.interludes.count_step()
            if self.conductor:
                self.conductor.after_step(result)
        self.interludes.end_generation()
        self.order.state = "stopping"
        if self.conductor:
            self.conductor.close()
        self.intake.cancel_all()
        self.report.flush()
        return reason

    def _idle(self, seconds: float, shown: bool) -> bool:
        """Wait for something to do, idle for so long by now; whether all that was done is sent (it was, if `shown`)."""
        self.engine.look()
        if not shown and seconds >= LONGEST_SLEEP:
            self.report.flush()
            shown = True
        nap = None if self.paused or self.draining else self.intake.wait()
        if nap is None:
            self.order.outbox.wait(LONGEST_SLEEP)
        else:
            self.order.clock.rest(min(max(nap, 0.001), LONGEST_SLEEP), self.order.outbox.wait)
        return shown

    # ---- commands ------------------------------------------------------------------------------------------

    def _obey(self) -> None:
        if self.order.outbox.lost:
            raise ServingError(self.order.outbox.lost)
        if self.order.asked_to_stop.is_set():
            self.stop_reason = "stopped"
        for command in self.order.outbox.commands():
            self.obey(command)

    def obey(self, command: commands.Command) -> None:
        """Do what the lab asks, now or when the playground's generation has ended."""
        match command:
            case commands.Stop(drain):
                self.draining = drain
                self.stop_reason = "" if drain else "stopped"
                self._pause(False)  # what runs is served to its end
            case commands.SetPolicy() | commands.SetWorkload() | commands.Experiment() if self.conductor:
                name = type(command).__name__
                self.order.event(
                    "warning", "experiment", f"An A/B runs, so {name} was refused: stop it first."
                )
            case _ if self.interludes.obey(command):
                pass
            case commands.Experiment():
                self._begin_experiment(command)
            case commands.Pause():
                self._pause(True)
            case commands.Resume():
                self._pause(False)
            case commands.SetPolicy(arm, kind, round):
                self._set_policy(arm, kind, round)
            case commands.SetWorkload(workload, arrival):
                self._set_workload(workload, arrival)

    def _pause(self, paused: bool) -> None:
        if paused != self.paused:
            self.paused, self.order.state = paused, "paused" if paused else "serving"
            self.order.event("info", self.order.state, "Serving is held." if paused else "Serving goes on.")
            if paused and self.conductor:
                self.conductor.disturb("serving was paused")

    def _begin_experiment(self, plan: commands.Experiment) -> None:
        try:
            self.conductor = Conductor(plan, self)
        except (PolicyError, WorkloadError) as error:
            raise ServingError(f"The A/B cannot run: {error}") from None

    def _set_policy(self, text: str, kind: str, round: int | None) -> None:
        try:
            self.begin_block(Arm.parse(text, self.report.K or None), kind, round)
        except PolicyError as error:
            self.order.event("warning", "policy", f"The policy stays as it was: {error}")

    def _set_workload(self, spec: str, arrival: str) -> None:
        try:
            workload = open_traffic(self.config.changed(workload=spec, arrival=arrival or None))
        except (WorkloadError, ValueError) as error:
            self.order.event("warning", "workload", f"The workload stays as it was: {error}")
            return
        self.intake.serve(workload)
        self.begin_block(self.report.arm, "serve")

    def begin_block(
        self, arm: Arm, kind: str, round: int | None = None, taught: bool = True, name: str = ""
    ) -> None:
        """Serve the workload under this arm from the next step on. Raises PolicyError, and goes on as before."""
        self.engine.set_policy(arm)
        self.interludes.window = 0
        self.report.begin_block(
            self.engine.policy.arm,
            kind,
            self.engine.step_number,
            self.intake.workload.name,
            round,
            taught,
            name,
        )
        if self.paused and self.order.state == "serving":  # the arm needed another engine, which is ready
            self.order.state = "paused"
        estimator = self.engine.policy.estimator
        if estimator is not None and estimator.coefficients is not None:
            self.report.cold_start(estimator.coefficients, self.engine.step_number)

    # ---- the end -------------------------------------------------------------------------------------------

    def _limit(self, seconds: float) -> str:
        config = self.config
        over = config.duration is not None and seconds >= config.duration
        return "done" if over or (config.tokens is not None and self.report.tokens >= config.tokens) else ""

    def _nothing_left(self) -> str:
        """Why an engine without requests will stay without, or ""."""
        if self.draining:
            return "stopped"
        return "done" if self.intake.exhausted else ""
