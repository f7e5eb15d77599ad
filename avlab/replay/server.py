"""A server on a machine's clock: requests arrive, wait, are served by the policy in force, and end.

It has no clock of its own: `now_ms` moves by what the machine's table says of each step, and by `wait_until`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from avlab.machines import Machine
from avlab.policies.arm import Arm
from avlab.policies.base import Policy, PolicyContext, make_policy
from avlab.replay.about import TraceError
from avlab.replay.trace import Trace
from avlab.replay.under_way import Decoding, Step, UnderWay
from avlab.speculation.costs import CostTable
from avlab.speculation.estimators.base import REFIT_INTERVAL

MOST_REQUESTS = 1024  # under way at once, chosen here


@dataclass(slots=True)
class Served:
    """A request, of one text of the trace. Times are in milliseconds of the machine's clock, nan until they come.

    text: its number in the trace. limit: the most output tokens. tokens, steps, accepted, last_token_ms: output tokens,
    steps that emitted some, draft tokens kept and the last token's time, once it has ended.
    """

    id: int
    text: int
    prompt_tokens: int
    limit: int
    arrived_ms: float
    admitted_ms: float = math.nan
    first_token_ms: float = math.nan
    last_token_ms: float = math.nan
    tokens: int = 0
    steps: int = 0
    accepted: int = 0

    @property
    def first_token_after_ms(self) -> float:
        """Time to first token, with what it waited."""
        return self.first_token_ms - self.arrived_ms

    @property
    def ms_per_token(self) -> float:
        """Time per output token behind the first; nan of a text of one token."""
        return (self.last_token_ms - self.first_token_ms) / (self.tokens - 1) if self.tokens > 1 else math.nan


@dataclass(frozen=True, slots=True)
class Ended:
    """A request's end: reason is "end" (end of text), "length" or "cancelled"."""

    request: Served
    reason: str


@dataclass(frozen=True, slots=True)
class ServedStep:
    """What a step of the server did. requests: those under way in it, in the order of `decoding.rows`; ids [B]: of
    those that could draft; begun: those that emitted their first token. running, waiting: how many were under way and
    in the queue."""

    step: Step
    decoding: Decoding
    arm: str
    running: int
    waiting: int
    requests: tuple[Served, ...]
    ids: np.ndarray
    begun: tuple[Served, ...]
    ended: tuple[Ended, ...]


class ReplayServer:
    """Serves requests with one trace, on one machine, under one policy, which may be switched between two steps.

    now_ms: the machine's clock. policies: those met so far, by arm; each keeps what it has learnt.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        arm: Arm,
        requests: int,
        seed: int = 0,
        *,
        kv_tokens: int | None = None,
        prefill_tokens: int | None = None,
        costs: CostTable | None = None,
        new_request: str = "one",
        refit_interval: int = REFIT_INTERVAL,
    ):
        """requests: the most under way at once. kv_tokens: the most tokens that keys and values are held for; a
        request holds its prompt and its limit from its admission on. prefill_tokens: the most prompt tokens of a step;
        None: as the machine says. costs: that policies decide by, else the machine's. new_request, refit_interval: as
        in `PolicyContext`.

        Raises TraceError for more requests than the machine serves at once, PolicyError for an arm that the trace
        cannot serve.
        """
        most = min(machine.about.most_requests, MOST_REQUESTS)
        if not 1 <= requests <= most:
            raise TraceError(f"{machine.about.title}: serves 1 to {most} requests at once, not {requests}.")
        self.trace, self.machine, self.requests, self.kv_tokens = trace, machine, requests, kv_tokens
        self.K, self.features = trace.about.K, trace.about.features
        self.now_ms, self.step_number = 0.0, 0
        self.queue: deque[Served] = deque()
        self.running: list[Served] = []  # in the order of admission, as the rows of `under_way`
        self.policies: dict[str, Policy] = {}
        self.under_way = UnderWay(trace, machine, prefill_tokens)
        self._steps, self._accepted, self._ids = np.zeros((3, 0), dtype=np.int64)  # by row
        self._held = 0  # tokens that the running requests hold keys and values for
        self._coins = np.random.default_rng([seed, 2])
        cached = requests * trace.typical_length()
        measured = None if costs else machine.executed(cached)  # a table that is given decides alone
        self._context = PolicyContext(
            self.K, costs or machine.table(cached), refit_interval, new_request, measured
        )
        self.policy = self.policy_for(arm)

    # ---- between steps ----------------------------------------------------------------------------------------

    def set_policy(self, arm: Arm) -> None:
        """Serve under this arm from the next step on. An arm met before goes on with what it had learnt.

        What another estimator said of the running requests tells it nothing: they begin without earlier estimates.
        """
        policy = self.policy_for(arm)
        if len(self.under_way) and policy is not self.policy:
            self.under_way.earlier[:] = np.nan
        self.policy = policy

    def policy_for(self, arm: Arm) -> Policy:
        """The policy of an arm, made where the arm is new. Raises PolicyError."""
        arm.require_features(self.features)
        if str(arm) not in self.policies:
            self.policies[str(arm)] = make_policy(arm, self._context)
        return self.policies[str(arm)]

    def add(self, id: int, text: int, arrived_ms: float | None = None, limit: int | None = None) -> Served:
        """Queue a request for a text. arrived_ms: when; now, if it is not said. limit: the most output tokens, where
        that is less than the trace's. Raises TraceError if it can never be served."""
        if not 0 <= text < self.trace.texts:
            raise TraceError(f"The trace has texts 0 to {self.trace.texts - 1}, and none of number {text}.")
        most = int(self.trace.limit[text]) if limit is None else min(limit, int(self.trace.limit[text]))
        if most < 1:
            raise TraceError(f"Request {id} asks for {most} new tokens: ask for 1 or more.")
        request = Served(
            id,
            text,
            int(self.trace.prompt_tokens[text]),
            most,
            self.now_ms if arrived_ms is None else arrived_ms,
        )
        if self.kv_tokens is not None and _held(request) > self.kv_tokens:
            raise TraceError(
                f"Request {id} needs keys and values of {_held(request):,} tokens, and there is memory for "
                f"{self.kv_tokens:,}: raise the memory, or lower its limit."
            )
        self.queue.append(request)
        return request

    def cancel(self, id: int) -> Ended | None:
        """Take a request out; None if it was not running yet (then it leaves the queue) or is not here."""
        for row, request in enumerate(self.running):
            if request.id == id:
                ended = self._end(row, "cancelled")
                self._leave([row])
                return ended
        self.queue = deque(request for request in self.queue if request.id != id)
        return None

    def wait_until(self, milliseconds: float) -> None:
        """Nothing is under way: the clock goes on to this time, unless it is past already."""
        self.now_ms = max(self.now_ms, milliseconds)

    # ---- the step ---------------------------------------------------------------------------------------------

    def step(self) -> ServedStep | None:
        """One step of what is under way; None where nothing is."""
        self._admit()
        if not self.running:
            return None
        self.step_number += 1
        under_way, waiting, requests = self.under_way, len(self.queue), tuple(self.running)
        computing = np.flatnonzero(under_way.prompt)
        step, decoding = under_way.step(self.policy, self._coins.random(len(under_way)))
        self.now_ms += sum(step.milliseconds)
        begun = computing[under_way.prompt[computing] == 0]
        for row in begun.tolist():
            requests[row].first_token_ms = self.now_ms
        self._steps[decoding.rows] += 1
        self._steps[begun] += 1
        self._accepted[decoding.rows] += decoding.accepted
        ids = self._ids[decoding.rows]
        over = under_way.over.tolist()
        ended = tuple(self._end(row) for row in over)
        self._leave(over)
        first = tuple(requests[row] for row in begun.tolist())
        return ServedStep(
            step, decoding, str(self.policy.arm), len(requests), waiting, requests, ids, first, ended
        )

    def _admit(self) -> None:
        """First come, first served: the queue's first waits until there is a row and memory for it."""
        new: list[Served] = []
        while self.queue and len(self.running) + len(new) < self.requests:
            if self.kv_tokens is not None and self._held + _held(self.queue[0]) > self.kv_tokens:
                break
            request = self.queue.popleft()
            request.admitted_ms = self.now_ms
            self._held += _held(request)
            new.append(request)
        if new:
            self.running += new
            self._steps, self._accepted = (
                np.append(each, np.zeros(len(new), dtype=np.int64)) for each in (self._steps, self._accepted)
            )
            self._ids = np.append(self._ids, [request.id for request in new])
            self.under_way.begin(
                np.array([request.text for request in new]), np.array([request.limit for request in new])
            )

    def _end(self, row: int, reason: str = "") -> Ended:
        request, newest = self.running[row], int(self.under_way.at[row])
        if not self.under_way.prompt[row]:
            request.tokens, request.last_token_ms = newest + 1, self.now_ms
        request.steps, request.accepted = int(self._steps[row]), int(self._accepted[row])
        return Ended(request, reason or ("length" if request.tokens >= request.limit else "end"))

    def _leave(self, rows: list[int]) -> None:
        if rows:
            self._held -= sum(_held(self.running[row]) for row in rows)
            self.under_way.leave(np.array(rows))
            self._steps, self._accepted, self._ids = (
                np.delete(each, rows) for each in (self._steps, self._accepted, self._ids)
            )
            gone = set(rows)
            self.running = [request for row, request in enumerate(self.running) if row not in gone]


def _held(request: Served) -> int:
    return request.prompt_tokens + request.limit
