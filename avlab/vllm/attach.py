"""Servers that somebody else started, as a run: their counters, differenced over the lab's own interval.

A `Step` of such a run is an interval between two readings, all engines of all servers together; each engine has an
`EngineSample` beside it. What counters cannot tell is None there, and said in words once. Where the only server has the
worker extension and tells its record, a `Step` is a step of its engine, and nothing is missing.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from avlab.about import code_version
from avlab.vllm.drained import NO_LENGTH, Drained
from avlab.vllm.find_extension import Found, Unread, find_extension
from avlab.vllm.find_ring import find_ring
from avlab.vllm.intervals import engine_sample, step_of
from avlab.vllm.metrics import Reading, fell, total
from avlab.vllm.ring_server import RingServer
from avlab.vllm.server import Server, ServerError
from avlab.vllm.unknown import cannot_know
from avlab.vllm.watched import AttachError, Part, Watched, names_of
from avlab.vllm.watching import Order
from avlab.wire import commands, frames

ARM = "watched"
WORKLOAD = "its users' requests"
NOT_TOLD = "not told"


SEVERAL = "Of several servers only the counters are read: attach to one alone to read its worker extension."
T = TypeVar("T")


class Watch:
    """Watches until a limit, a stop, or until the server has been silent for too long."""

    def __init__(self, order: Order):
        self.order, self.put = order, order.outbox.put
        self.config = order.config
        config = self.config
        self.servers = [
            Watched(
                (Server if config.url else RingServer)(
                    url, config.key_variable, config.ca_file, config.timeout
                ),
                name,
                config.engine,
                config.model or "",
            )
            for url, name in zip(config.servers, names_of(config.servers), strict=True)
        ]
        self.several = len(self.servers) > 1
        self.K = 0
        self.adaptive: bool | None = None  # None: not known
        self.block = 0
        self.tokens = self.finished = 0.0
        self.tried = 0.0  # when a reading was last attempted
        self.reported = 0.0  # the end of the last interval that is a step
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
        readings = self._first_readings()
        for watched, reading in zip(self.servers, readings, strict=True):
            watched.choose_model(reading)
        engines = {
            watched.called(number): counters
            for watched, reading in zip(self.servers, readings, strict=True)
            for (_, number), counters in watched.mine(reading).items()
        }
        about = self._each(lambda watched: _about(watched.server))
        unread: list[str] = (
            [SEVERAL] if self.several else list(about[0].unread)
        )  # why the extension tells nothing
        found: Found | None = None
        if not self.several and not unread:
            try:
                found = self._find(about[0].info, readings[0])
            except Unread as error:
                unread = error.sentences
            except ServerError as error:
                unread = [f"{error} So its worker extension is not read."]
        self.K = max(len(each.accepted_by_position) for each in engines.values())
        self.adaptive = self._verification([each.speculative for each in about])
        if found:
            self.K, self.adaptive = found.K, bool(found.about["adaptive"])
        told = all(each.info is not None for each in about)
        self._greet(sorted(engines), about, found, told, unread)
        self._new_block()
        if found:
            self._begin_draining(found)
            sentences = found.about["missing"]
        else:
            sentences = cannot_know(self.adaptive, bool(self.K), told, unread)
        for sentence in sentences:
            self.order.event("info", "not told", sentence)
        if self.config.key_variable and any(url.startswith("http://") for url in self.config.servers):
            self.order.event("warning", "key", "The key travels unencrypted: https:// would protect it.")
        readings = self._first_readings()  # once more: what was asked meanwhile has taken seconds
        self.order.state = "serving"
        self.tried = self.reported = self.order.clock()
        for watched, reading in zip(self.servers, readings, strict=True):
            watched.last = (self.tried, reading)

    def _greet(
        self,
        engines: Sequence[str],
        about: Sequence["_About"],
        found: Found | None,
        told: bool,
        unread: Sequence[str],
    ) -> None:
        drafters = {
            str(each.speculative.get("model") or each.speculative.get("method") or NOT_TOLD) for each in about
        }
        self.put(
            frames.Hello(
                kind=self.config.kind,
                pid=os.getpid(),
                wall=time.time() - self.order.clock(),
                config=self.config.model_dump(mode="json") | {"policy": ARM, "workload": WORKLOAD},
                target=", ".join(sorted({watched.model for watched in self.servers})),
                target_hash="",
                drafter=", ".join(sorted(drafters)) if self.K else None,
                drafter_hash=None,
                K=self.K,
                code=code_version(),
                machine={
                    "server": ", ".join(self.config.servers),
                    "engines": list(engines),
                    "adaptive": self.adaptive,
                    "told": told,
                    "extension": found is not None,
                    "unread": list(unread),
                    "system": platform.platform(),
                    "versions": {
                        "vllm": ", ".join(sorted({each.version for each in about if each.version})) or None,
                        "python": platform.python_version(),
                    },
                },
            )
        )

    def _each(self, ask: Callable[[Watched], T]) -> list[T]:
        """What `ask` gives for each server; all are asked at once."""
        if not self.several:
            return [ask(self.servers[0])]
        with ThreadPoolExecutor(len(self.servers)) as pool:
            return list(pool.map(ask, self.servers))

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
        (only,) = self.servers
        if self.config.telemetry:
            return find_ring(
                self.config.telemetry, only.model, sorted(number for _, number in only.mine(reading))
            )
        return find_extension(only.server, info, only.alone(reading))

    def _first_readings(self) -> list[Reading]:
        """The first look; it waits for servers that are not up. Raises AttachError or ServerError."""
        until = self.order.clock() + self.config.wait
        while True:
            self.order.progress(f"asking {', '.join(self.config.servers)}", 0, 0)
            answers = self._each(Watched.read)
            errors = [each for each in answers if isinstance(each, ServerError)]
            if not errors:
                return [each for each in answers if isinstance(each, Reading)]
            if not all(error.passing for error in errors) or self.order.clock() >= until:
                raise next((error for error in errors if not error.passing), errors[0])
            self.order.outbox.wait(self.config.interval)
            self._obey()
            if self.stop_reason:
                raise AttachError("Watching was stopped before the server was up.")

    def _verification(self, told: Sequence[Mapping[str, Any]]) -> bool | None:
        """Whether it is adaptive on any server; None where one does not say and none is."""
        if self.config.verification != "ask":
            return self.config.verification == "adaptive"
        if any(spec.get("enable_adaptive_verification") for spec in told):
            return True
        return False if all(told) else None

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
            for watched in self.servers:
                watched.last = None  # the next reading begins an interval

    # ---- looking -------------------------------------------------------------------------------------------

    def _age(self) -> float:
        """Seconds since the last attempt to read."""
        return self.order.clock() - self.tried

    def _look(self) -> None:
        """One interval. What is asked for is had as a whole: the counters and, where it is there, the extension's
        record; until then the server is silent, and the interval goes on.
        """
        self.tried = self.order.clock()
        answers = self._each(Watched.read)
        now, parts = self.order.clock(), list[Part]()
        found: Mapping[str, Any] | None = None
        for watched, answer in zip(self.servers, answers, strict=True):
            try:
                if isinstance(answer, ServerError):
                    raise answer
                before, after = watched.last, (now, answer)
                if before and fell(before[1], answer):
                    self._restarted(watched, after)
                    before = None
                if self.lost:
                    self._find_again(answer)
                found = self._record() if before else None
                if (
                    found and self.drained and found["next"] <= self.drained.after
                ):  # a restart that no counter shows
                    self._restarted(watched, after)
                    before = None
                mine = watched.parts(before, after) if before else []
                if self.several:
                    watched.mine(answer)
            except ServerError as error:
                self._silent(watched, error)
                continue
            except AttachError as error:  # another model stands at one of several addresses
                if not self.several:
                    raise
                if watched.silent_since is not None and watched.foreign != str(error):
                    self.order.event("warning", "server", str(error))  # after a silence that was told
                watched.foreign = str(error)
                self._silent(watched, ServerError(str(error), passing=True))
                continue
            watched.last = after
            if before:
                self._tell_engines(watched, before[1], answer)
            if self._answers_again(watched, before):
                parts += mine
        if all(each.silent_since is not None for each in self.servers):
            self.order.state = "waiting for the server"
        if all(each.missed for each in self.servers):
            raise AttachError(
                f"All servers have been silent for {self.config.patience:g} s, so watching ended."
            )
        if parts:
            self._report(parts, now, found)

    def _answers_again(self, watched: Watched, before: tuple[float, Reading] | None) -> bool:
        """Whether what a server has done since its last answer counts. Steps of the others may have gone on meanwhile:
        then one interval would hold the tokens of many.
        """
        covered = before is not None and before[0] < self.reported
        if watched.silent_since is not None:
            watched.silent_since, watched.missed, self.order.state = None, False, "serving"
            server = watched.name or "The server"
            left_out = " What it did meanwhile is not counted." if covered else ""
            self.order.event("info", "server", f"{server} answers again.{left_out}")
        return before is not None and not covered

    def _tell_engines(self, watched: Watched, before: Reading, after: Reading) -> None:
        """Engines that left /metrics or came to it: throughput is of those that are there."""
        old, new = ({key for key in each.engines if key[0] == watched.model} for each in (before, after))
        if self.config.engine is not None:
            return
        for _, engine in sorted(old - new):
            self.order.event(
                "warning",
                "server",
                f"Engine {watched.called(engine)} left /metrics: rates are of {len(new)} from here on.",
            )
        for _, engine in sorted(new - old):
            self.order.event("info", "server", f"Engine {watched.called(engine)} came to /metrics.")

    def _restarted(self, watched: Watched, now: tuple[float, Reading]) -> None:
        self.block, watched.last = self.block + 1, now
        self.order.event(
            "warning",
            "server",
            f"{watched.name or 'The server'} restarted: it counts from the beginning. The interval is left out.",
        )
        self._new_block()
        self.lost, self.drained = self.lost or self.drained is not None, None
        self.held = NO_LENGTH

    def _find_again(self, reading: Reading) -> None:
        """The extension of a server that restarted. Raises ServerError where it may be found the next time."""
        try:
            found = self._find(self.servers[0].server.configuration(), reading)
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

    def _silent(self, watched: Watched, error: ServerError) -> None:
        """A server did not answer. Raises what cannot pass, where it is the only one."""
        if not error.passing and not self.several:
            raise error
        now = self.order.clock()
        if watched.silent_since is None:
            watched.silent_since = now
            self.order.event("warning", "server", str(error))
        elif now - watched.silent_since > self.config.patience and not watched.missed:
            watched.missed = True
            if not self.several:
                raise AttachError(
                    f"{error} It has been silent for {self.config.patience:g} s, so watching ended."
                )
            self.order.event(
                "warning",
                "server",
                f"{watched.name} has been silent for {self.config.patience:g} s: rates are of the others.",
            )

    def _report(self, parts: Sequence[Part], now: float, found: Mapping[str, Any] | None) -> None:
        """One interval: a sample for each engine, and a step for all, or the steps that the extension recorded."""
        step = self.order.step
        for part in parts:
            self.put(
                engine_sample(part.counters, step, now, self.block, part.model, part.engine, part.seconds)
            )
            by_position, accepted = part.counters.accepted_by_position, part.counters.accepted
            if by_position and not self.unequal and abs(sum(by_position) - accepted) > 1:
                self.unequal = True
                self.order.event(
                    "warning",
                    "server",
                    f"Accepted tokens and their counts by position differ, {accepted:,.0f} and "
                    f"{sum(by_position):,.0f} in one interval of engine {part.engine}: do not trust acceptance by "
                    "position here.",
                )
        counters = [part.counters for part in parts]
        everything = total(counters)
        if self.drained and found is not None:
            self._take(self.drained, found, round(everything.waiting))
        else:
            self.put(frames.Steps([step_of(counters, step, now, self.block, self.adaptive)]))
            self.order.step = step + 1
        self.reported = now
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


@dataclass(frozen=True)
class _About:
    """What a server says of itself. info: its configuration, None where it does not tell it; unread: why, in words."""

    version: str | None
    info: Mapping[str, Any] | None
    unread: Sequence[str]

    @property
    def speculative(self) -> Mapping[str, Any]:
        spec = (self.info or {}).get("vllm_config", {}).get("speculative_config")
        return spec if isinstance(spec, Mapping) else {}


def _about(server: Server) -> _About:
    version = server.version()
    try:
        return _About(version, server.configuration(), ())
    except ServerError as error:
        return _About(version, None, [f"{error} So its worker extension is not read."])
