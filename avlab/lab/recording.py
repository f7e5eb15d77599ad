"""Recording a trace in processes of its own: parts are handed out one by one, so that none waits for another.

A recording does not depend on how many processes share it, and one that was ended goes on where it was.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from avlab.config import RunConfig
from avlab.lines import LineChild, Said
from avlab.replay.about import About, TraceError
from avlab.replay.trace import Trace, write_trace

CHILD = "avlab.workers.recording"
# settings of a run that a recording does not have
NOT_OF_A_TRACE = (
    "policy", "arrival", "duration", "tokens", "requests", "database", "keep_text", "drafts", "costs", "depth_costs",
    "new_request", "max_num_seqs", "max_num_batched_tokens", "threads", "spin",
)  # fmt: skip


class Recording:
    """Texts of a workload and drafts at every position of them, on their way into a new file.

    doing: what is being prepared, or "recording". done, due: texts; due is 0 until it is known. error: why it ended
    early, one sentence.
    """

    def __init__(self, config: RunConfig, texts: int, path: Path, processes: int, draws: int = 1):
        """path: of the new file; what is recorded lies beside it until then. draws: how often each text is drafted
        for."""
        self.path, self.doing, self.done, self.due, self.error = path, "starting", 0, 0, ""
        self.folder = path.with_name(f"{path.name}.parts")
        self._lock, self._over = threading.Lock(), threading.Event()
        self._parts: queue.SimpleQueue[int] | None = None  # those that nobody has taken yet
        self._about: About | None = None
        self._count = 0
        order = {
            "config": config.model_dump(mode="json"),
            "texts": texts,
            "draws": draws,
            "folder": str(self.folder),
        }
        self._running = processes
        self._children = [
            LineChild(CHILD, order, "A recording process", self._heard, self._ended) for _ in range(processes)
        ]

    def wait(self, seconds: float | None = None) -> bool:
        """Whether every part is recorded, or recording has failed, within so many seconds."""
        return self._over.wait(seconds)

    def finish(self) -> Trace:
        """The trace, written to its file, once `wait` is over. Raises TraceError."""
        from avlab.engine.recording.work import close, joined

        if self.error or self._about is None:
            raise TraceError(self.error or "The recording was stopped.")
        trace = joined(self.folder, self._count, self._about)
        write_trace(trace, self.path)
        close(self.folder)
        return trace

    def close(self) -> None:
        """End the processes, whatever they are doing; what is recorded stays for the next time."""
        if not self._over.is_set():
            self.error = self.error or "The recording was stopped; the same command goes on where it was."
            self._over.set()
        for child in self._children:
            child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what its processes say ---------------------------------------------------------------------------------

    def _heard(self, child: LineChild, said: Said) -> None:
        if "doing" in said and not self.due:
            self.doing = said["doing"]
        if "recorded" in said:
            with self._lock:
                self.done += said["recorded"]
        if "about" in said:
            self._plan(said["parts"], said["texts"], said["about"])
        if "about" in said or "next" in said:
            assert self._parts is not None
            try:
                child.tell(str(self._parts.get_nowait()))
            except queue.Empty:
                child.finish()

    def _plan(self, parts: int, texts: int, about: Said) -> None:
        """A process knows what is to be recorded; all of them find the same."""
        with self._lock:
            if self._parts is None:
                self.doing, self.due, self._count = "recording", texts, parts
                self._about = replace(About(**about), features=tuple(about["features"]))
                self._parts = queue.SimpleQueue()
                for part in range(parts):
                    self._parts.put(part)

    def _ended(self, error: str) -> None:
        """One process is done; error: why it could not go on, or ""."""
        with self._lock:
            self.error = self.error or error
            self._running -= 1
            if not self._running or error:
                self._over.set()
