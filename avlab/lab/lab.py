"""A lab: one database held for writing, the recorder, at most one worker, and the socket for everybody else.

What the CLI's `run` and the dashboard both are. No torch here.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from avlab.config import RunConfig
from avlab.errors import not_written
from avlab.experiments import frontier_plan
from avlab.experiments.analysis import analyse
from avlab.experiments.answers import ABAnswer, FrontierAnswer, Objective
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.experiments.summary import summarise
from avlab.experiments.values import to_values
from avlab.kinds.base import Config
from avlab.kinds.registry import REFERENCE, make_config
from avlab.lab.generation import LastGeneration
from avlab.lab.owner import Owner, OwnerError
from avlab.lab.supervisor import Supervisor, WorkerError
from avlab.lab.tally import Tally
from avlab.policies.arm import load_of
from avlab.store import queries
from avlab.store.database import Database, owner_of
from avlab.store.errors import DatabaseHeld, StoreError
from avlab.store.export import export_run
from avlab.store.ids import next_run_id
from avlab.store.recorder import Recorder
from avlab.wire import commands, frames

PATIENCE = 2.0  # seconds to wait for a reader that has the file open for a moment
CHANGE_SECONDS = 3.0  # that a change waits for the worker's answer: a step, or one with a long prompt
COMPARING = "An A/B or a frontier is running, and its plan decides what is served: stop it first."
ENDED = "The run ended before its worker could do that."
REFUSALS = ("policy", "workload", "window", "attach")  # kinds of events by which a worker refuses a change


class Lab:
    """Open a database as its owner until `close`; use as a context manager.

    on_frame: called with every frame of a run as it arrives; it must be quick. worker_commands: as `Supervisor` takes
    them. takes_others_runs: whether other processes may start runs here; not where this process serves one run and
    ends. `notes` holds what is worth telling once, such as a worker of an earlier lab that was ended. Raises
    DatabaseHeld when another process owns the file.
    """

    def __init__(
        self,
        path: str | Path,
        on_frame: Callable[[frames.Frame], None] = lambda frame: None,
        worker_commands: Mapping[str, Sequence[str]] | None = None,
        takes_others_runs: bool = True,
    ):
        self.notes: list[str] = []
        self.tally, self.generation = Tally(), LastGeneration()  # of the last run that was started
        self._turn = threading.Lock()  # held while a run takes the place of the one before
        self._plan: commands.Experiment | None = None  # of the last run
        # workload and arrival in force; "" for those that a plan changes, or nobody knows
        self.traffic = ("", "")
        self._changing, self._answered, self._refusal = threading.Lock(), threading.Event(), ""
        self._on_frame, self._takes_others_runs = on_frame, takes_others_runs
        self.database = _open(Path(path))
        try:
            self.notes += self.database.notes
            self.recorder = Recorder(self.database)
            self.supervisor = Supervisor(self.database.path, self.recorder, worker_commands)
            if self.supervisor.recovered:
                self.notes.append(f"A worker left over from run {self.supervisor.recovered} was ended.")
            self.owner = self._open_owner()
        except BaseException:
            self.database.close()
            raise

    def run(
        self,
        config: Config | dict,
        experiment: commands.Experiment | dict | None = None,
        kind: str = REFERENCE,
    ) -> str:
        """Start a run and return its id at once. Raises ConfigError or WorkerError.

        experiment: the plan of the A/B that the run is for (`experiments.plan` makes both). kind: of worker, where
        config is plain values.
        """
        plan = (
            msgspec.convert(experiment, commands.Experiment) if isinstance(experiment, dict) else experiment
        )
        checked = make_config(config, kind) if isinstance(config, dict) else config
        with self.database.reading() as con:
            run, tally = next_run_id(queries.newest_run(con)), Tally()
        with self._turn:  # where the start is refused, what is known of the run before stays
            self.supervisor.start(
                checked.changed(database=str(self.database.path)),
                run,
                lambda frame: self._frame(frame, tally),
            )
            self.tally, self.generation, self._plan = tally, LastGeneration(), plan
            self.traffic = _traffic(checked, plan)
        if plan is not None:
            self.supervisor.send(plan)
        return run

    def progress(self) -> dict[str, Any]:
        """The worker's status and the run's numbers so far, as JSON can hold them."""
        with self._turn:
            return {"status": asdict(self.supervisor.status()), "tally": self.tally.snapshot()}

    def stop(self) -> dict[str, Any]:
        """Stop the running worker and say how it ended."""
        return asdict(self.supervisor.stop())

    def ask_to_stop(self, at_once: bool = False) -> None:
        """Begin to stop the running worker and return; at_once: without waiting for its last step."""
        arguments = {"timeout": 0.0} if at_once else {}
        threading.Thread(target=self.supervisor.stop, kwargs=arguments).start()

    def _run_for_another_process(self, **asked: Any) -> str:
        if not self._takes_others_runs:
            raise WorkerError(
                f"{self.database.path} is held by a command (PID {os.getpid()}) that serves one run and ends: wait "
                "for its end, or choose another file."
            )
        return self.run(**asked)

    def window(self, steps: int, teach: bool = False) -> str:
        """Ask for a window of full verification; the run it is of. Raises WorkerError where that cannot be now."""
        self.change(commands.Window(steps, teach))
        return self.supervisor.status().run or ""

    @property
    def comparing(self) -> bool:
        """Whether the worker carries out an A/B or a frontier."""
        return self._plan is not None and self.supervisor.status().alive

    def change(self, command: commands.SetPolicy | commands.SetWorkload | commands.Window) -> None:
        """Have the worker serve otherwise from its next step on. Raises WorkerError where it cannot or will not.

        Waits a moment for its answer; a worker that says nothing meanwhile does it later, or refuses it in the run's
        events alone.
        """
        with self._changing:
            if self.comparing:
                raise WorkerError(COMPARING)
            self._refusal = ""
            self._answered.clear()
            self.supervisor.send(command)
            heard = self._answered.wait(CHANGE_SECONDS)
            if self._refusal:
                raise WorkerError(self._refusal)
            if not heard and not self.supervisor.status().alive:
                raise WorkerError(ENDED)
            if isinstance(command, commands.SetWorkload):
                self.traffic = (command.workload, command.arrival)

    def generate(self, command: commands.Generate) -> None:
        """Ask for a prompt to be served alone; `tape` follows it. Raises WorkerError where that cannot be now."""
        if self.comparing:
            raise WorkerError(COMPARING)
        if self.generation.now.active:
            raise WorkerError("The playground is in use: wait for its end, or end it.")
        before, self.generation = self.generation, LastGeneration()
        self.generation.ask(command)
        try:
            self.supervisor.send(command)
        except WorkerError:
            self.generation = before
            raise

    def runs(self) -> list[dict]:
        """All runs, newest first."""
        with self.database.reading() as con:
            return queries.runs(con)

    def show(self, run: str) -> dict:
        """A run's summary with its A/B or frontier, by id, the beginning of one, or "last"."""
        with self.database.reading() as con:
            return summarise(con, queries.find_run(con, run))

    def ab(self, run: str, slo: Objective | None = None) -> ABAnswer:
        """What a run's A/B says by now, by id, the beginning of one, or "last"."""
        with self.database.reading() as con:
            return analyse(con, queries.find_run(con, run), slo)

    def frontier(self, run: str, slo: Objective | None = None) -> FrontierAnswer:
        """What is known of the frontier that a run measures."""
        with self.database.reading() as con:
            return analyse_frontier(con, queries.find_run(con, run), slo)

    def plan_frontier(
        self, config: RunConfig | dict, experiment: commands.Experiment | dict
    ) -> frontier_plan.Rest:
        """What earlier runs leave to be done of a frontier."""
        checked = RunConfig.make(config) if isinstance(config, dict) else config
        plan = (
            msgspec.convert(experiment, commands.Experiment) if isinstance(experiment, dict) else experiment
        )
        with self.database.reading() as con:
            return frontier_plan.rest_of(con, checked, plan)

    def export(self, run: str, folder: str, form: str = "parquet") -> dict:
        """Write a run to a new folder; returns the manifest."""
        with self.database.reading() as con:
            return export_run(con, queries.find_run(con, run), folder, form)

    def report(self, run: str, file: str, slo: tuple[str, float] | None = None) -> None:
        """Write a run as one HTML file."""
        from avlab.report import write_report

        with self.database.reading() as con:
            write_report(con, queries.find_run(con, run), Path(file), slo)

    def settle(self) -> None:
        """Store what the disk did not take before, and why the run ended, if it can be stored now."""
        status = self.supervisor.status()
        if status.run and status.error and self.recorder.received(status.run) is not None:
            with contextlib.suppress(StoreError):
                self.recorder.end(status.run, status.error)

    def costs(self, run: str) -> dict:
        """The samples of a run's step costs."""
        with self.database.reading() as con:
            return queries.cost_samples(con, queries.find_run(con, run))

    def step_costs(self, run: str) -> dict:
        """What a run says of its machine."""
        with self.database.reading() as con:
            return queries.step_costs(con, queries.find_run(con, run))

    def find(self, run: str) -> str:
        """A run's whole id."""
        with self.database.reading() as con:
            return queries.find_run(con, run)

    def frame(self, run: str, name: str, file: str) -> None:
        """Write one of a run's tables to a Parquet file, as notebooks read it."""
        from avlab.store.frames import frame  # pandas loads only when a notebook asks

        with self.database.reading() as con:
            frame(con, run, name).to_parquet(file)

    def run_summary(self, run: str, arm: str | None) -> dict:
        """A run's headline numbers, of one arm if asked."""
        with self.database.reading() as con:
            return queries.run_summary(con, run, arm)

    def close(self) -> None:
        """Stop the worker, answer nobody, give the file free. Closing twice does nothing."""
        if self.owner is not None:
            self.owner.close()
            self.owner = None
        self.supervisor.close()
        self.settle()
        try:
            self.recorder.close()
        except StoreError:
            if not self.supervisor.status().error:  # else it was said already
                raise
        finally:
            self.database.close()

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_owner(self) -> Owner | None:
        handlers: dict[str, Callable[..., Any]] = {
            "run": self._run_for_another_process,
            "progress": self.progress,
            "stop": self.ask_to_stop,
            "runs": self.runs,
            "show": self.show,
            "ab": lambda **asked: to_values(self.ab(**asked)),
            "frontier": lambda **asked: to_values(self.frontier(**asked)),
            "plan_frontier": lambda **asked: to_values(self.plan_frontier(**asked)),
            "export": self.export,
            "report": self.report,
            "costs": self.costs,
            "step_costs": self.step_costs,
            "window": self.window,
            "find": self.find,
            "frame": self.frame,
            "summary": self.run_summary,
        }
        try:
            return Owner(self.database.path, handlers)
        except OwnerError as error:  # the lab works; only other processes cannot ask it
            self.notes.append(str(error))
            return None

    def _note_answer(self, frame: frames.Frame) -> None:
        """Note the answer to a change: a block begins, or an event refuses it."""
        match frame:
            case frames.Event(level="warning", kind=kind, text=text) if kind in REFUSALS:
                self._refusal = text
                self._answered.set()
            case frames.Block():
                self._answered.set()

    def _frame(self, frame: frames.Frame, tally: Tally) -> None:
        tally.add(frame)
        self.generation.add(frame)
        self._note_answer(frame)
        self._on_frame(frame)


def _traffic(config: Config, plan: commands.Experiment | None) -> tuple[str, str]:
    changes = plan is not None and any(map(load_of, plan.arms))
    return ("", "") if changes else config.traffic


def _open(path: Path) -> Database:
    """The database, with some patience for a reader that is about to close it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Database(path)
        except DatabaseHeld:
            if time.monotonic() > deadline or owner_of(path) is not None:
                raise
            time.sleep(0.1)
        except OSError as error:
            raise StoreError(not_written(path, error)) from None
