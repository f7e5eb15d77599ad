"""A run that vLLM serves, as frames: the reporter of `avlab.workers.serving`'s loop for this engine."""

import bisect
import contextlib
import time
from collections.abc import Callable

from avlab.policies.arm import Arm
from avlab.speculation.regression import Coefficients
from avlab.vllm.drained import Drained
from avlab.vllm.engine import Report, VllmEngine
from avlab.vllm.instance import EngineError, Iteration
from avlab.wire import frames

REPORT_SECONDS = 0.25


class VllmReporter:
    """Steps come from the worker's record where it has one, in blocks by their numbers; else from vLLM's statistics."""

    def __init__(self, put: Callable[[frames.Frame], None], clock: Callable[[], float], engine: VllmEngine):
        self._put, self._clock, self._engine, self.K = put, clock, engine, engine.K
        self.block, self.arm, self.kind, self.name = -1, engine.policy.arm, "", str(engine.policy.arm)
        self.tokens = 0
        self._blocks: list[tuple[int, str]] = []  # first step and arm's name, by block
        self._steps: list[frames.Step] = []
        self._sent = time.monotonic()
        self._report_ms = 0.0
        self._drained: Drained | None = None
        self._engines = 0  # that it was made for

    def begin_block(
        self,
        arm: Arm,
        kind: str,
        step: int,
        workload: str,
        round: int | None = None,
        taught: bool = True,
        name: str = "",
    ) -> None:
        """What follows step `step` belongs to a new block. vLLM's one estimator is taught in every block."""
        self._take_drains()
        self._send()
        self.block, self.arm, self.kind = self.block + 1, arm, kind
        self.name = name or str(arm)
        self._blocks.append((step, self.name))
        self._put(frames.Block(self.block, self.name, kind, step, self._clock(), workload, round))
        engine = self._engine
        if engine.opened != self._engines:
            self._engines, self._drained = engine.opened, None
            if engine.about["steps"]:
                began = time.monotonic() - self._clock()
                self._drained = Drained(self._put, began, self.K, engine.config.temperature)
                begun = engine.instance.begun
                self._drained.begin(engine.about, begun, self.name, self.block, engine.first_step)

    def cold_start(self, coefficients: Coefficients, step: int) -> None:
        """vLLM's own estimator begins in its worker, whose record tells it."""

    def take(self, report: Report, idle_ms: float) -> None:
        """Take a step; sends what is due."""
        began = time.perf_counter()
        self.tokens += report.tokens
        if self._drained is None and report.iteration is not None:
            self._steps.append(self._step(report.iteration, idle_ms))
        for found in report.drains:
            self._take(found)
        if time.monotonic() - self._sent >= REPORT_SECONDS:
            self._send()
        self._report_ms = (time.perf_counter() - began) * 1e3

    def spent(self, seconds: float) -> None:
        """Count time that the serving loop spent on texts and arrivals as reporting."""
        self._report_ms += seconds * 1e3

    def flush(self) -> None:
        """Send all that is known by now, which is what was read so far where vLLM does not answer any more."""
        with contextlib.suppress(EngineError):
            self._engine.drain()
        self._take_drains()
        self._send()

    def _take_drains(self) -> None:
        for found in self._engine.take_drains():
            self._take(found)

    def _take(self, found: dict) -> None:
        if self._drained is None:
            return
        waiting = self._engine.last.waiting if self._engine.last else 0
        self._steps += self._drained.take(
            found, self._block_of, lambda step: self._blocks[self._block_of(step)][1], waiting
        )
        if found["dropped"]:
            self._put(
                frames.Event(
                    "warning", "vllm", f"{found['dropped']} steps were overwritten before they were read.",
                    self._clock(), self._engine.step_number,
                )
            )  # fmt: skip

    def _wide(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """By position up to K: an engine of another arm may draft fewer."""
        return (*counts, *[0] * (self.K - len(counts)))

    def _block_of(self, step: int) -> int:
        """The block that a step belongs to."""
        return max(0, bisect.bisect_right([first for first, _ in self._blocks], step) - 1)

    def _send(self) -> None:
        self._sent = time.monotonic()
        if self._steps:
            self._put(frames.Steps(self._steps))
            self._steps = []

    def _step(self, each: Iteration, idle_ms: float) -> frames.Step:
        """A step as vLLM's statistics tell it. Verification is fixed here, so what was scheduled was verified."""
        scheduled, accepted = self._wide(each.scheduled), self._wide(each.accepted)
        drafts = sum(scheduled)
        return frames.Step(
            step=self._engine.step_number - 1,
            time=each.time,
            block=self.block,
            running=each.running,
            waiting=each.waiting,
            emitting=each.emitting,
            prompt_tokens=each.prompt_tokens,
            drafted=sum(map(bool, scheduled)),
            budget=drafts,
            tokens=each.tokens,
            scheduled=scheduled,
            admitted=scheduled,
            accepted=accepted,
            labelled=tuple(min(n, a) for n, a in zip(scheduled, (drafts, *accepted), strict=False)),
            report_ms=self._report_ms,
            idle_ms=idle_ms,
        )
