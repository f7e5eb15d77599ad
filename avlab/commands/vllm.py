"""`avlab vllm`: the published systems, as commands to read or to run; runs and A/Bs that vLLM serves."""

import os
import shutil
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.ab import Comparison, compare
from avlab.commands.following import serve
from avlab.commands.options import Json, Settings, limited, plain_settings, with_settings
from avlab.commands.run import Load
from avlab.commands.vllm_plan import plan_command
from avlab.experiments.plan import DECIDED
from avlab.vllm import NotInstalled
from avlab.vllm.presets import Preset, names, preset, presets
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.serving_config import VllmConfig

app = typer.Typer(
    help="vLLM: the systems that adaptive verification was published with, and runs that it serves.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("presets")
def list_presets(as_json: Json = False) -> None:
    """List the published systems."""
    found = presets()
    if as_json:
        terminal.print_json({"presets": [_plain(each) for each in found]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("preset", "system", "K", "drafts", "published on", "0.33"):
        table.add_column(name, justify="right" if name == "K" else "left")
    for each in found:
        K = str(each.line.speculative.get("num_speculative_tokens", "block"))
        starts = "refuses, see there" if each.refuses else "starts"
        table.add_row(each.name, each.title, K, each.drafts, each.published, starts)
    terminal.answers().print(table)


@app.command("preset")
def one_preset(
    name: Annotated[str, typer.Argument(help="A name from `avlab vllm presets`.")],
    more: Annotated[
        list[str] | None,
        typer.Argument(
            help="Further arguments of vllm serve, behind --; they win.", metavar="[ARGUMENTS]..."
        ),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Serve it, rather than print the command.")] = False,
    as_json: Json = False,
) -> None:
    """Print a system as a `vllm serve` command with the source of every setting, or run it."""
    found = preset(name)
    line = with_arguments(found.line, more or [])
    if run:
        execute(line)
    if as_json:
        terminal.print_json(_plain(found) | {"command": line.shell()})
        return
    out = terminal.answers()
    out.print(f"# {found.title}. {found.about}", soft_wrap=True)
    out.print(f"# Published on {found.published}; vLLM {found.min_version} or later.")
    if found.refuses:
        out.print(f"# {found.refuses}", soft_wrap=True)
    for source in found.sources:
        out.print(f"# {source.url}: {source.says}", soft_wrap=True)
    if found.prepare:
        out.print(found.prepare, soft_wrap=True)
    out.print(line.shell(), soft_wrap=True)


Words = Annotated[
    list[str],
    typer.Argument(metavar="MODEL", help="A model or a preset; behind it --, and what vllm serve is given."),
]


@dataclass(frozen=True, kw_only=True)
class VllmLoad(Load):
    """The options of a run that vLLM serves, beside its settings."""

    words: Words


@dataclass(frozen=True, kw_only=True)
class VllmComparison(Comparison):
    """The options of an A/B that vLLM serves."""

    words: Words
    arms: Annotated[str, "adaptive and verify:k, within one engine"] = "adaptive,verify:3"


def _run(load: VllmLoad, settings: Settings, as_json: bool) -> None:
    given = limited(load.with_arrival(plain_settings(settings)))
    serve(VllmConfig.make(given, serve=command_of(load.words)), as_json, terminal.show_summary)


def _ab(asked: VllmComparison, settings: Settings, as_json: bool) -> None:
    config = VllmConfig.make(plain_settings(settings), serve=command_of(asked.words))
    compare(config, asked, as_json)


app.command("run")(
    with_settings(
        VllmLoad,
        _run,
        "Serve a workload with vLLM in a background worker, and record it.",
        ("serve",),
        VllmConfig,
    )
)
app.command("ab")(
    with_settings(
        VllmComparison,
        _ab,
        "Compare lengths of verification within one vLLM engine; drafting stays at K.",
        ("serve", *DECIDED),
        VllmConfig,
    )
)


app.command("plan")(plan_command)


def command_of(words: list[str]) -> str:
    """A `vllm serve` command of words: a preset's or a model's, with further arguments."""
    first, *more = words
    line = with_arguments(preset(first).line, more) if first in names() else ServeLine.parse(words)
    return line.shell()


def with_arguments(line: ServeLine, more: list[str]) -> ServeLine:
    """A command with further arguments, which win over its own; parts of a mapping are replaced one by one."""
    if not more:
        return line
    added = ServeLine.parse([line.model, *more])
    merged: dict[str, Any] = dict(line.arguments)
    for name, value in added.arguments.items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return ServeLine(added.model, merged, line.environment)


def execute(line: ServeLine) -> None:
    """Become the server. Raises NotInstalled where there is no `vllm` command."""
    if shutil.which("vllm") is None:
        raise NotInstalled("serving a preset")
    os.execvpe("vllm", line.words(), os.environ | dict(line.environment))


def _plain(found: Preset) -> dict[str, Any]:
    return {
        "name": found.name,
        "title": found.title,
        "about": found.about,
        "drafts": found.drafts,
        "published": found.published,
        "min_version": found.min_version,
        "prepare": found.prepare,
        "refuses": found.refuses,
        "model": found.line.model,
        "speculative": found.line.speculative,
        "environment": dict(found.line.environment),
        "command": found.line.shell(),
        "sources": [{"url": each.url, "says": each.says} for each in found.sources],
    }
