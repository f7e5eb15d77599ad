"""A replay behind the methods of an engine, so that the one serving loop drives it: requests in, step reports out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from avlab.engine.report import Slots, StepReport
from avlab.engine.request import Finished, Request, RequestError, Sequence
from avlab.policies.arm import Arm
from avlab.policies.base import Policy
from avlab.replay.about import TraceError
from avlab.replay.server import Ended, ReplayServer, Served, ServedStep
from avlab.workers.run_clock import EmulatedClock


class ReplayEngine:
    """Serves requests whose only token is the number of a text (`replay.workload.TextNumbers`).

    clock: of the run; each step moves it by what the machine's table says. texts: how often each was served.
    """

    uninterrupted = (
        "A replay serves recorded texts: the playground and windows of full verification need the lab's own engine. "
        "The policy verify:K verifies everything here."
    )

    def __init__(self, server: ReplayServer, clock: EmulatedClock):
        self.server, self.K, self._clock = server, server.K, clock
        self.clock: Callable[[], float] = clock
        self.texts: Counter[int] = Counter()
        self._requests: dict[int, Request] = {}  # those that wait or are served
        self._temperature = server.trace.about.temperature

    # ---- between steps ----------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        return self.server.policy

    @property
    def queue(self) -> list[Request]:
        return [self._requests[waiting.id] for waiting in self.server.queue]

    @property
    def sequences(self) -> list[Sequence]:
        """Those in service as they stand; made when they are asked for."""
        at, prompt = self.server.under_way.at, self.server.under_way.prompt
        now = [
            (served, 0 if prompt[row] else int(at[row]) + 1) for row, served in enumerate(self.server.running)
        ]
        return [self._sequence(served, tokens, self.clock()) for served, tokens in now]

    @property
    def step_number(self) -> int:
        return self.server.step_number

    @property
    def running(self) -> int:
        return len(self.server.running)

    @property
    def waiting(self) -> int:
        return len(self.server.queue)

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError if it can never be served."""
        (text,) = request.tokens
        try:
            served = self.server.add(request.id, text, request.arrival * 1e3, request.max_new_tokens)
        except TraceError as error:
            raise RequestError(str(error)) from None
        request.tokens = [0] * served.prompt_tokens  # a trace holds no words
        self.texts[text] += 1
        self._requests[request.id] = request

    def cancel(self, request_id: int) -> Finished | None:
        """Take a request out; None if it was not in service."""
        ended = self.server.cancel(request_id)
        if ended is None:
            self._requests.pop(request_id, None)
            return None
        return self._finished(ended)

    def set_policy(self, arm: Arm) -> None:
        self.server.set_policy(arm)

    def policy_for(self, arm: Arm) -> Policy:
        return self.server.policy_for(arm)

    def adopt(self, policy: Policy) -> None:
        self.server.policies[str(policy.arm)] = policy

    def forget(self, arm: Arm) -> None:
        self.server.policies.pop(str(arm), None)

    def look(self) -> None:
        """There are no processes to look after."""

    # ---- the step ---------------------------------------------------------------------------------------------

    def step(self) -> StepReport | None:
        """One step on the machine's clock; None where nothing is under way."""
        number = self.server.step_number
        self.server.wait_until(self.clock() * 1e3)
        done = self.server.step()
        if done is None:
            return None
        self._clock.reach(self.server.now_ms / 1e3)
        step, decoding = done.step, done.decoding
        draft, verify, rest = step.milliseconds
        return StepReport(
            step=number,
            arm=done.arm,
            running=done.running,
            waiting=done.waiting,
            emitting=step.emitting,
            prompt_tokens=step.prefill,
            target_tokens=step.decoding + step.prefill + step.admitted,
            drafted=step.depth,
            tokens=step.tokens,
            admission=decoding.admission,
            slots=self._slots(done),
            finished=[self._finished(ended) for ended in done.ended],
            refit=decoding.refit,
            ms={"draft": draft, "verify": verify, "sample": 0.0, "decide": rest},
        )

    def _slots(self, done: ServedStep) -> Slots | None:
        decoding = done.decoding
        if decoding.features is None or decoding.labels is None:
            return None
        learnt = decoding.labels
        return Slots(
            request=done.ids,
            kind=decoding.kinds,
            temperature=np.full(len(done.ids), self._temperature),
            scheduled=decoding.scheduled,
            admitted=decoding.admitted,
            accepted=decoding.accepted,
            features=decoding.features,
            estimates=decoding.estimates,
            label=np.where(learnt.labelled, learnt.label, -1).astype(np.int8),
            tokens=np.zeros((len(done.ids), 0), dtype=np.int64),
        )

    def _finished(self, ended: Ended) -> Finished:
        served = ended.request
        sequence = self._sequence(served, served.tokens, served.last_token_ms / 1e3)
        del self._requests[served.id]
        return Finished(sequence, ended.reason)

    def _sequence(self, served: Served, tokens: int, last: float) -> Sequence:
        """A request in service, with so many output tokens by now, the last one at that second."""
        request = self._requests[served.id]
        return Sequence(
            request,
            -1,
            request.tokens + [0] * tokens,
            earlier=np.zeros(0),
            steps=served.steps,
            drafts_accepted=served.accepted,
            admitted_at=served.admitted_ms / 1e3,
            first_token_at=None if math.isnan(served.first_token_ms) else served.first_token_ms / 1e3,
            last_token_at=last if tokens else None,
        )
