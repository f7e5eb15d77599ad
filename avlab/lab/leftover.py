"""A worker that outlived its lab: how it is written down, found by the next lab, and ended."""

import contextlib
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from avlab.processes import RUN_VARIABLE, end_tree, members, sweep
from avlab.wire.sockets import FOLDER_PREFIX, is_private

SAME_PROCESS_SECONDS = 2.0  # start times are read with the clock's own error; a pid is not reused so fast


@dataclass(frozen=True, slots=True)
class Trace:
    """A worker as written beside the database, so that the next lab finds one that outlived its own."""

    pid: int
    created: float  # seconds since the epoch
    run: str
    folder: str

    @classmethod
    def of(cls, pid: int, run: str, folder: Path) -> "Trace":
        try:
            created = psutil.Process(pid).create_time()
        except psutil.Error:
            created = time.time()
        return cls(pid, created, run, str(folder))

    def write(self, path: Path) -> None:
        """Write it whole or not at all. Raises OSError, with the file's name."""
        temporary = path.with_name(path.name + ".new")
        try:
            temporary.write_text(json.dumps(asdict(self)))
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from None

    @classmethod
    def read(cls, path: Path) -> "Trace | None":
        """The trace in a file; None when there is none or it cannot be read."""
        try:
            values = json.loads(path.read_text())
            return cls(
                int(values["pid"]), float(values["created"]), str(values["run"]), str(values["folder"])
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def process(self) -> psutil.Process | None:
        """The process if it is still the one that was written down: by its run, or by when it began.

        The run is in its environment whatever happens to the clock, on which the time depends.
        """
        try:
            process = psutil.Process(self.pid)
            begun = abs(process.create_time() - self.created) < SAME_PROCESS_SECONDS
            same = begun or _serves(process, self.run)
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def recover(trace_file: Path) -> str | None:
    """End the worker that an earlier lab left behind, if it still runs; the run it served, or None.

    Only for the owner of the database: then no other lab can be using that worker.
    """
    trace = Trace.read(trace_file)
    if trace is None:
        return None
    process = trace.process()
    if process is not None:
        end_tree(trace.pid)
    else:  # what it started may have outlived it, and has its run in the environment
        left = [each for each in members(trace.pid) if _serves(each, trace.run)]
        if left:
            sweep(trace.pid, left)
    folder = Path(trace.folder)
    if folder.name.startswith(FOLDER_PREFIX) and is_private(folder):
        shutil.rmtree(folder, ignore_errors=True)
    trace_file.unlink(missing_ok=True)
    return trace.run if process is not None else None


def _serves(process: psutil.Process, run: str) -> bool:
    try:
        return process.environ().get(RUN_VARIABLE) == run
    except psutil.Error:
        return False
