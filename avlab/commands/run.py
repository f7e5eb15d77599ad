"""`avlab run`: its options, its progress, and how it is interrupted in good order."""

import inspect
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avlab.commands import terminal
from avlab.config import ConfigError, RunConfig, Traffic, default_database
from avlab.kinds import Config

if TYPE_CHECKING:
    from avlab.lab.guest import Remote

LOOK_SECONDS = 0.3
DEFAULT_SECONDS = 60.0  # how long `run` serves when no limit is given
JSON = typer.Option("--json", help="one JSON object on standard output, nothing else there")


def make() -> Any:
    """The command, for typer: an option for every field of RunConfig, which also checks them."""

    def command(**options: Any) -> None:
        as_json = options.pop("as_json")
        _run(_config(options), as_json)

    signature = _signature()
    command.__doc__ = "Serve a workload in a background worker, record it, and show how it goes."
    command.__signature__ = signature  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def _run(config: RunConfig, as_json: bool) -> None:
    serve(config, as_json, terminal.show_summary)


def serve(config: Config, as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """A run from its start to its end with progress, and its summary on standard output by `show`, or as JSON."""
    with Interrupts() as interrupts, opened(config) as served:
        _serve(served, config, interrupts, as_json, show)


@contextmanager
def opened(config: Config, plan: Any = None) -> "Iterator[Local | Remote]":
    """A run that was just started: in a lab of our own, or in the one that holds the database."""
    from avlab.lab.checks import check
    from avlab.lab.guest import Remote
    from avlab.lab.lab import Lab
    from avlab.lab.reach import here_or_there

    if isinstance(config, RunConfig):
        check(config)
    found: Any = here_or_there(
        config.database, lambda: Lab(config.database, hospitable=False), lambda: Remote(config, plan)
    )
    if isinstance(found, Remote):
        yield found
        return
    with found:
        yield Local(found, config, plan)


def _config(options: dict[str, Any]) -> RunConfig:
    return RunConfig.make(limited(plain_settings(options)))


def limited(given: dict[str, Any]) -> dict[str, Any]:
    """Settings with a limit: a minute where none is given; --duration forever is none."""
    if not any(name in given for name in ("duration", "tokens", "requests")):
        given["duration"] = DEFAULT_SECONDS
    if str(given.get("duration")).lower() in ("inf", "forever"):
        given["duration"] = None
    return given


def plain_settings(options: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line, with --prompts as a workload and the database by its whole path."""
    given = {name: value for name, value in options.items() if value is not None}
    prompts = given.pop("prompts", None)
    if prompts is not None:
        if "workload" in given:
            raise ConfigError(["--prompts and --workload both say what is served; give one of them."])
        given["workload"] = f"file:{Path(prompts).expanduser().resolve()}"
    database = given.get("database", default_database())
    given["database"] = str(Path(database).expanduser().resolve()) if str(database).strip() else ""
    return given


class Local:
    """A run in this process's own lab; plan: of the A/B that it is for."""

    def __init__(self, lab: Any, config: Config, plan: Any = None):
        self.lab, self.notes = lab, lab.notes
        self.run = lab.run(config, plan)

    def progress(self) -> dict[str, Any]:
        return self.lab.progress()

    def stop(self, at_once: bool) -> None:
        self.lab.ask_to_stop(at_once)

    def summary(self) -> dict[str, Any]:
        self.lab.settle()
        return self.lab.show(self.run)

    def ab(self, slo: Any = None) -> dict[str, Any]:
        return self.lab.ab(self.run, slo)

    def frontier(self, slo: Any = None) -> dict[str, Any]:
        return self.lab.frontier(self.run, slo)


def _serve(served: Any, config: Config, interrupts: "Interrupts", as_json: bool, show: Any) -> None:
    limits = {"duration": config.duration, "tokens": config.tokens, "requests": config.requests}
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


def follow(served: Any, display: terminal.RunDisplay, interrupts: "Interrupts") -> dict[str, Any]:
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


def began(served: Any, progress: dict[str, Any]) -> bool:
    """Whether there is such a run: it is recorded from its greeting on. Says so where it was stopped before."""
    status = progress["status"]
    found = bool(progress["tally"]["policy"]) or status["run"] != served.run
    if not found and not status["error"]:
        terminal.fail("It was stopped before the run began: nothing is recorded.")
    return found


def end(status: dict[str, Any], interrupts: "Interrupts") -> None:
    """Leave the command with the code that a run's end deserves."""
    if status["error"]:
        if status["log"]:
            terminal.fail("\n".join(["The last lines of the worker's log:", *status["log"], ""]))
        terminal.fail(status["error"])
        raise typer.Exit(1)
    if interrupts.count:
        raise typer.Exit(130)


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


def _signature() -> inspect.Signature:
    as_json = parameter("as_json", Annotated[bool, JSON], False)
    return inspect.Signature([*setting_parameters(), as_json])


def with_settings(
    own: dict[str, tuple[Any, Any, str]],
    decided: Collection[str],
    act: Callable[..., None],
    help: str,
    kind: type[Traffic] = RunConfig,
    words: tuple[str, str] | None = None,
) -> Any:
    """A command that takes options of its own (name: type, default, help) and the settings of a run but `decided`.

    act: called with its own options, the settings that were given, and whether JSON was asked for. kind: the
    configuration that the settings are of. words: metavar and help of a list of words, which act is given in front.
    """

    def command(**options: Any) -> None:
        as_json = options.pop("as_json")
        mine = {name: options.pop(name) for name in own}
        given = [options.pop("words")] if words else []
        act(*given, mine, options, as_json)

    parameters = []
    if words:
        argument = typer.Argument(metavar=words[0], help=words[1])
        parameters.append(parameter("words", Annotated[list[str], argument], inspect.Parameter.empty))
    for name, (type_, default, text) in own.items():
        plain = not isinstance(default, bool)
        metavar = ("NUMBER" if type_ is int else "TEXT") if plain else None
        option = typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=metavar)
        parameters.append(parameter(name, Annotated[type_ | None if plain else type_, option], default))
    parameters += [*setting_parameters(decided, kind), parameter("as_json", Annotated[bool, JSON], False)]
    command.__doc__ = help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def setting_parameters(
    leave_out: Collection[str] = (), of: type[Traffic] = RunConfig
) -> list[inspect.Parameter]:
    """An option for every setting of a run that is not left out, and --prompts."""
    parameters = []
    for name, field in of.model_fields.items():
        if name in leave_out:
            continue
        flag = f"--{name.replace('_', '-')}"
        plain = name == "database" or field.default is None or isinstance(field.default, bool)
        shown = "" if plain else f" [{field.default}]"
        help = f"{field.description}{shown}"
        kind: Any
        if field.annotation is bool:
            option = typer.Option(f"{flag}/--no-{flag[2:]}", help=help, show_default=False)
            kind = bool | None
        else:
            option = typer.Option(flag, help=help, metavar=_metavar(field.annotation))
            kind = str | None
        parameters.append(parameter(name, Annotated[kind, option]))
    prompts = typer.Option("--prompts", help="a JSONL file of your own prompts", metavar="FILE")
    parameters.append(parameter("prompts", Annotated[str | None, prompts]))
    return parameters


def _metavar(annotation: Any) -> str:
    return "NUMBER" if annotation in (int, float, int | None, float | None) else "TEXT"


def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a command, for typer."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
