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

from avlab.vllm import VllmError
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.drained import Drained
from avlab.vllm.metrics import Counters, Engine, MetricsError, Reading, between, fell, read, total
from avlab.vllm.server import Server, ServerError
from avlab.vllm.unknown import cannot_know
from avlab.workers import messages as m
from avlab.workers.about import code_version
from avlab.workers.entry import Order

ARM = "watched"
WORKLOAD = "its users' requests"
NOT_TOLD = "not told"
LOADED = "The server has the worker extension, which cannot see its steps."
FIRST_ONLY = (
    "The server's worker extension answers for its first engine alone, so the counters of all are told: --engine 0 "
    "watches the first one from inside."
)
NAN = float("nan")


class AttachError(VllmError):
    """The server cannot be watched, or not any more. The message is one sentence."""


class Watch:
    """Watches until a limit, a stop, or until the server has been silent for too long."""

    def __init__(self, order: Order):
        self.order, self.put = order, order.outbox.put
        self.config: AttachConfig = order.config
        self.server = Server(
            self.config.url, self.config.key_variable, self.config.ca_file, self.config.timeout
        )
        self.model = self.config.model or ""
        self.adaptive: bool | None = None  # None: not known
        self.block = 0
        self.tokens = self.finished = 0.0
        self.last: tuple[float, Reading] | None = None  # when, and what was read
        self.tried = 0.0  # when a reading was last attempted
        self.silent_since: float | None = None
        self.paused, self.stop_reason = False, ""
        self.drained: Drained | None = None  # what the worker extension tells, where it is there

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
        self.order.progress(f"asking {self.config.url}", 0, 0)
        reading = read(self.server.metrics())
        version, info = self.server.version(), self.server.info()
        spec = _speculative(info)
        self.model = self._choose_model(reading)
        engines = self._mine(reading)
        self.adaptive = self._verification(spec)
        K = max(len(each.accepted_by_position) for each in engines.values())
        about = self._extension()
        unread: list[str] = []
        alone = len(reading.engines) == 1 or [key for _, key in engines] == [_first(reading)]
        if about and not about["steps"]:
            unread = [LOADED, *about["missing"]]
        elif about and not alone:
            unread = [FIRST_ONLY]
        if unread:
            about = None
        if about:
            K, self.adaptive = int(about["K"]), bool(about["adaptive"])
        drafter = None if not K else str(spec.get("model") or spec.get("method") or NOT_TOLD)
        self.put(
            m.Hello(
                kind=AttachConfig.kind,
                pid=os.getpid(),
                wall=time.time() - self.order.clock(),
                config=self.config.model_dump(mode="json") | {"policy": ARM, "workload": WORKLOAD},
                target=self.model,
                target_hash="",
                drafter=drafter,
                drafter_hash=None,
                K=K,
                code=code_version(),
                machine={
                    "server": self.config.url,
                    "engines": sorted(number for _, number in engines),
                    "adaptive": self.adaptive,
                    "told": info is not None,
                    "extension": about is not None,
                    "system": platform.platform(),
                    "versions": {"vllm": version, "python": platform.python_version()},
                },
            )
        )
        self.order.state = "serving"
        self._new_block()
        if about:
            self._begin_draining(about)
        told = about["missing"] if about else cannot_know(self.adaptive, bool(K), info is not None)
        for sentence in (*told, *unread):
            self.order.event("info", "not told", sentence)
        if self.config.key_variable and self.config.url.startswith("http://"):
            self.order.event("warning", "key", "The key travels unencrypted: https:// would protect it.")
        self.tried = self.order.clock()
        self.last = (self.tried, reading)

    def _extension(self) -> dict[str, Any] | None:
        """What the server's worker extension says of itself; None where there is none."""
        try:
            about = self.server.call("avlab_begin")[0]
        except (ServerError, IndexError):
            return None
        return about if isinstance(about, dict) and "steps" in about else None

    def _begin_draining(self, about: Mapping[str, Any]) -> None:
        self.drained = Drained(self.put, time.monotonic() - self.order.clock())
        found = self.server.call("avlab_drain", -1, -1)[0]
        self.drained.begin(about, found, ARM, self.block, self.order.step)

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
        self.put(m.Block(self.block, ARM, "serve", self.order.step, self.order.clock(), WORKLOAD))

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
                case m.Stop():
                    self.stop_reason = "stopped"
                case m.Pause():
                    self.paused, self.order.state = True, "paused"
                case m.Resume():
                    self.paused, self.order.state, self.last = False, "serving", None
                case _:
                    name = type(command).__name__
                    self.order.event(
                        "warning", "attach", f"{name} was not done: the server is somebody else's."
                    )

    # ---- looking -------------------------------------------------------------------------------------------

    def _age(self) -> float:
        """Seconds since the last attempt to read."""
        return self.order.clock() - self.tried

    def _look(self) -> None:
        self.tried = self.order.clock()
        try:
            reading = read(self.server.metrics())
        except ServerError as error:
            self._silent(error)
            return
        except MetricsError as error:  # a server that is starting has none yet
            self._silent(ServerError(str(error), passing=True))
            return
        now = self.order.clock()
        if self.silent_since is not None:
            self.silent_since, self.order.state = None, "serving"
            self.order.event("info", "server", "The server answers again.")
        before, self.last = self.last, (now, reading)
        if before is None:
            return
        if fell(before[1], reading):
            self.block += 1
            self.order.event(
                "warning", "server", "The server restarted: its counters fell. The interval is left out."
            )
            self._new_block()
            if self.drained:
                about = self._extension()
                self.drained = None
                if about and about["steps"]:
                    self._begin_draining(about)
            return
        self._report(before, (now, reading))

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

    def _report(self, before: tuple[float, Reading], after: tuple[float, Reading]) -> None:
        """One interval: a sample for each engine, a step for all."""
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
        if self.drained:
            self._drain(self.drained, round(everything.waiting))
        else:
            self.put(m.Steps([step_of(everything, step, after[0], self.block, self.adaptive)]))
            self.order.step = step + 1
        self.tokens += everything.tokens
        self.finished += everything.finished

    def _drain(self, drained: Drained, waiting: int) -> None:
        """The steps that the server's worker has made since."""
        try:
            found = self.server.call("avlab_drain", drained.after, drained.refits_after)[0]
        except ServerError as error:
            self._silent(error)
            return
        steps = drained.take(found, lambda _: self.block, lambda _: ARM, waiting)
        if steps:
            self.put(m.Steps(steps))
            self.order.step = steps[-1].step + 1


def step_of(counters: Counters, step: int, time: float, block: int, adaptive: bool | None) -> m.Step:
    """An interval as a step. By position only acceptance is told; where drafts were of full length that is what was
    scheduled too, and where verification is known to be fixed, what was admitted, and labelled: a slot is if all before
    it were accepted.
    """
    K = len(counters.accepted_by_position)
    accepted = tuple(map(round, counters.accepted_by_position))
    drafts = round(counters.drafts)
    full = K > 0 and round(counters.draft_tokens) == K * drafts
    scheduled = (drafts,) * K if full else None
    fixed = full and adaptive is False
    return m.Step(
        step=step,
        time=time,
        block=block,
        running=round(counters.running),
        waiting=round(counters.waiting),
        emitting=round(counters.outputs),
        prompt_tokens=round(counters.prompt_tokens),
        target_tokens=None,
        drafted=K,
        budget=round(counters.draft_tokens) if fixed else None,
        tokens=round(counters.tokens),
        scheduled=scheduled,
        admitted=scheduled if fixed else None,
        accepted=accepted,
        labelled=(drafts, *accepted[:-1]) if fixed else None,
        expected_tokens=NAN,
        expected_ms=NAN,
        draft_ms=NAN,
        verify_ms=NAN,
        sample_ms=NAN,
        decide_ms=NAN,
        report_ms=NAN,
        idle_ms=NAN,
        explored=0,
        explored_ms=0.0,
    )


def engine_sample(
    counters: Counters, step: int, time: float, block: int, model: str, engine: str, seconds: float
) -> m.EngineSample:
    """An interval of one engine as a frame; None for what this server does not tell."""

    def told(name: str, value: Any) -> Any:
        return None if name in counters.missing else value

    return m.EngineSample(
        step=step,
        time=time,
        block=block,
        model=model,
        engine=engine,
        seconds=seconds,
        running=counters.running,
        waiting=counters.waiting,
        cache_usage=told("cache_usage", counters.cache_usage),
        engine_steps=told("engine_steps", counters.engine_steps),
        prompt_tokens=round(counters.prompt_tokens),
        tokens=round(counters.tokens),
        finished=round(counters.finished),
        preemptions=round(counters.preemptions),
        outputs=round(counters.outputs),
        first_tokens=round(counters.first_tokens),
        first_token_seconds=counters.first_token_seconds,
        later_outputs=round(counters.later_outputs),
        later_seconds=counters.later_seconds,
        drafts=told("drafts", round(counters.drafts)),
        draft_tokens=told("draft_tokens", round(counters.draft_tokens)),
        accepted=told("accepted", round(counters.accepted)),
        accepted_by_position=[round(each) for each in counters.accepted_by_position],
    )


def _first(reading: Reading) -> str:
    """The number of the server's first engine."""
    return min((number for _, number in reading.engines), key=lambda number: (len(number), number))


def _speculative(info: Mapping[str, Any] | None) -> Mapping[str, Any]:
    spec = (info or {}).get("vllm_config", {}).get("speculative_config")
    return spec if isinstance(spec, Mapping) else {}
