"""A run's numbers as its frames arrive: for a progress display, without asking the database."""

from collections import deque
from typing import Any

from avlab.wire import frames

RECENT_SECONDS = 5.0  # of the run's clock


class Tally:
    """Adds up frames. `add` is called from one thread; `snapshot` from any."""

    def __init__(self) -> None:
        self.steps = self.tokens = self.requests = self.emitting = 0
        self.running = self.waiting = 0
        self.arm, self.state = "", "starting"
        self.emulated = ""  # what of the run is, in words
        self.slope: float | None = None
        self.intercepts: list[float] = []
        self.refits = 0
        self.scheduled: list[int] = []
        self.admitted: list[int] = []
        self.accepted: list[int] = []
        self.labelled: list[int] = []
        self.engines: dict[str, float] = {}  # of watched servers: output tokens a second in the last interval
        self.untold: set[str] = set()  # which of these a watched server does not always tell
        self.warnings: deque[str] = deque(maxlen=100)
        self._begin: float | None = None  # of serving, on the run's clock
        self._time = self._now = 0.0  # of the last step; of the last frame
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, frame: frames.Frame) -> None:
        """Count a frame."""
        match frame:
            case frames.Hello(machine=machine):
                self.emulated = str(machine.get("emulated", ""))
            case frames.Steps(steps):
                for step in steps:
                    self._add_step(step)
            case frames.EngineSample(engine=engine, tokens=tokens, seconds=seconds) if seconds > 0:
                self.engines[engine] = tokens / seconds
            case frames.Block(arm=arm, time=begin):
                self.arm, self.state = arm, "serving"
                self._begin = begin if self._begin is None else self._begin
            case frames.Refit(refit=refit, slope=slope, intercepts=intercepts):
                self.refits, self.slope, self.intercepts = refit, slope, intercepts
            case frames.RequestDone():
                self.requests += 1
            case frames.Heartbeat(time=time, state=state):
                self.state, self._now = state, max(self._now, time)
            case frames.Event(level=level, text=text) if level != "info":
                self.warnings.append(text)

    def _add_step(self, step: frames.Step) -> None:
        self.steps += 1
        self.tokens += step.tokens
        self.emitting += step.emitting
        self.running, self.waiting, self._time = step.running, step.waiting, step.time
        for name in ("scheduled", "admitted", "accepted", "labelled"):
            mine, counts = getattr(self, name), getattr(step, name)
            if counts is None:
                self.untold.add(name)
                continue
            mine.extend([0] * (len(counts) - len(mine)))
            for k, count in enumerate(counts):
                mine[k] += count
        self._now = max(self._now, step.time)
        self._recent.append((step.time, step.tokens))
        while self._recent and self._now - self._recent[0][0] > RECENT_SECONDS:  # steps may come late
            self._recent.popleft()

    def snapshot(self) -> dict[str, Any]:
        """The numbers now, as JSON can hold them: rates in tokens a second, acceptance by position."""
        now, begin = self._now, self._begin
        seconds = self._time - begin if begin is not None else 0.0
        recent = [each for each in self._recent.copy() if now - each[0] <= RECENT_SECONDS]
        span = now - recent[0][0] if recent else 0.0
        labelled = () if "labelled" in self.untold else self.labelled
        conditional = [a / n if n else None for a, n in zip(self.accepted, labelled, strict=False)]
        return {
            "state": self.state,
            "policy": self.arm,
            "emulated": self.emulated,
            "steps": self.steps,
            "tokens": self.tokens,
            "requests": self.requests,
            "running": self.running,
            "waiting": self.waiting,
            "seconds": max(seconds, 0.0),
            "tokens_per_s": self.tokens / seconds if seconds > 0 else None,
            "recent_tokens_per_s": sum(n for _, n in recent) / span if span > 0.5 else None,
            "tokens_per_step": self.tokens / self.emitting if self.emitting else None,
            "scheduled": None if "scheduled" in self.untold else sum(self.scheduled),
            "admitted": None if "admitted" in self.untold else sum(self.admitted),
            "accepted": sum(self.accepted),
            "conditional_acceptance": conditional,
            "slope": self.slope,
            "intercepts": list(self.intercepts),
            "refits": self.refits,
            "engines": dict(self.engines),
        }
