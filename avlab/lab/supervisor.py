"""Starts, watches and ends one worker, and survives its death. Safe to use from any thread."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from avlab.errors import CLOSED, FULL, cause, not_written, remedy
from avlab.kinds.base import Config
from avlab.kinds.registry import command_of
from avlab.lab.inbox import Inbox, Recorder
from avlab.lab.leftover import Trace, recover
from avlab.liveness import Silence, wait
from avlab.processes import RUN_VARIABLE, end_tree, members, sweep, tail, worker_environment
from avlab.wire import commands, frames
from avlab.wire.sockets import endpoint, private_folder
from avlab.workers.entry import COULD_NOT_START

LATE_SECONDS = 3.0  # without a frame, after which a worker is shown as late
SHOWN_LINES = 15  # of its log, where it failed
DEAD_SECONDS = 30.0  # and after which it is ended, where it ran meanwhile: three times what it allows its lab
STOP_SECONDS = 15.0  # a step, the farewell and its commit
REFUSED_SECONDS = 3.0  # for the last frames of a run that cannot be recorded: the disk may get room
MEMORY = (
    "if this machine's memory ran out, lower --max-num-seqs or --max-model-len, or choose a smaller target"
)


class WorkerError(RuntimeError):
    """A worker could not be started or has failed. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a supervisor knows of its worker.

    kind: of the worker, "" before the first start.
    state: "none" before the first start, "starting", what the worker says of itself ("timing steps 3/40",
    "serving", "paused", "stopping"), or "ended". outcome, once ended: "done", "stopped", "failed" or
    "cut short". error: the sentence of a failure. silent: seconds since the last frame. late: the same when that is
    too long, else 0. log: the last lines of its output where it failed, but for the sentence itself.
    """

    run: str | None = None
    kind: str = ""
    pid: int | None = None
    state: str = "none"
    outcome: str = ""
    error: str = ""
    step: int = 0
    rss_mb: float = 0.0
    drafts_dropped: int = 0
    silent: float = 0.0
    late: float = 0.0
    log: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        return self.state not in ("none", "ended")


class Supervisor:
    """One worker at a time for one database. The recorder must stay open until `close`.

    worker_commands: by kind, what starts a worker in place of its kind's own command. A worker that an earlier lab left
    behind is ended at once; `recovered` then names its run.
    """

    def __init__(
        self,
        database: Path,
        recorder: Recorder,
        worker_commands: Mapping[str, Sequence[str]] | None = None,
    ):
        self._trace = database.with_name(database.name + ".worker")
        self._recorder, self._commands = recorder, worker_commands or {}
        self._lock = threading.RLock()
        self._worker: _Worker | None = None
        self.recovered = recover(self._trace)

    def start(
        self, config: Config, run: str, on_frame: Callable[[frames.Frame], None] = lambda frame: None
    ) -> None:
        """Start a worker on this configuration; returns at once. Raises WorkerError when one is running.

        on_frame: called with every frame of this run as it arrives; it must be quick. What it raises is said when the
        run has ended, and the run is recorded all the same.
        """
        with self._lock:
            if self._worker is not None and not self._worker.ended.is_set():
                raise WorkerError(f"A worker is busy with run {self._worker.run}: stop that one first.")
            command = tuple(self._commands.get(config.kind) or command_of(config.kind))
            self._worker = _Worker(config, run, self._recorder, on_frame, command, self._trace)

    def send(self, command: commands.Command) -> None:
        """Pass a command to the worker; a Stop also ends one that still prepares. Raises WorkerError without one."""
        worker = self._worker
        if worker is None or worker.ended.is_set():
            raise WorkerError("No worker is running: start a run first.")
        if isinstance(command, commands.Stop):
            worker.ask_to_stop(command.drain)
        else:
            worker.inbox.send(command)

    def status(self) -> WorkerStatus:
        return WorkerStatus() if self._worker is None else self._worker.status()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the worker's end and its last frames' commit; False if the time (s) ran out first."""
        return self._worker is None or self._worker.ended.wait(timeout)

    def stop(self, timeout: float = STOP_SECONDS, drain: bool = False) -> WorkerStatus:
        """Ask the worker to stop, see that it does, and return how it ended. Nothing it started is left."""
        if self._worker is not None:
            self._worker.stop(timeout, drain)
        return self.status()

    def log_tail(self) -> list[str]:
        """The last lines the worker wrote to its output."""
        return [] if self._worker is None else self._worker.log_tail()

    def close(self) -> None:
        """Stop the worker, if any."""
        self.stop()


class _Worker:
    """One worker process, its link, and the thread that watches it."""

    def __init__(
        self, config: Config, run: str, recorder: Recorder, on_frame, command: tuple[str, ...], trace: Path
    ):
        self.run, self._kind, self.ended = run, config.kind, threading.Event()
        self._recorder, self._on_frame, self._trace = recorder, on_frame, trace
        self._greeted = False
        self._bye: frames.Bye | None = None
        self._beat: frames.Heartbeat | None = None
        self._steps = 0  # that have arrived
        self._error, self._ending, self._asked_to_stop = "", "", False
        self._fault = ""  # of the lab's own while it followed the worker
        self._log: list[str] = []
        self._others: list[psutil.Process] = []  # that the worker started, when last looked at
        self._folder = private_folder()
        try:
            self.inbox = Inbox(endpoint(self._folder), run, recorder, self._frame, self._cannot_record)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        order = {"run": run, "address": endpoint(self._folder), "lab": os.getpid()}
        try:
            other = command[0] != sys.executable
            environment = worker_environment(config.threads, config.spin, other)
            with (self._folder / "worker.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment | {RUN_VARIABLE: run},
                    start_new_session=True,
                )
            Trace.of(self._process.pid, run, self._folder).write(trace)
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(json.dumps(order | {"config": config.given()}).encode())
        except OSError as error:
            if hasattr(self, "_process"):
                self._process.kill()
                self._process.wait()
                sweep(self._process.pid, [])
            self.inbox.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            why = f"{cause(error)}: {error.filename}."
            if error.errno in (*FULL, *CLOSED):
                why = not_written(error.filename or self._folder, error)
            raise WorkerError(f"The worker could not be started: {why}") from None
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._watcher.start()

    def status(self) -> WorkerStatus:
        beat, silent = self._beat, self.inbox.silent_seconds
        ended = self.ended.is_set()
        return WorkerStatus(
            run=self.run,
            kind=self._kind,
            pid=None if ended else self._process.pid,
            state="ended" if ended else self._state(),
            outcome=self._outcome() if ended else "",
            error=self._error,
            step=beat.step if beat else 0,
            rss_mb=beat.rss_mb if beat else 0.0,
            drafts_dropped=beat.drafts_dropped if beat else 0,
            silent=0.0 if ended else silent,
            late=silent if silent > LATE_SECONDS and not ended else 0.0,
            log=tuple(line for line in self._log[-SHOWN_LINES:] if line not in self._error)
            if ended and self._error
            else (),
        )

    def _state(self) -> str:
        if self._asked_to_stop and not self._greeted:
            return "stopping"
        return self._beat.state if self._beat else "starting"

    def ask_to_stop(self, drain: bool) -> None:
        self._asked_to_stop = True
        self.inbox.send(commands.Stop(drain))
        if not self._greeted:  # still preparing, and not listening
            self._process.terminate()

    def stop(self, timeout: float, drain: bool) -> None:
        if not self.ended.is_set():
            self.ask_to_stop(drain)
            if not wait(self.ended, timeout):
                self._ending = self._ending or "The worker did not stop when asked and was ended."
                end_tree(self._process.pid)
                self.ended.wait(10)

    def log_tail(self) -> list[str]:
        return self._log or tail(self._folder / "worker.log")

    # ---- called by the inbox's threads ---------------------------------------------------------------------

    def _frame(self, frame: frames.Frame) -> None:
        if isinstance(frame, frames.Heartbeat):
            self._beat = frame
        elif isinstance(frame, frames.Hello):
            self._greeted = True
        elif isinstance(frame, frames.Steps):
            self._steps += len(frame.steps)
        elif isinstance(frame, frames.Bye):
            self._bye = frame
        try:
            self._on_frame(frame)
        except Exception as error:  # recording goes on without whoever looks on
            self._note_fault(error)

    def _cannot_record(self, sentence: str) -> None:
        """Serving on would be for nothing: what cannot be recorded is lost."""
        self._error = sentence
        self.inbox.send(commands.Stop())

    def _note_fault(self, error: Exception) -> None:
        """Keep the sentence of the first fault of the lab's own, and print where it was."""
        if not self._fault:
            self._fault = (
                f"The lab failed while it followed the worker ({type(error).__name__}: {cause(error)})."
            )
            traceback.print_exception(error)

    # ---- the watching thread -------------------------------------------------------------------------------

    def _watch(self) -> None:
        """See the worker to its end. Whatever fails on the way, the rest is done and the end is said."""
        try:
            for act in (self._attend, self._sweep, self.inbox.close, self._conclude, self._clear):
                try:
                    act()
                except Exception as error:
                    self._note_fault(error)
            self._error = self._error or self._fault
        finally:
            self.ended.set()

    def _attend(self) -> None:
        """Wait for the process to end; end it when it is silent, or when nothing of it can be recorded."""
        looked = refused = 0.0
        silence, heard = Silence(self._process.pid), self.inbox.heard
        while True:
            try:
                self._process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if now - looked > 2:  # children are swept also when their parent went without a word
                looked, self._others = now, members(self._process.pid)
            if heard != self.inbox.heard:
                heard = self.inbox.heard
                silence.heard()
            if silence.look() > DEAD_SECONDS and heard is not None:
                self._ending = f"The worker did not answer for {DEAD_SECONDS:g} s and was ended."
                end_tree(self._process.pid, grace=0.5)
            if self._error:
                refused = refused or now
                if now - refused > REFUSED_SECONDS:
                    end_tree(self._process.pid)

    def _sweep(self) -> None:
        if self._process.poll() is None:  # nobody attends to it any more
            self._ending = self._ending or self._fault
            end_tree(self._process.pid)
            self._process.wait(STOP_SECONDS)
        sweep(self._process.pid, self._others)

    def _clear(self) -> None:
        """Remove what the next lab would take for a worker that is left."""
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            self._trace.unlink(missing_ok=True)
        except OSError as error:
            self._fault = self._fault or f"{self._trace} cannot be removed ({cause(error)}): {remedy(error)}."

    def _conclude(self) -> None:
        """Say how it ended; a run without a farewell is marked as cut short."""
        self._log = tail(self._folder / "worker.log")
        code = self._process.returncode
        if code is None:
            how, code = "could not be ended", 0
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if self._bye is not None:
            if not self._error and not self._bye.complete and self._bye.reason != "stopped":
                self._error = self._bye.reason
            return
        if not self._greeted and self._asked_to_stop:
            return
        if self._greeted:
            after = f" after {self._steps:,} steps" if self._steps else ""
            sentence = self._ending or f"The worker {how}{after}: the run is cut short."
            try:
                self._recorder.end(self.run, sentence)
            except Exception as error:
                sentence = str(error)  # the next lab that opens the file marks the run
            self._error = self._error or sentence
        elif not self._error:
            if code == COULD_NOT_START and self._log:
                sentence = self._log[-1]
            elif self._log and code > 0:
                sentence = f"The worker could not start: {self._log[-1]}"
            else:
                sentence = f"The worker {how} while it started, and said nothing: start it again; {MEMORY}."
            self._error = self._ending or sentence

    def _outcome(self) -> str:
        if self._bye is None:
            if self._greeted:
                return "cut short"
            return "stopped" if self._asked_to_stop and not self._error else "failed"
        if self._bye.complete:
            return "failed" if self._error else "done"
        return "stopped" if self._bye.reason == "stopped" and not self._error else "failed"
