"""A run from the command line: opened in a lab, shown while it goes, and interrupted in good order."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import typer

from avlab.commands import terminal
from avlab.experiments.answers import ABAnswer, FrontierAnswer, Objective
from avlab.kinds.base import Config
from avlab.kinds.registry import kind_named
from avlab.wire.commands import Experiment

if TYPE_CHECKING:
    from avlab.lab.lab import Lab

LOOK_SECONDS = 0.3
Answer = dict[str, Any]  # what `--json` prints: plain values by name


class ServedRun(Protocol):
    """A run that was started: `Local` in this process's lab, `Remote` in the one that holds the database."""

    run: str

    @property
    def notes(self) -> Sequence[str]: ...
    def progress(self) -> Answer: ...
    def stop(self, at_once: bool) -> None: ...
    def summary(self) -> Answer: ...
    def ab(self, slo: Objective | None = None) -> ABAnswer: ...
    def frontier(self, slo: Objective | None = None) -> FrontierAnswer: ...


class Local:
    """A run in this process's own lab; plan: of the A/B that it is for."""

    def __init__(self, lab: "Lab", config: Config, plan: Experiment | None = None):
        self.lab, self.notes = lab, lab.notes
        self.run = lab.run(config, plan)

    def progress(self) -> Answer:
        return self.lab.progress()

    def stop(self, at_once: bool) -> None:
        self.lab.ask_to_stop(at_once)

    def summary(self) -> Answer:
        self.lab.settle()
        return self.lab.show(self.run)

    def ab(self, slo: Objective | None = None) -> ABAnswer:
        return self.lab.ab(self.run, slo)

    def frontier(self, slo: Objective | None = None) -> FrontierAnswer:
        return self.lab.frontier(self.run, slo)


class Interrupts:
    """While entered, counts Ctrl-C and SIGTERM instead of raising, so that a run can be ended in order."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Interrupts":
        self._old = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def opened(config: Config, plan: Experiment | None = None) -> Iterator[ServedRun]:
    """A run that was just started: in a lab of our own, or in the one that holds the database."""
    from avlab.lab.lab import Lab
    from avlab.lab.reach import open_or_ask
    from avlab.lab.remote import Remote

    kind_named(config.kind).check(config)

    def here() -> "Lab | Remote":
        return Lab(config.database, takes_others_runs=False)

    found = open_or_ask(config.database, here, lambda: Remote(config, terminal.errors().print, plan))
    if isinstance(found, Remote):
        yield found
        return
    with found:
        yield Local(found, config, plan)


def serve(config: Config, as_json: bool, show: Callable[[Answer], None]) -> None:
    """A run from its start to its end with progress, and its summary on standard output by `show`, or as JSON."""
    limits = {"duration": config.duration, "tokens": config.tokens, "requests": config.requests}
    with Interrupts() as interrupts, opened(config) as served:
        with terminal.RunDisplay(limits) as display:
            progress = follow(served, display, interrupts)
        status = progress["status"]
        if began(served, progress):
            summary = served.summary()
            if summary["state"] == "running":  # its end could not be recorded; the next owner will mark it
                summary["state"] = "cut short"
            if status["error"] and not as_json:  # standard error says it
                summary["reason"] = None if summary["reason"] == status["error"] else summary["reason"]
                summary["events"] = [each for each in summary["events"] if each["text"] != status["error"]]
            terminal.print_json(summary) if as_json else show(summary)
        end(status, interrupts)


def follow(served: ServedRun, display: terminal.RunDisplay, interrupts: Interrupts) -> Answer:
    """Show a run until it ends, and stop it when it is interrupted; its last progress."""
    obeyed, named = 0, False
    for note in served.notes:
        display.say(note)
    while True:
        progress = served.progress()
        if progress["tally"]["policy"] and not named:  # from its greeting on there is such a run
            display.say(f"run {served.run}")
            named = True
        display.show(progress["tally"])
        if progress["status"]["state"] == "ended" or progress["status"]["run"] != served.run:
            return progress
        if interrupts.count > obeyed:
            display.say("Ending the worker." if obeyed else "Stopping; Ctrl-C again to end it at once.")
            served.stop(at_once=obeyed > 0)
            obeyed = interrupts.count
        time.sleep(LOOK_SECONDS)


def began(served: ServedRun, progress: Answer) -> bool:
    """Whether there is such a run: it is recorded from its greeting on. Says so where it was stopped before."""
    status = progress["status"]
    found = bool(progress["tally"]["policy"]) or status["run"] != served.run
    if not found and not status["error"]:
        terminal.fail("It was stopped before the run began: nothing is recorded.")
    return found


def end(status: Answer, interrupts: Interrupts) -> None:
    """Leave the command with the code that a run's end deserves."""
    if status["error"]:
        if status["log"]:
            terminal.fail("\n".join(["The last lines of the worker's log:", *status["log"], ""]))
        terminal.fail(status["error"])
        raise typer.Exit(1)
    if interrupts.count:
        raise typer.Exit(130)
