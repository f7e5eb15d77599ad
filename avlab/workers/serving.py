"""The serving loop around an engine: commands, arrivals, steps, reports, until a limit or a Stop.

The engine is anything that has `avlab.engine.engine.Engine`'s methods; nothing here imports torch.
"""

import hashlib
import time
from typing import Any

from avlab.engine.request import Request, RequestError
from avlab.policies.arm import Arm, PolicyError
from avlab.wire import commands, frames
from avlab.workers.entry import Order
from avlab.workers.experiment import Conductor
from avlab.workers.interludes import Interludes
from avlab.workers.reporting import Reporter
from avlab.workloads import Moment, Workload, WorkloadError, open_workload

LONGEST_SLEEP = 0.25  # seconds; commands wake the loop sooner
MOST_REFUSALS = 100  # requests in a row that cannot be served, after which a run is given up


class ServingError(RuntimeError):
    """The run cannot go on. The message is one sentence."""


class Server:
    """Serves a workload with an engine and reports everything it does.

    text: has encode(messages) -> tokens and decode(tokens) -> text, as `avlab.engine.text.Text` does; what it
    raises for messages that it cannot encode is in `refusals`. report: in place of the reference engine's.
    """

    def __init__(
        self,
        order: Order,
        engine: Any,
        text: Any,
        workload: Workload,
        K: int,
        refusals=(),
        report: Any = None,
    ):
        self.order, self.config, self.engine, self.text = order, order.config, engine, text
        self.report = report or Reporter(
            order.outbox.put, order.clock, K, order.config.drafts, order.config.recorded_features
        )
        self.refusals = refusals
        self.prompts: dict[int, str] = {}  # by request, only with keep_text
        self.taken = self.refused = self.refused_in_row = 0
        self.paused = self.draining = False
        self.stop_reason = ""
        self.conductor: Conductor | None = None  # of the A/B that runs
        self.first = 0  # the request from which seeds are counted
        self.interludes = Interludes(self)
        engine.clock = order.clock
        self.serve_workload(workload)

    def run(self) -> str:
        """Serve until the end; returns "done" (a limit was reached, or nothing more will come) or "stopped".

        Raises ServingError when nothing can be served or the lab is gone.
        """
        self.order.state = "serving"
        self.serve_workload(self.workload)
        self.begin_block(self.engine.policy.arm, "serve")
        began, idle_since, shown = self.order.clock(), None, False
        reason = ""
        while not reason:
            self._obey()
            if not self.stop_reason and self.interludes.turn():
                idle_since, shown = None, False
                continue
            served = self.order.clock() - self.interludes.held_seconds - began
            reason = self.stop_reason or self._limit(served)
            if reason:
                break
            busy = not self.paused and self._take_requests()
            if not busy:
                idle_since = idle_since or time.perf_counter()
                reason = "" if self.paused else self._nothing_left()
                if not reason:
                    shown = self._idle(time.perf_counter() - idle_since, shown)
                continue
            shown = False
            idle_ms = 0.0 if idle_since is None else (time.perf_counter() - idle_since) * 1e3
            idle_since = None
            result = self.engine.step()
            if result is None:  # an engine that works by itself has nothing to tell yet
                continue
            self.order.step = self.engine.step_number
            self.report.take(result, idle_ms)
            for finished in result.finished:
                self.finish(finished)
            self.interludes.count_step()
            if self.conductor:
                self.conductor.after_step(result)
        self.interludes.end_generation()
        self.order.state = "stopping"
        if self.conductor:
            self.conductor.close()
        self.cancel_all()
        self.report.flush()
        return reason

    def _idle(self, seconds: float, shown: bool) -> bool:
        """Wait for something to do, idle for so long by now; whether all that was done is sent (it was, if `shown`)."""
        self.engine.look()
        if not shown and seconds >= LONGEST_SLEEP:
            self.report.flush()
            shown = True
        self.order.outbox.wait(self._nap())
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
        self.serve_workload(workload)
        self.begin_block(self.report.arm, "serve")

    def begin_block(
        self, arm: Arm, kind: str, round: int | None = None, taught: bool = True, name: str = ""
    ) -> None:
        """Serve the workload under this arm from the next step on. Raises PolicyError, and goes on as before."""
        self.engine.set_policy(arm)
        self.interludes.window = 0
        self.report.begin_block(
            self.engine.policy.arm, kind, self.engine.step_number, self.workload.name, round, taught, name
        )
        if self.paused and self.order.state == "serving":  # the arm needed another engine, which is ready
            self.order.state = "paused"
        estimator = self.engine.policy.estimator
        if estimator is not None and estimator.coefficients is not None:
            self.report.cold_start(estimator.coefficients, self.engine.step_number)

    # ---- requests ------------------------------------------------------------------------------------------

    def _take_requests(self) -> bool:
        """Hand the engine what has arrived; whether it has anything to do."""
        began = time.perf_counter()
        if not self.draining and not self._all_taken():
            moment = self._moment()
            for arrived in self.workload.due(moment):
                if self._all_taken():
                    break
                self._add(arrived)
        self.report.spent(time.perf_counter() - began)
        return self.engine.running + self.engine.waiting > 0

    def serve_workload(self, workload: Workload) -> None:
        """Take requests from this workload from now on; its seconds and steps count from now."""
        self.workload = workload
        self._origin = self._served()

    def _served(self) -> tuple[float, int]:
        """Seconds and steps of the run without its interludes."""
        held = self.interludes
        return self.order.clock() - held.held_seconds, self.engine.step_number - held.held_steps

    def _moment(self) -> Moment:
        (seconds, steps), (first_second, first_step) = self._served(), self._origin
        return Moment(seconds - first_second, steps - first_step, self.engine.running, self.engine.waiting)

    def _all_taken(self) -> bool:
        return self.config.requests is not None and self.taken >= self.config.requests

    def _add(self, arrived: Any) -> None:
        config, number = self.config, self.taken
        self.taken += 1
        request = Request(
            id=number,
            tokens=[],
            max_new_tokens=arrived.max_new_tokens,
            **arrived.prompt.sampling.over(
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                seed=request_seed(config.seed, number - self.first),
            ),
            kind=arrived.kind,
            arrival=arrived.arrival + self._origin[0] + self.interludes.held_seconds,
        )
        try:
            request.tokens = self.text.encode(arrived.prompt.messages)
            self.engine.add(request)
        except (RequestError, *self.refusals) as error:
            self._refuse(request, error)
            return
        self.refused_in_row = 0
        if config.keep_text:
            self.prompts[number] = arrived.prompt.text

    def _refuse(self, request: Request, error: Exception) -> None:
        """Record a request that cannot be served; say so of the first, the tenth, the hundredth, ..."""
        self.refused += 1
        self.refused_in_row += 1
        if str(self.refused).strip("0") == "1":
            so_far = f" {self.refused:,} requests were refused so far." if self.refused > 1 else ""
            self.order.event("warning", "refused", f"{error}{so_far}")
        self.order.outbox.put(self.done(request, "refused"))
        if self.refused_in_row >= MOST_REFUSALS:
            raise ServingError(
                f"{self.refused_in_row} requests in a row were refused; the last: {error}"
            ) from None

    def finish(self, finished: Any) -> None:
        """Report a request that the engine has ended."""
        sequence = finished.sequence
        output = None
        if self.config.keep_text:
            output = self.text.decode(sequence.tokens[len(sequence.request.tokens) :])
        self.order.outbox.put(self.done(sequence.request, finished.reason, sequence, output))

    def cancel_all(self) -> None:
        """Take out every request, finished or not."""
        for request in list(self.engine.queue):
            self.engine.cancel(request.id)
            self.order.outbox.put(self.done(request, "cancelled"))
        for sequence in list(self.engine.sequences):
            self.finish(self.engine.cancel(sequence.request.id))

    def done(self, request: Request, reason: str, sequence: Any = None, output: str | None = None):
        """The frame of a request's end; without a sequence, of one that never ran."""
        return frames.RequestDone(
            request=request.id,
            kind=request.kind,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
            arrival=request.arrival,
            admitted=sequence.admitted_at if sequence else self.order.clock(),
            first_token=sequence.first_token_at if sequence else None,
            last_token=sequence.last_token_at if sequence else None,
            prompt_tokens=len(request.tokens),
            output_tokens=sequence.output_length if sequence else 0,
            steps=sequence.steps if sequence else 0,
            drafts_accepted=sequence.drafts_accepted if sequence else 0,
            finish=reason,
            block=self.report.block,
            prompt=self.prompts.pop(request.id, None),
            output=output,
        )

    # ---- the end -------------------------------------------------------------------------------------------

    def _limit(self, seconds: float) -> str:
        config = self.config
        over = config.duration is not None and seconds >= config.duration
        return "done" if over or (config.tokens is not None and self.report.tokens >= config.tokens) else ""

    def _nothing_left(self) -> str:
        """Why an engine without requests will stay without, or ""."""
        if self.draining:
            return "stopped"
        return "done" if self._all_taken() or self.workload.exhausted else ""

    def _nap(self) -> float:
        wait = None if self.paused or self.draining else self.workload.wait(self._moment())
        return LONGEST_SLEEP if wait is None else min(max(wait, 0.001), LONGEST_SLEEP)


def open_traffic(config: Any) -> Workload:
    """The workload and arrivals of a configuration. Raises WorkloadError."""
    return open_workload(
        config.workload, config.arrival_pattern, seed=config.seed, max_new_tokens=config.max_new_tokens
    )


def request_seed(seed: int, number: int) -> int:
    """A seed for the number-th request of a run, below 2^63; runs with the same seed give the same ones."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:8], "big") >> 1
