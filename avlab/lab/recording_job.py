"""`avlab trace record` as a job of the dashboard's server: one at a time, in a process of its own, until it is done or
stopped. What is recorded stays on disk, so a recording of the same name goes on where it was.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence

from avlab.errors import not_written
from avlab.installation import PROJECT
from avlab.processes import end_tree, tail, worker_environment
from avlab.replay.about import TraceError
from avlab.replay.traces import new_path


class RecordingJob:
    """A trace on its way into the reader's own. due: texts that were asked for."""

    def __init__(self, name: str, texts: int, options: Sequence[str]):
        """options: of `avlab trace record`, beside the file and the number of texts. Raises TraceError."""
        self.name, self.due, self.path = name, texts, new_path(name)
        self._parts = self.path.with_name(f"{self.path.name}.parts")
        self._log, self._stopped = self.path.with_name(f"{self.path.name}.log"), False
        words = ["trace", "record", str(self.path), "--texts", str(texts), "--processes", "1", *options]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "avlab", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    cwd=PROJECT,
                    env=worker_environment(1, 0),
                    start_new_session=True,
                )
        except OSError as error:
            raise TraceError(not_written(self.path, error)) from None

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def done(self) -> int:
        """Texts that are recorded."""
        return self.due if self.path.exists() else len(list(self._parts.glob("*-*.npz")))

    def said(self) -> str:
        """What came of it, once it runs no more: one sentence."""
        if self.path.exists():
            return f"The trace {self.name} is recorded: choose it as a trace."
        if self._stopped:
            return "The recording was stopped. Record the same name again to go on."
        last = tail(self._log)
        return last[-1].strip() if last else "The recording ended early, without a word."

    def stop(self) -> None:
        """End it, with all that it started."""
        if self.running:
            self._stopped = True
            end_tree(self._process.pid)
            self._process.wait()
        with contextlib.suppress(OSError):
            if self.path.exists() or self._stopped:
                self._log.unlink(missing_ok=True)


_lock = threading.Lock()
_job: RecordingJob | None = None


def current() -> RecordingJob | None:
    """The recording under way, or the last one; None where there was none."""
    return _job


def start(name: str, texts: int, options: Sequence[str]) -> RecordingJob:
    """Begin a recording. Raises TraceError, also where one is under way."""
    global _job
    with _lock:
        if _job is not None and _job.running:
            raise TraceError(f"The trace {_job.name} is being recorded: stop it, or wait.")
        if _job is not None:
            _job.stop()
        _job = RecordingJob(name, texts, options)
        return _job


def stop() -> None:
    """End the recording under way, if there is one."""
    with _lock:
        if _job is not None:
            _job.stop()
