"""Requests on their way: taken from the workload, given to the engine or refused, and reported at their end."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol, Self

from avlab.engine.request import Finished, Request, RequestError, Sequence
from avlab.engine.served import OfEngine, Report, ServedEngine, Texts
from avlab.wire import frames
from avlab.workers.entry import Order
from avlab.workers.reporter import Reporter
from avlab.workloads import Moment, Workload
from avlab.workloads import Request as Arrived

MOST_REFUSALS = 100  # requests in a row that cannot be served, after which a run is given up


class ServingError(RuntimeError):
    """The run cannot go on. The message is one sentence."""


class Asked(Protocol):
    """What the serving loop reads of a run's configuration; see `avlab.config.Traffic`. temperature, top_k, top_p: of a
    request that does not say its own.
    """

    @property
    def workload(self) -> str: ...
    @property
    def arrival_pattern(self) -> str | None: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def duration(self) -> float | None: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def requests(self) -> int | None: ...
    @property
    def keep_text(self) -> bool: ...
    def changed(self, **values: Any) -> Self: ...
    def open(self, arrival: str | None, seed: int, repeat: bool = False) -> Workload: ...


class Intake:
    """Gives an engine what the workload has due.

    held_seconds, held_steps: for which the workload's time stood still. first: the request from which seeds are
    counted. prompts: by request, only with keep_text. refusals: RequestError, and what `text` raises for messages that
    it cannot encode.
    """

    def __init__(
        self,
        order: Order[Asked],
        engine: ServedEngine[Report, OfEngine],
        text: Texts,
        report: Reporter[Report],
        workload: Workload,
        refusals: tuple[type[Exception], ...],
    ):
        self.order, self.config, self.engine, self.text, self.report = (
            order,
            order.config,
            engine,
            text,
            report,
        )
        self.refusals: tuple[type[Exception], ...] = (RequestError, *refusals)
        self.held_seconds, self.held_steps = 0.0, 0
        self.prompts: dict[int, str] = {}
        self.taken = self.first = self._refused = self._refused_in_row = 0
        self._told: set[str] = set()
        self.serve(workload)

    def serve(self, workload: Workload) -> None:
        """Take requests from this workload from now on; its seconds and steps count from now."""
        self.workload = workload
        self._origin = self._served()
        for note in workload.notes:
            self._tell(note)

    def take(self) -> bool:
        """Hand the engine what has arrived; whether it has anything to do."""
        began = self.order.clock()
        if not self.complete:
            for arrived in self.workload.due(self._moment()):
                if self.complete:
                    break
                self._add(arrived)
        self.report.spent(self.order.clock() - began)
        return self.busy

    @property
    def busy(self) -> bool:
        """Whether the engine has anything to do."""
        return self.engine.running + self.engine.waiting > 0

    @property
    def complete(self) -> bool:
        """Whether the run has as many requests as it was to have."""
        return self.config.requests is not None and self.taken >= self.config.requests

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will come."""
        return self.complete or self.workload.exhausted

    def wait(self) -> float | None:
        """Seconds until something may be due; None where nothing more will be."""
        return self.workload.wait(self._moment())

    def _served(self) -> tuple[float, int]:
        """Seconds and steps of the run without what came between the workload's steps."""
        return self.order.clock() - self.held_seconds, self.engine.step_number - self.held_steps

    def _moment(self) -> Moment:
        (seconds, steps), (first_second, first_step) = self._served(), self._origin
        return Moment(seconds - first_second, steps - first_step, self.engine.running, self.engine.waiting)

    def _add(self, arrived: Arrived) -> None:
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
            arrival=arrived.arrival + self._origin[0] + self.held_seconds,
        )
        given = arrived.prompt.given
        try:
            request.tokens = self.text.encode(arrived.prompt.messages, given)
            self.engine.add(request)
        except self.refusals as error:
            self._refuse(request, error)
            return
        self._refused_in_row = 0
        for name in given:
            if not self.text.reads(name):
                self._tell(
                    f"Prompts bring {name}, which the target's chat template does not read: served without."
                )
        if config.keep_text:
            self.prompts[number] = arrived.prompt.text

    def _tell(self, sentence: str) -> None:
        """Say something of the workload once."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.order.event("warning", "prompts", sentence)

    def _refuse(self, request: Request, error: Exception) -> None:
        """Record a request that cannot be served; say so of the first, the tenth, the hundredth, ..."""
        self._refused += 1
        self._refused_in_row += 1
        if str(self._refused).strip("0") == "1":
            so_far = f" {self._refused:,} requests were refused so far." if self._refused > 1 else ""
            self.order.event("warning", "refused", f"{error}{so_far}")
        self.end(request, "refused")
        if self._refused_in_row >= MOST_REFUSALS:
            raise ServingError(
                f"{self._refused_in_row} requests in a row were refused; the last: {error}"
            ) from None

    # ---- their end -----------------------------------------------------------------------------------------

    def finish(self, finished: Finished) -> None:
        """Report a request that the engine has ended."""
        sequence = finished.sequence
        output = None
        if self.config.keep_text:
            output = self.text.decode(sequence.tokens[len(sequence.request.tokens) :])
        self.end(sequence.request, finished.reason, sequence, output)

    def cancel_all(self) -> None:
        """Take out every request, finished or not."""
        for request in list(self.engine.queue):
            self.engine.cancel(request.id)
            self.end(request, "cancelled")
        for sequence in list(self.engine.sequences):
            finished = self.engine.cancel(sequence.request.id)
            if finished is not None:
                self.finish(finished)

    def end(
        self, request: Request, reason: str, sequence: Sequence | None = None, output: str | None = None
    ) -> None:
        """Report a request's end; without a sequence, of one that never ran."""
        self.order.outbox.put(
            frames.RequestDone(
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
        )


def open_traffic(config: Asked) -> Workload:
    """The workload and arrivals of a configuration. Raises WorkloadError."""
    return config.open(config.arrival_pattern, config.seed)


def request_seed(seed: int, number: int) -> int:
    """A seed for the number-th request of a run, below 2^63; runs with the same seed give the same ones."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:8], "big") >> 1
