"""`avlab replay sweep`: arms by loads, on several machines and traces, as one table."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_options import (
    EVERY_ARM,
    EVERY_LOAD,
    Arms,
    Loads,
    Processes,
    Repeats,
    Seed,
    arms_of,
    loads_of,
    served,
    several,
)
from avlab.experiments.replay_cells import REPEATS
from avlab.experiments.replay_sweep import Case, Number, rows
from avlab.experiments.replay_table import checked, write_table
from avlab.formats import DASH, counted
from avlab.machines import DEFAULT_MACHINE
from avlab.replay.traces import DEFAULT_TRACE


def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(help="A new file for the table, ending in .csv or .parquet; else it is shown."),
    ] = None,
    machines: Annotated[
        str, typer.Option("--machine", help="Machines, with commas between.")
    ] = DEFAULT_MACHINE,
    traces: Annotated[str, typer.Option("--trace", help="Traces, with commas between.")] = DEFAULT_TRACE,
    arms: Arms = EVERY_ARM,
    concurrency: Loads = EVERY_LOAD,
    repeats: Repeats = REPEATS,
    seed: Seed = 0,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Arms by loads by machines by traces, each on the same texts: one row a cell, with intervals by text."""
    path, loads = checked(file) if file else None, loads_of(concurrency)
    cases = [Case(*names, seed, repeats) for names in itertools.product(several(traces), several(machines))]
    named = [arms_of(arms, case) for case in cases]
    for case, names in zip(cases, named, strict=True):
        case.wanted(names, loads)  # refuse before an hour of replaying, not after
    found = [
        row
        for case, names in zip(cases, named, strict=True)
        for row in rows(case, served(case, names, loads, processes))
    ]
    if path:
        write_table(found, path)
    if as_json:
        terminal.print_json({"file": str(path) if path else None, "cells": found})
    elif path:
        terminal.answers().print(f"{counted(len(found), 'cell')} in {path}.", soft_wrap=True)
    else:
        for case in cases:
            of_case = [row for row in found if (row["trace"], row["machine"]) == (case.trace, case.machine)]
            terminal.answers().print(_table(of_case, case.emulation))


def _table(found: Sequence[Mapping[str, Number]], emulation: str) -> Table:
    table = Table(title=f"tokens/s, 95 % by text ({emulation})", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for name in ("requests", "tokens/s", "one user", "tokens a step", "over the best fixed length"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found:
        over = _ends(row, "over_best_fixed", ".3f")
        table.add_row(
            f"{row['arm']}",
            f"{row['requests']}",
            _ends(row, "tokens_per_s", ",.0f"),
            f"{row['tokens_per_s_per_user']:,.0f}",
            f"{row['tokens_per_step']:.2f}",
            f"{over} {row['best_fixed']}" if row["best_fixed"] else DASH,
        )
    return table


def _ends(row: Mapping[str, Number], name: str, digits: str) -> str:
    """A value with its interval, where it has one."""
    values = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
    shown = [DASH if value is None else format(value, digits) for value in values]
    return shown[0] if values[1] is None else f"{shown[0]} [{shown[1]}, {shown[2]}]"
