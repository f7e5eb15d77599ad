"""`avlab interchange`: results, acceptance and step costs from other tools, and for them."""

import json
from pathlib import Path
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.asking import path_of, summary_of
from avlab.commands.options import Database, Json, RunName
from avlab.files import write_new

app = typer.Typer(
    help="Results, acceptance and step costs from other tools, and for them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A new file; else standard output.")]


@app.command()
def results(
    arms: Annotated[
        list[str],
        typer.Option("--arm", help="ARM=FILE, as none=a.json or fixed:7=b.json; again for each file."),
    ],
    output: Output = None,
) -> None:
    """Results of vllm bench serve, guidellm and AIPerf as the CSV that the Frontier page lays over a frontier."""
    from avlab.experiments.foreign_results import ForeignResultError, as_csv, read_result

    points = []
    for each in arms:
        arm, equals, path = each.partition("=")
        if not equals or not arm or not path:
            raise ForeignResultError(f"{each!r} names no arm and file: write it as fixed:7=FILE.")
        points += read_result(Path(path), arm)
    _write(as_csv(points), output)


@app.command()
def profile(run: RunName, database: Database = None, output: Output = None) -> None:
    """A run's acceptance by position as a speculation_profile.json, which travels with a draft checkpoint."""
    from avlab.experiments.acceptance_profile import profile as profile_of

    found = profile_of(summary_of(path_of(database), run))
    _write(json.dumps(found, indent=2, allow_nan=False) + "\n", output)


@app.command()
def rates(
    file: Annotated[Path, typer.Argument(help="A speculation_profile.json.")], as_json: Json = False
) -> None:
    """The acceptance of each position in a speculation_profile.json, in the form that trace parametric takes."""
    from avlab.experiments.acceptance_profile import read_profile

    found = read_profile(file)
    if as_json:
        terminal.print_json({"file": str(file), "rates": list(found)})
        return
    terminal.answers().print(",".join(f"{rate:g}" for rate in found), soft_wrap=True)


@app.command()
def costs(
    machine: Annotated[str, typer.Argument(help="A machine's name, or a TOML file.")],
    engine: Annotated[str, typer.Option("--to", help="sglang or tensorrt.")],
    depth: Annotated[int, typer.Option("--depth", min=1, max=64, help="Draft positions.")] = 7,
    output: Output = None,
) -> None:
    """A machine's step costs as SGLang's SPS table or TensorRT-LLM's; `avlab machine import` reads theirs."""
    from avlab.machines import machine as machine_of
    from avlab.machines.exported import exported

    _write(json.dumps(exported(machine_of(machine, depth), depth, engine), indent=1) + "\n", output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    write_new(output, lambda: text)
    terminal.errors().print(f"Wrote {output}.")
