"""Recording many texts, each kept on disk once it is done: a recording that was ended goes on where it was.

Texts are written in parts, always the same texts together, and drafted for one by one, with noise of their own: so a
recording is the same however many processes share it and however often it was ended.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from avlab.engine.build import Built
from avlab.engine.drafters.along import Recordable
from avlab.engine.drafters.lookup import Lookup
from avlab.engine.recording.chances import Sampling
from avlab.engine.recording.lookups import LookupRecorder
from avlab.engine.recording.parts import Part
from avlab.engine.recording.recorder import Recorder
from avlab.engine.recording.texts import Text, written
from avlab.engine.request import Request
from avlab.errors import not_written
from avlab.replay.about import About, TraceError
from avlab.replay.trace import Trace

TEXTS = 32  # of a part


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recorded. requests: all of them, in order, under one sampling. folder: of the parts.

    draws: how often each text is drafted for. identity: what the parts depend on, one line; parts of another recording
    are not taken for this one's.
    """

    requests: Sequence[Request]
    sampling: Sampling
    seed: int
    folder: Path
    identity: str
    draws: int = 1

    @property
    def parts(self) -> int:
        return -(-len(self.requests) // TEXTS)

    def open(self) -> None:
        """Make the folder, or make sure that it is this recording's. Raises TraceError."""
        mark = self.folder / "recording.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not mark.exists():
                new = mark.with_suffix(
                    f".{os.getpid()}"
                )  # whole or absent: several processes open one recording
                new.write_text(json.dumps(self.identity))
                new.rename(mark)
            if json.loads(mark.read_text()) != self.identity:
                raise TraceError(
                    f"{self.folder} holds parts of another recording: remove it, or name another file."
                )
        except (OSError, json.JSONDecodeError) as error:
            raise TraceError(not_written(self.folder, error)) from None


def record_parts(
    plan: Plan,
    built: Built,
    drafter: Recordable | Lookup,
    mine: Sequence[int],
    progress: Callable[[int], None],
) -> None:
    """Records these parts, what is there already left out. progress(texts done of `mine`)."""
    recorder: Recorder | LookupRecorder
    if isinstance(drafter, Lookup):
        recorder = LookupRecorder(built.target, drafter, plan.sampling)
    else:
        recorder = Recorder(built.target, drafter, plan.sampling, plan.seed)
    done = 0
    for part in mine:
        some = plan.requests[part * TEXTS : (part + 1) * TEXTS]
        if not texts_of(plan.folder, part).exists():
            _save(texts_of(plan.folder, part), written(built.engine, some, lambda done, total: None))
        texts = _load(texts_of(plan.folder, part))
        for number, text in enumerate(texts):
            if not drafts_of(plan.folder, part, number).exists():
                drafted = [recorder.record(text, draw) for draw in range(plan.draws)]
                Part.of([text] * plan.draws, drafted).save(drafts_of(plan.folder, part, number))
            progress(done + number + 1)
        done += len(some)


def _save(path: Path, texts: Sequence[Text]) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps([asdict(text) for text in texts]))
    unfinished.rename(path)


def _load(path: Path) -> list[Text]:
    return [Text(**text) for text in json.loads(path.read_text())]


def texts_of(folder: Path, part: int) -> Path:
    """The texts of a part, once they are written."""
    return folder / f"{part:05d}.json"


def drafts_of(folder: Path, part: int, text: int) -> Path:
    """What was recorded of one text of a part."""
    return folder / f"{part:05d}-{text:02d}.npz"


def joined(folder: Path, parts: int, about: About) -> Trace:
    """The trace of all parts. Raises TraceError where no text holds an anchor."""
    found = [
        Part.load(drafts_of(folder, part, text))
        for part in range(parts)
        for text in range(len(_load(texts_of(folder, part))))
    ]
    if not found:
        raise TraceError("Every text ended with its first token: choose another workload or sampling.")
    return Part.joined(found).trace(about)


def close(folder: Path) -> None:
    """Remove the parts: their trace is written."""
    shutil.rmtree(folder, ignore_errors=True)
