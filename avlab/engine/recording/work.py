"""Recording many texts, part by part, each kept on disk: a recording that was ended goes on from its last part.

A part is always the same texts, written and drafted for together, so a recording is the same however many processes
share it and however often it was ended.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from avlab.engine.build import Built
from avlab.engine.drafters.along import Recordable
from avlab.engine.recording.chances import Sampling
from avlab.engine.recording.parts import Part
from avlab.engine.recording.recorder import Recorder
from avlab.engine.recording.texts import written
from avlab.engine.request import Request
from avlab.errors import not_written
from avlab.replay.trace import About, Trace, TraceError

TEXTS = 16  # of a part


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recorded. requests: all of them, in order, under one sampling. folder: of the parts.

    identity: what the parts depend on, one line; parts of another recording are not taken for this one's.
    """

    requests: Sequence[Request]
    sampling: Sampling
    seed: int
    folder: Path
    identity: str

    @property
    def parts(self) -> int:
        return -(-len(self.requests) // TEXTS)

    def path(self, part: int) -> Path:
        return self.folder / f"{part:05d}.npz"

    def open(self) -> None:
        """Make the folder, or make sure that it is this recording's. Raises TraceError."""
        mark = self.folder / "recording.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not mark.exists():
                mark.write_text(json.dumps(self.identity))
            if json.loads(mark.read_text()) != self.identity:
                raise TraceError(
                    f"{self.folder} holds parts of another recording: remove it, or name another file."
                )
        except (OSError, json.JSONDecodeError) as error:
            raise TraceError(not_written(self.folder, error)) from None

    def close(self) -> None:
        """Remove the parts: their trace is written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def record_parts(
    plan: Plan, built: Built, drafter: Recordable, mine: Sequence[int], progress: Callable[[int], None]
) -> None:
    """Records these parts, those that are there already left out. progress(parts done of `mine`)."""
    recorder = Recorder(built.target, drafter, plan.sampling, plan.seed)
    for done, part in enumerate(mine):
        if not plan.path(part).exists():
            texts = written(
                built.engine, plan.requests[part * TEXTS : (part + 1) * TEXTS], lambda done, total: None
            )
            found = (
                Part.of(texts, [recorder.record(text) for text in texts])
                if texts
                else Part.empty(drafter.K, len(drafter.features))
            )
            found.save(plan.path(part))
        progress(done + 1)


def joined(plan: Plan, about: About) -> Trace:
    """The trace of all parts. Raises TraceError where no text holds an anchor."""
    whole = Part.joined([Part.load(plan.path(part)) for part in range(plan.parts)])
    if not len(whole.kind):
        raise TraceError("Every text ended with its first token: choose another workload or sampling.")
    return whole.trace(about)
