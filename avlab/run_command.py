"""`avlab run`: its options, its progress, and how it is interrupted in good order."""

import inspect
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from avlab import terminal
from avlab.config import ConfigError, RunConfig, default_database

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
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def _run(config: RunConfig, as_json: bool) -> None:
    from avlab.lab import Lab
    from store.errors import DatabaseHeld

    with _Interrupts() as interrupts:
        try:
            lab = Lab(config.database)
        except DatabaseHeld:
            _serve(_Remote(config), config, interrupts, as_json)
            return
        with lab:
            _serve(_Local(lab, config), config, interrupts, as_json)


def _config(options: dict[str, Any]) -> RunConfig:
    given = {name: value for name, value in options.items() if value is not None}
    prompts = given.pop("prompts", None)
    if prompts is not None:
        if "workload" in given:
            raise ConfigError(["--prompts and --workload both say what is served; give one of them."])
        given["workload"] = f"file:{Path(prompts).expanduser().resolve()}"
    limits = ("duration", "tokens", "requests")
    if not any(name in given for name in limits):
        given["duration"] = DEFAULT_SECONDS
    if str(given.get("duration")).lower() in ("inf", "forever"):
        given["duration"] = None
    given["database"] = str(Path(given.get("database") or default_database()).expanduser().resolve())
    return RunConfig.make(given)


class _Local:
    """A run in this process's own lab."""

    def __init__(self, lab: Any, config: RunConfig):
        self.lab, self.notes = lab, lab.notes
        self.run = lab.run(config)

    def progress(self) -> dict[str, Any]:
        return self.lab.progress()

    def stop(self, at_once: bool) -> None:
        arguments = {"timeout": 0.0} if at_once else {}
        threading.Thread(target=self.lab.supervisor.stop, kwargs=arguments).start()

    def summary(self) -> dict[str, Any]:
        return self.lab.show(self.run)


class _Remote:
    """A run in the lab that holds the database, asked through its socket."""

    def __init__(self, config: RunConfig):
        from avlab.workers.owner import ask

        self.database, self.ask = config.database, ask
        self.run = ask(config.database, "run", config=config.model_dump(mode="json"))
        self.notes = [f"The lab that holds {config.database} serves this run."]

    def progress(self) -> dict[str, Any]:
        return self.ask(self.database, "progress")

    def stop(self, at_once: bool) -> None:
        self.ask(self.database, "stop")

    def summary(self) -> dict[str, Any]:
        return self.ask(self.database, "show", run=self.run)


def _serve(served: Any, config: RunConfig, interrupts: "_Interrupts", as_json: bool) -> None:
    limits = {"duration": config.duration, "tokens": config.tokens, "requests": config.requests}
    obeyed = 0
    with terminal.RunDisplay(limits) as display:
        display.say(f"run {served.run}")
        for note in served.notes:
            display.say(note)
        while True:
            progress = served.progress()
            display.show(progress["tally"])
            if progress["status"]["state"] == "ended" or progress["status"]["run"] != served.run:
                break
            if interrupts.count > obeyed:
                display.say("Ending the worker." if obeyed else "Stopping; Ctrl-C again to end it at once.")
                served.stop(at_once=obeyed > 0)
                obeyed = interrupts.count
            time.sleep(LOOK_SECONDS)
    status = progress["status"]
    recorded = status["outcome"] != "failed" or progress["tally"]["policy"]
    if recorded:
        summary = served.summary()
        if summary["state"] == "running":  # its end could not be recorded; the next owner will mark it
            summary["state"] = "cut short"
        terminal.print_json(summary) if as_json else terminal.show_summary(summary)
    if status["error"]:
        terminal.fail(status["error"])
        raise typer.Exit(1)
    if interrupts.count:
        raise typer.Exit(130)


class _Interrupts:
    """While entered, counts Ctrl-C and SIGTERM instead of raising, so that a run can be ended in order."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "_Interrupts":
        self._old = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def _signature() -> inspect.Signature:
    parameters = []
    for name, field in RunConfig.model_fields.items():
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
        parameters.append(_parameter(name, Annotated[kind, option]))
    prompts = typer.Option("--prompts", help="a JSONL file of your own prompts", metavar="FILE")
    parameters.append(_parameter("prompts", Annotated[str | None, prompts]))
    parameters.append(_parameter("as_json", Annotated[bool, JSON], False))
    return inspect.Signature(parameters)


def _metavar(annotation: Any) -> str:
    return "NUMBER" if annotation in (int, float, int | None, float | None) else "TEXT"


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
