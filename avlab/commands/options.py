"""Options that commands share, and commands that are made of a configuration's fields.

`with_settings` makes one typer command of a dataclass (the command's own options) and a configuration class (the
settings of a run), so that a setting has the same name and words in every command that takes it.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from avlab.config import ConfigError, RunConfig, Traffic, default_database, number_kind

DEFAULT_SECONDS = 60.0  # how long `run` serves when no limit is given

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]
Database = Annotated[
    Path | None, typer.Option("--database", help="The lab's file; else $AVLAB_DATABASE, else the user's own.")
]
RunName = Annotated[str, typer.Argument(help='A run\'s id, the beginning or end of one, or "last".')]
Settings = dict[str, Any]  # settings of a run by name, as they were given on the command line
Own = TypeVar("Own")


def with_settings(
    own: type[Own],
    act: Callable[[Own, Settings, bool], None],
    help: str,
    decided: Collection[str] = (),
    of: type[Traffic] = RunConfig,
) -> Callable[..., None]:
    """A typer command that takes options of its own, the settings of a run but `decided`, and --json.

    own: a keyword-only dataclass; a field is Annotated with its help, or with a typer argument. act: called with an
    instance of it, the settings that were given, and whether JSON was asked for. of: the configuration.
    """
    mine = own_parameters(own)

    def command(**options: Any) -> None:
        as_json = options.pop("as_json")
        asked = own(**{each.name: options.pop(each.name) for each in mine})
        act(asked, {name: value for name, value in options.items() if value is not None}, as_json)

    parameters = [*mine, *setting_parameters(decided, of), parameter("as_json", Json, False)]
    command.__doc__ = help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def own_parameters(own: type) -> list[inspect.Parameter]:
    """An option for every field of a dataclass, or the argument it is annotated with; required ones come first."""
    hints, parameters = get_type_hints(own, include_extras=True), []
    for field in fields(own):
        kind, told = get_args(hints[field.name])
        if isinstance(told, ArgumentInfo):
            annotation = hints[field.name]
        else:
            metavar = None if kind is bool else metavar_of(kind)
            annotation = Annotated[kind, typer.Option(flag_of(field.name), help=told, metavar=metavar)]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(parameter(field.name, annotation, default))
    return sorted(parameters, key=lambda each: each.default is not inspect.Parameter.empty)


def setting_parameters(leave_out: Collection[str], of: type[Traffic]) -> list[inspect.Parameter]:
    """An option for every setting of a run that is not left out, and --prompts."""
    parameters = []
    for name, field in of.model_fields.items():
        if name in leave_out:
            continue
        flag = flag_of(name)
        plain = name == "database" or field.default is None or isinstance(field.default, bool)
        help = f"{field.description}{'' if plain else f' [{field.default}]'}"
        annotation: Any  # a type made here, for typer
        if field.annotation is bool:
            option = typer.Option(f"{flag}/--no-{flag[2:]}", help=help, show_default=False)
            annotation = Annotated[bool | None, option]
        else:
            option = typer.Option(flag, help=help, metavar=metavar_of(field.annotation))
            annotation = Annotated[str | None, option]
        parameters.append(parameter(name, annotation))
    prompts = typer.Option("--prompts", help="a JSONL file of your own prompts", metavar="FILE")
    parameters.append(parameter("prompts", Annotated[str | None, prompts]))
    return parameters


def flag_of(name: str) -> str:
    """The option of a setting: max_num_seqs as --max-num-seqs."""
    return f"--{name.replace('_', '-')}"


def metavar_of(annotation: object) -> str:
    """What help shows in place of an option's value."""
    return "NUMBER" if number_kind(annotation) else "TEXT"


def parameter(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    """A parameter of a command, for typer."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def limited(given: Settings) -> Settings:
    """Settings with a limit: a minute where none is given; --duration forever is none."""
    if not any(name in given for name in ("duration", "tokens", "requests")):
        given = given | {"duration": DEFAULT_SECONDS}
    return given | {"duration": duration_of(given.get("duration"))}


def duration_of(given: object) -> object:
    """What --duration says; None for forever."""
    return None if str(given).lower() in ("inf", "forever") else given


def plain_settings(options: Mapping[str, Any]) -> Settings:
    """What was given on the command line, with --prompts as a workload and the database by its whole path."""
    given = dict(options)
    prompts = given.pop("prompts", None)
    if prompts is not None:
        if "workload" in given:
            raise ConfigError(["--prompts and --workload both say what is served; give one of them."])
        given["workload"] = f"file:{Path(prompts).expanduser().resolve()}"
    database = given.get("database", default_database())
    given["database"] = str(Path(database).expanduser().resolve()) if str(database).strip() else ""
    return given
