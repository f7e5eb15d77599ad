"""`avlab replay published`: the published frontier's ratios beside replayed ones."""

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_options import (
    MachineName,
    Processes,
    Repeats,
    Seed,
    by_load,
    loads_of,
    say_source,
    served,
)
from avlab.commands.trace_rates import typed_rates
from avlab.experiments.published_replay import ACCEPTANCE, SOURCE, Beside, beside, published_points
from avlab.experiments.replay_cells import REPEATS
from avlab.experiments.replay_sweep import Case
from avlab.machines import DEFAULT_MACHINE

TEXTS, TOKENS, PROMPT_TOKENS = (
    200,
    512,
    256,
)  # of the trace, chosen here; outputs of 2,048 would only take longer


def published(
    machine: MachineName = DEFAULT_MACHINE,
    rates: Annotated[
        str | None,
        typer.Option("--rates", help="Acceptance by position, in place of what was published: 0.8,0.7,..."),
    ] = None,
    auc: Annotated[
        float, typer.Option("--auc", help="How well the estimates rank at each position.")
    ] = ACCEPTANCE.auc,
    correlation: Annotated[
        float, typer.Option("--correlation", help="How alike a request's slots are, 0 to below 1.")
    ] = 0.0,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", help="Loads, of the published ones; else all of them.")
    ] = None,
    repeats: Repeats = REPEATS,
    seed: Seed = 0,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """The published frontier of adaptive verification beside a replay of its acceptance, on another machine's costs."""
    from avlab.replay.parametric import parametric
    from avlab.replay.trace import write_trace

    acceptance = replace(ACCEPTANCE, auc=auc, correlation=correlation)
    if rates is not None:
        acceptance = replace(acceptance, rates=typed_rates(rates), source="rates as given")
    trace = parametric(acceptance, TEXTS, TOKENS, PROMPT_TOKENS, seed)
    points = published_points()
    arms, loads = (list(dict.fromkeys(getattr(p, name) for p in points)) for name in ("arm", "load"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "published.parquet"
        write_trace(trace, path)
        case = Case(str(path), machine, seed, repeats)
        most = case.opened()[1].about.most_requests
        loads = [load for load in loads if load <= most] if concurrency is None else loads_of(concurrency)
        cells = served(case, arms, loads, processes)
        found, emulation, doubts = beside(points, cells), case.emulation, case.doubts(cells)
        if as_json:
            rows = [asdict(each) for each in found]
            terminal.print_json(
                {"published": SOURCE, "emulated": emulation, "doubts": doubts, "ratios": rows}
            )
            return
        over = {each.load: each.over for each in found}
        table = by_load(
            "published / replayed tokens/s, over the published best fixed length of the load, by requests "
            f"({emulation})",
            [f"{load}\n{best}" for load, best in over.items()],
        )
        for arm in arms:
            mine = {each.load: each for each in found if each.arm == arm}
            table.add_row(arm, *(_cell(mine.get(load)) for load in over))
        out = terminal.answers()
        out.print(table)
        out.print(
            f"Published: {SOURCE}. The costs are another system's: compare shapes only.", soft_wrap=True
        )
        say_source(case, cells)


def _cell(each: Beside | None) -> str:
    if each is None:
        return "1"
    low, high = each.replayed.low, each.replayed.high
    ends = "" if low is None or high is None else f"\n{low:.2f} {high:.2f}"
    return f"{each.published:.2f} / {each.replayed.ratio:.2f}{ends}"
