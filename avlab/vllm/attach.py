"""A server that somebody else started, as a run: its counters, differenced over the lab's own interval.

A `Step` of such a run is an interval between two readings, all engines of the model together; each engine has an
`EngineSample` beside it. What counters cannot tell is None there, and said in words once. Where the server has the
worker extension and is in development mode, a `Step` is a step of its engine, and nothing is missing.
"""

import os
import platform
import time
from collections.abc import Mapping
from typing import Any

from avlab.about import code_version
from avlab.vllm import VllmError
from avlab.vllm.drained import NO_LENGTH, Drained
from avlab.vllm.find_extension import Found, Unread, find_extension
from avlab.vllm.find_ring import find_ring
from avlab.vllm.intervals import engine_sample, step_of
from avlab.vllm.metrics import Counters, Engine, MetricsError, Reading, between, fell, read, total
from avlab.vllm.server import Server, ServerError
from avlab.vllm.unknown import cannot_know
from avlab.vllm.watching import Order
from avlab.wire import commands, frames

ARM = "watched"
WORKLOAD = "its users' requests"
NOT_TOLD = "not told"


class AttachError(VllmError):
    """The server cannot be watched, or not any more. The message is one sentence."""


class Watch:
    """Watches until a limit, a stop, or until the server has been silent for too long."""

    def __init__(self, order: Order):
        self.order, self.put = order, order.outbox.put
        self.config = order.config
        self.server = Server(
            self.config.url, self.config.key_variable, self.config.ca_file, self.config.timeout
        )
        self.model = self.config.model or ""
        self.K = 0
        self.adaptive: bool | None = None  # None: not known
        self.block = 0
        self.tokens = self.finished = 0.0
        self.last: tuple[float, Reading] | None = None  # when, and what was read
        self.tried = 0.0  # when a reading was last attempted
        self.silent_since: float | None = None
        self.paused, self.stop_reason = False, ""
        self.drained: Drained | None = None  # what the worker extension tells, where it is there
        self.found: Found | None = None  # where it tells that
        self.lost = False  # the server restarted, and its extension is to be found again
        self.held = NO_LENGTH  # by somebody's switch
        self.overwritten = self.unequal = False  # steps were lost, sums by position differ: and that was said

    def run(self) -> str:
        """Greet and watch; returns "done" or "stopped". Raises AttachError, ServerError or MetricsError."""
        self._begin()
        began = self.order.clock()
        while not self._over(self.order.clock() - began):
            rest = self.config.interval - (0.0 if self.paused else self._age())
            self.order.outbox.wait(max(0.0, rest))
            self._obey()
            if not self.paused and not self.stop_reason and self._age() >= self.config.interval:
                self._look()
        return self.stop_reason or "done"

    # ---- the beginning -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        reading = self._first_reading()
        version = self.server.version()
        self.model = self._choose_model(reading)
        engines = self._mine(reading)
        info: dict[str, Any] | None = None
        found: Found | None = None
        unread: list[str] = []  # why the extension tells nothing
        try:
            info = self.server.configuration()
            found = self._find(info, reading)
        except Unread as error:
            unread = error.sentences
        except ServerError as error:
            unread = [f"{error} So its worker extension is not read."]
        spec = _speculative(info)
        self.K = max(len(each.accepted_by_position) for each in engines.values())
        self.adaptive = self._verification(spec)
        if found:
            self.K, self.adaptive = found.K, bool(found.about["adaptive"])
        drafter = None if not self.K else str(spec.get("model") or spec.get("method") or NOT_TOLD)
        self.put(
            frames.Hello(
                kind=self.config.kind,
                pid=os.getpid(),
                wall=time.time() - self.order.clock(),
                config=self.config.model_dump(mode="json") | {"policy": ARM, "workload": WORKLOAD},
                target=self.model,
                target_hash="",
                drafter=drafter,
                drafter_hash=None,
                K=self.K,
                code=code_version(),
                machine={
                    "server": self.config.url,
                    "engines": sorted(number for _, number in engines),
                    "adaptive": self.adaptive,
                    "told": info is not None,
                    "extension": found is not None,
                    "unread": unread,
                    "system": platform.platform(),
                    "versions": {"vllm": version, "python": platform.python_version()},
                },
            )
        )
        self.order.state = "serving"
        self._new_block()
        if found:
            self._begin_draining(found)
            told = found.about["missing"]
        else:
            told = cannot_know(self.adaptive, bool(self.K), info is not None, unread)
        for sentence in told:
            self.order.event("info", "not told", sentence)
        if self.config.key_variable and self.config.url.startswith("http://"):
            self.order.event("warning", "key", "The key travels unencrypted: https:// would protect it.")
        reading = read(self.server.metrics())  # once more: what was asked meanwhile has taken seconds
        self.tried = self.order.clock()
        self.last = (self.tried, reading)

    def _begin_draining(self, found: Found) -> None:
        if found.K > self.K:
            raise AttachError(
                f"Since it restarted the server drafts {found.K} tokens at a time, and this run began with {self.K}: "
                "begin another."
            )
        self.found = found
        self.drained = Drained(self.put, time.monotonic() - self.order.clock(), self.K)
        self.drained.begin(found.about, found.record, ARM, self.block, self.order.step)

    def _find(self, info: Mapping[str, Any] | None, reading: Reading) -> Found:
        """The extension's record: in its file, where that is named. Raises Unread or ServerError."""
        if self.config.telemetry:
            return find_ring(
                self.config.telemetry, self.model, sorted(number for _, number in self._mine(reading))
            )
        return find_extension(self.server, info, self._first_alone(reading))

    def _first_alone(self, reading: Reading) -> bool:
        """Whether the server's first engine is all that is watched."""
        return len(reading.engines) == 1 or [key for _, key in self._mine(reading)] == [_first(reading)]

    def _first_reading(self) -> Reading:
        """The first look; it waits for a server that is not up. Raises AttachError, ServerError, MetricsError."""
        until = self.order.clock() + self.config.wait
        while True:
            self.order.progress(f"asking {self.config.url}", 0, 0)
            try:
                return read(self.server.metrics())
            except (ServerError, MetricsError) as error:
                passing = isinstance(error, MetricsError) or error.passing
                if not passing or self.order.clock() >= until:
                    raise
            self.order.outbox.wait(self.config.interval)
            self._obey()
            if self.stop_reason:
                raise AttachError("Watching was stopped before the server was up.")

    def _choose_model(self, reading: Reading) -> str:
        models = sorted({model for model, _ in reading.engines})
        if not self.model and len(models) == 1:
            return models[0]
        if not self.model:
            raise AttachError(
                f"The server serves {len(models)} models, {', '.join(models)}: choose one with --model."
            )
        if self.model not in models:
            raise AttachError(f"The server does not serve {self.model!r}; it serves {', '.join(models)}.")
        return self.model

    def _mine(self, reading: Reading) -> dict[Engine, Counters]:
        """The engines that this run watches. Raises AttachError where there is none."""
        mine = {key: each for key, each in reading.engines.items() if key[0] == self.model}
        chosen = {key: each for key, each in mine.items() if self.config.engine in (None, key[1])}
        if not chosen:
            numbers = ", ".join(sorted(number for _, number in mine))
            raise AttachError(
                f"The server has no engine {self.config.engine} of {self.model}; it has {numbers}."
                if mine
                else f"The server does not serve {self.model} any more."
            )
        return chosen

    def _verification(self, spec: Mapping[str, Any]) -> bool | None:
        if self.config.verification != "ask":
            return self.config.verification == "adaptive"
        return bool(spec.get("enable_adaptive_verification")) if spec else None

    def _new_block(self) -> None:
        self.put(frames.Block(self.block, ARM, "serve", self.order.step, self.order.clock(), WORKLOAD))

    # ---- commands ------------------------------------------------------------------------------------------

    def _over(self, seconds: float) -> bool:
        limits = (
            (seconds, self.config.duration),
            (self.tokens, self.config.tokens),
            (self.finished, self.config.requests),
        )
        return bool(self.stop_reason) or any(
            limit is not None and reached >= limit for reached, limit in limits
        )

    def _obey(self) -> None:
        if self.order.outbox.lost:
            raise AttachError(self.order.outbox.lost)
        if self.order.asked_to_stop.is_set():
            self.stop_reason = "stopped"
        for command in self.order.outbox.commands():
            match command:
                case commands.Stop():
                    self.stop_reason = "stopped"
                case commands.Pause():
                    self._pause(True)
                case commands.Resume():
                    self._pause(False)
                case _:
                    name = type(command).__name__
                    self.order.event(
                        "warning", "attach", f"{name} was not done: the server is somebody else's."
                    )

    def _pause(self, paused: bool) -> None:
        if paused != self.paused:
            self.paused, self.order.state = paused, "paused" if paused else "serving"
            self.order.event("info", self.order.state, "Nothing is read." if paused else "Reading goes on.")
            self.last = None  # the next reading begins an interval

    # ---- looking -------------------------------------------------------------------------------------------

    def _age(self) -> float:
        """Seconds since the last attempt to read."""
        return self.order.clock() - self.tried

    def _look(self) -> None:
        """One interval. What is asked for is had as a whole: the counters and, where it is there, the extension's
        record; until then the server is silent, and the interval goes on.
        """
        self.tried = self.order.clock()
        try:
            reading = read(self.server.metrics())
            before, after = self.last, (self.order.clock(), reading)
            if before and fell(before[1], reading):
                self._restarted(after)
                before = None
            if self.lost:
                self._find_again(reading)
            found = self._record() if before else None
            if (
                found and self.drained and found["next"] <= self.drained.after
            ):  # a restart that no counter shows
                self._restarted(after)
                before = None
        except ServerError as error:
            self._silent(error)
            return
        except MetricsError as error:  # a server that is starting has none yet
            self._silent(ServerError(str(error), passing=True))
            return
        if self.silent_since is not None:
            self.silent_since, self.order.state = None, "serving"
            self.order.event("info", "server", "The server answers again.")
        self.last = after
        if before:
            self._tell_engines(before[1], reading)
            self._report(before, after, found)

    def _tell_engines(self, before: Reading, after: Reading) -> None:
        """Engines that left /metrics or came to it: throughput is of those that are there."""
        old, new = ({key for key in each.engines if key[0] == self.model} for each in (before, after))
        if self.config.engine is not None:
            return
        for _, engine in sorted(old - new):
            self.order.event(
                "warning", "server", f"Engine {engine} left /metrics: rates are of {len(new)} from here on."
            )
        for _, engine in sorted(new - old):
            self.order.event("info", "server", f"Engine {engine} came to /metrics.")

    def _restarted(self, now: tuple[float, Reading]) -> None:
        self.block, self.last = self.block + 1, now
        self.order.event(
            "warning",
            "server",
            "The server restarted: it counts from the beginning. The interval is left out.",
        )
        self._new_block()
        self.lost, self.drained = self.lost or self.drained is not None, None
        self.held = NO_LENGTH

    def _find_again(self, reading: Reading) -> None:
        """The extension of a server that restarted. Raises ServerError where it may be found the next time."""
        try:
            found = self._find(self.server.configuration(), reading)
        except (Unread, ServerError) as error:
            if isinstance(error, ServerError) and error.passing:
                raise
            self.order.event(
                "warning", "server", f"{error} From here on this run has only the server's counters."
            )
        else:
            self._begin_draining(found)
        self.lost = False

    def _record(self) -> Mapping[str, Any] | None:
        """What the server's worker has recorded since, None without its extension. Raises ServerError."""
        if self.drained is None or self.found is None:
            return None
        return self.found.drain(self.drained.after, self.drained.refits_after)

    def _silent(self, error: ServerError) -> None:
        """Wait for a server that does not answer, but not for ever. Raises what cannot pass."""
        if not error.passing:
            raise error
        now = self.order.clock()
        if self.silent_since is None:
            self.silent_since, self.order.state = now, "waiting for the server"
            self.order.event("warning", "server", str(error))
        elif now - self.silent_since > self.config.patience:
            raise AttachError(
                f"{error} It has been silent for {self.config.patience:g} s, so watching ended."
            )

    def _report(
        self, before: tuple[float, Reading], after: tuple[float, Reading], found: Mapping[str, Any] | None
    ) -> None:
        """One interval: a sample for each engine, and a step for all, or the steps that the extension recorded."""
        seconds = after[0] - before[0]
        parts: dict[Engine, Counters] = {}
        for key, counters in self._mine(after[1]).items():
            if key in before[1].engines:  # else it is new: it is known from the next interval on
                parts[key] = between(before[1].engines[key], counters)
        if not parts:
            return
        step = self.order.step
        for (model, engine), counters in parts.items():
            self.put(engine_sample(counters, step, after[0], self.block, model, engine, seconds))
        everything = total(list(parts.values()))
        by_position = everything.accepted_by_position
        if by_position and not self.unequal and abs(sum(by_position) - everything.accepted) > 1:
            self.unequal = True
            self.order.event(
                "warning",
                "server",
                f"Accepted tokens and their counts by position differ, {everything.accepted:,.0f} and "
                f"{sum(by_position):,.0f} in one interval: do not trust acceptance by position here.",
            )
        if self.drained and found is not None:
            self._take(self.drained, found, round(everything.waiting))
        else:
            self.put(frames.Steps([step_of(everything, step, after[0], self.block, self.adaptive)]))
            self.order.step = step + 1
        self.tokens += everything.tokens
        self.finished += everything.finished

    def _take(self, drained: Drained, found: Mapping[str, Any], waiting: int) -> None:
        """The steps that the server's worker has made since, and what they say of others who use its extension."""
        if found["dropped"] and not self.overwritten:
            self.overwritten = True
            self.order.event(
                "warning", "extension", f"{found['dropped']:,} steps were overwritten before they were read."
            )
        verify = found["step_fields"].index("verify")
        new = [row for row in found["steps"] if row[0] > drained.after]
        if new and new[-1][verify] != self.held:
            self.held = new[-1][verify]
            self.order.event(
                "warning",
                "extension",
                "The length of verification is vLLM's own choice again."
                if self.held == NO_LENGTH
                else f"Somebody holds the length of verification at {self.held} (avlab_policy).",
            )
        steps = drained.take(found, lambda _: self.block, lambda _: ARM, waiting)
        if steps:
            self.put(frames.Steps(steps))
            self.order.step = steps[-1].step + 1


def _first(reading: Reading) -> str:
    """The number of the server's first engine."""
    return min((number for _, number in reading.engines), key=lambda number: (len(number), number))


def _speculative(info: Mapping[str, Any] | None) -> Mapping[str, Any]:
    spec = (info or {}).get("vllm_config", {}).get("speculative_config")
    return spec if isinstance(spec, Mapping) else {}
