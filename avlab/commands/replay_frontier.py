"""`avlab replay frontier`: every arm under every load on one machine."""

from collections.abc import Sequence
from dataclasses import asdict
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
    MachineName,
    Processes,
    Repeats,
    Seed,
    TraceName,
    arms_of,
    by_load,
    loads_of,
    say_source,
    served,
)
from avlab.experiments.replay_cells import REPEATS, Cell
from avlab.experiments.replay_intervals import Ratio, over_best_fixed
from avlab.experiments.replay_sweep import Case, rows
from avlab.experiments.replay_table import markdown
from avlab.machines import DEFAULT_MACHINE
from avlab.replay.traces import DEFAULT_TRACE


def frontier(
    machine: MachineName = DEFAULT_MACHINE,
    trace: TraceName = DEFAULT_TRACE,
    arms: Arms = EVERY_ARM,
    concurrency: Loads = EVERY_LOAD,
    repeats: Repeats = REPEATS,
    seed: Seed = 0,
    processes: Processes = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the ratios alone, as docs/replay.md has them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Every arm under every load: tokens/s, and each adaptive arm over the best fixed length of its load."""
    case = Case(trace, machine, seed, repeats)
    cells = served(case, arms_of(arms, case), loads_of(concurrency), processes)
    compared = over_best_fixed(cells)
    if as_json:
        terminal.print_json(plain(case, cells, compared))
        return
    if as_markdown:
        print(f"{case.emulation}\n\n{markdown(compared)}", end="")
        return
    out = terminal.answers()
    out.print(_rates(cells, case.emulation))
    if compared:
        out.print(_ratios(compared))
    say_source(case, cells)


def plain(case: Case, cells: Sequence[Cell], compared: Sequence[Ratio]) -> dict[str, object]:
    """A sweep as JSON, with what it holds for."""
    recorded, emulated = case.opened()
    return {
        "emulated": case.emulation,
        "machine": emulated.about.model_dump(mode="json", exclude={"draft", "verify"})
        | {"name": case.machine, "notes": list(emulated.notes)},
        "doubts": case.doubts(cells),
        "trace": asdict(recorded.about)
        | {"name": case.trace, "texts": recorded.texts, "anchors": recorded.anchors},
        "cells": rows(case, cells),
        "over_best_fixed": [asdict(each) for each in compared],
    }


def _rates(cells: Sequence[Cell], emulation: str) -> Table:
    """Tokens/s by arm and load; the best of a load stands out."""
    loads = list(dict.fromkeys(cell.load for cell in cells))
    table = by_load(f"tokens/s by requests under way ({emulation})", [f"{load}" for load in loads])
    best = {load: max(c.tokens_per_s for c in cells if c.load == load) for load in loads}
    for arm in dict.fromkeys(cell.arm for cell in cells):
        mine = [cell for cell in cells if cell.arm == arm]
        table.add_row(arm, *("*" * (c.tokens_per_s == best[c.load]) + f"{c.tokens_per_s:,.0f}" for c in mine))
    return table


def _beneath(each: Ratio) -> str:
    """A ratio, and its interval on the line below: nine loads have to fit a terminal."""
    if each.low is None or each.high is None:
        return f"{each.ratio:.3f}"
    return f"{each.ratio:.3f}\n{each.low:.2f} {each.high:.2f}"


def _ratios(compared: Sequence[Ratio]) -> Table:
    """Each adaptive arm over the best fixed length of its load, with its interval."""
    over = {each.load: each.over for each in compared}
    table = by_load(
        "over the best fixed length of the load, 95 % interval by text",
        [f"{load}\n{fixed}" for load, fixed in over.items()],
    )
    for arm in dict.fromkeys(each.arm for each in compared):
        mine = [each for each in compared if each.arm == arm]
        table.add_row(arm, *map(_beneath, mine))
    return table
