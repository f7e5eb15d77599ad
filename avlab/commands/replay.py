"""`avlab replay`: what a recorded trace says of every policy and load on a machine, without a model."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.recording import record
from avlab.config import ConfigError
from avlab.experiments import replay_sweep as sweeping

app = typer.Typer(
    help="Recorded texts on another machine's costs: emulated, exact but for the costs, in seconds.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


app.command("record")(record)


@app.command()
def frontier(
    machine: Annotated[
        str, typer.Option("--machine", help="A machine's name, or a TOML file.")
    ] = "b300-deepseek-v4-flash-tp4",
    trace: Annotated[
        str, typer.Option("--trace", help="A shipped trace's name, or a Parquet file.")
    ] = "reasoning",
    arms: Annotated[str, typer.Option("--arms", help="Policies to compare.")] = ",".join(sweeping.ARMS),
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Loads: requests under way, with commas between.")
    ] = ",".join(map(str, sweeping.LOADS)),
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=1000, help="Sets of texts; intervals come from them.")
    ] = sweeping.REPEATS,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of texts and of coins.")] = 0,
    as_json: Json = False,
) -> None:
    """Every arm under every load: tokens/s, and each adaptive arm over the best fixed length of its load."""
    from avlab.machines import machine as machine_named
    from avlab.replay.traces import trace_named

    loads = _loads(concurrency)
    recorded = trace_named(trace)
    emulated = machine_named(machine, recorded.about.K)
    with terminal.bar() as progress:
        cells = sweeping.sweep(
            recorded,
            emulated,
            arms.split(","),
            loads,
            seed,
            repeats,
            lambda done, total: progress("replaying", done, total),
        )
    compared, best = sweeping.over_best_fixed(cells), sweeping.plan(cells)
    about = recorded.about
    emulation = f"emulated: {emulated.about.title}; {about.target}'s text at {about.sampling()}"
    if as_json:
        plain: dict[str, Any] = {
            "emulated": emulation,
            "machine": emulated.about.model_dump(mode="json", exclude={"draft", "verify"})
            | {"notes": list(emulated.notes)},
            "trace": asdict(about) | {"texts": recorded.texts, "anchors": recorded.anchors},
            "cells": [asdict(cell) | {"tokens_per_s": cell.tokens_per_s.tolist()} for cell in cells],
            "over_best_fixed": [asdict(each) for each in compared],
            "plan": [
                dict(zip(("load", "arm", "tokens_per_s", "tokens_per_s_per_user"), row, strict=True))
                for row in best
            ],
        }
        terminal.print_json(plain)
        return
    out = terminal.answers()
    out.print(_rates(cells, emulation))
    if compared:
        out.print(_ratios(compared))
    for note in emulated.notes:
        out.print(note, soft_wrap=True)
    out.print(_said(best, emulated.about.title), soft_wrap=True)
    out.print(f"Source of the costs: {emulated.about.source} ({emulated.about.trust}).", soft_wrap=True)


@app.command()
def machines(as_json: Json = False) -> None:
    """List the machines that ship: whose costs they are, from where, and how far to trust them."""
    from avlab.machines import FOLDER, known, read

    found = {name: read(FOLDER / f"{name}.toml") for name in known()}
    if as_json:
        terminal.print_json(
            {name: each.model_dump(mode="json", exclude={"draft", "verify"}) for name, each in found.items()}
        )
        return
    table = Table("name", "costs of", "GPUs", "most requests", "trust")
    for name, each in found.items():
        table.add_row(name, each.model, f"{each.gpu} × {each.gpus}", f"{each.most_requests:,}", each.trust)
    terminal.answers().print(table)


@app.command()
def traces(as_json: Json = False) -> None:
    """List the traces that ship: whose texts, at which sampling, and how much of them a draft follows."""
    from avlab.replay.traces import known, trace_named

    found = {name: trace_named(name) for name in known()}
    if as_json:
        terminal.print_json(
            {
                name: asdict(each.about) | {"texts": each.texts, "anchors": each.anchors}
                for name, each in found.items()
            }
        )
        return
    table = Table("name", "target", "sampling", "texts", "anchors", "tokens a step, all drafts verified")
    for name, each in found.items():
        numbers = f"{each.texts:,}", f"{each.anchors:,}", f"{each.tokens_per_step():.2f}"
        table.add_row(name, each.about.target, each.about.sampling(), *numbers)
    terminal.answers().print(table)


def _loads(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise ConfigError(
            ["concurrency needs whole numbers with commas between, such as 1,4,16,64."]
        ) from None


def _rates(cells: Sequence[sweeping.Cell], emulation: str) -> Table:
    """Tokens/s by arm and load; the best of a load stands out."""
    loads = list(dict.fromkeys(cell.load for cell in cells))
    table = Table(title=f"tokens/s by requests under way ({emulation})", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for load in loads:
        table.add_column(f"{load}", justify="right")
    best = {load: max(c.tokens_per_s.mean() for c in cells if c.load == load) for load in loads}
    for arm in dict.fromkeys(cell.arm for cell in cells):
        means = [cell.tokens_per_s.mean() for cell in cells if cell.arm == arm]
        shown = [
            f"{mean:,.0f}" if mean < best[load] else f"*{mean:,.0f}"
            for mean, load in zip(means, loads, strict=True)
        ]
        table.add_row(arm, *shown)
    return table


def _ratios(compared: Sequence[sweeping.Comparison]) -> Table:
    """Each adaptive arm over the best fixed length of its load, with its interval."""
    loads = list(dict.fromkeys(each.load for each in compared))
    table = Table(title="over the best fixed length of the load, 95 % interval by text", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for load in loads:
        fixed = next(each.fixed for each in compared if each.load == load)
        table.add_column(f"{load}\n{fixed}", justify="right", no_wrap=True)
    for arm in dict.fromkeys(each.arm for each in compared):
        mine = [each for each in compared if each.arm == arm]
        table.add_row(arm, *(f"{each.ratio:.3f}\n{each.low:.2f} {each.high:.2f}" for each in mine))
    return table


def _said(best: Sequence[tuple[int, str, float, float]], title: str) -> str:
    """The plan in a sentence: the best arm from each load on."""
    parts, before = [], ""
    for load, arm, *_ in best:
        if arm != before:
            parts.append(f"{arm} from {load} on" if before else f"{arm} at {load}")
            before = arm
    return f"Best by requests under way, on {title} (emulated): {', '.join(parts)}."
