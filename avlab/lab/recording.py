"""Recording a trace in processes of its own: parts are handed out one by one, so that none waits for another.

A recording does not depend on how many processes share it, and one that was ended goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from avlab import temporary
from avlab.config import RunConfig
from avlab.processes import end_tree, start_child, tail, worker_environment
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
        self._children = [_Child(order, self) for _ in range(processes)]

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

    def planned(self, parts: int, texts: int, about: dict) -> None:
        """A process knows what is to be recorded; all of them find the same."""
        with self._lock:
            if self._parts is None:
                self.doing, self.due, self._count = "recording", texts, parts
                self._about = replace(About(**about), features=tuple(about["features"]))
                self._parts = queue.SimpleQueue()
                for part in range(parts):
                    self._parts.put(part)

    def next_part(self) -> int | None:
        """A part that nobody has taken; None where there are no more."""
        assert self._parts is not None
        with contextlib.suppress(queue.Empty):
            return self._parts.get_nowait()
        return None

    def recorded(self, texts: int) -> None:
        """So many more texts are done."""
        with self._lock:
            self.done += texts

    def ended(self, error: str) -> None:
        """One process is done; error: why it could not go on, or ""."""
        with self._lock:
            self.error = self.error or error
            self._running -= 1
            if not self._running or error:
                self._over.set()


class _Child:
    """One process, and the thread that hears it."""

    def __init__(self, order: dict, recording: Recording):
        self._recording = recording
        self._log = temporary.file("avlab-recording-")
        self._process = start_child(CHILD, worker_environment(1, 0), self._log)
        self._tell(json.dumps(order))
        threading.Thread(target=self._listen, daemon=True).start()

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):  # it has ended: the thread says why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout and self._process.stdin
        error, recording = None, self._recording
        for line in self._process.stdout:
            said = json.loads(line)
            if "doing" in said and not recording.due:
                recording.doing = said["doing"]
            if "recorded" in said:
                recording.recorded(said["recorded"])
            if "about" in said:
                recording.planned(said["parts"], said["texts"], said["about"])
            if "about" in said or "next" in said:
                part = recording.next_part()
                if part is None:
                    self._process.stdin.close()
                else:
                    self._tell(str(part))
            error = said.get("error", error)
        self._process.wait()
        if error is None:
            last = tail(self._log)
            error = f"A recording process ended early ({last[-1].strip() if last else 'without a word'})."
        self._log.unlink(missing_ok=True)
        recording.ended(error)

    def end(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            end_tree(self._process.pid)
