"""`avlab replay ab`: arms beside each other at one load, on the same texts."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_options import (
    MachineName,
    Processes,
    Repeats,
    Seed,
    TraceName,
    say_source,
    served,
    several,
    with_interval,
)
from avlab.config import ConfigError
from avlab.experiments.replay_ab import AB, compared
from avlab.experiments.replay_sweep import Case
from avlab.machines import DEFAULT_MACHINE
from avlab.policies.arm import DEFAULT_ARM
from avlab.replay.traces import DEFAULT_TRACE

AB_REPEATS = 20


def ab(
    arms: Annotated[
        str, typer.Option("--arms", help="Two policies or more, with commas between.")
    ] = f"{DEFAULT_ARM},adaptive,fixed:2,fixed:3,none",
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="Else the first fixed length, else none, else the first arm."),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Requests under way.")] = 16,
    machine: MachineName = DEFAULT_MACHINE,
    trace: TraceName = DEFAULT_TRACE,
    repeats: Repeats = AB_REPEATS,
    half_width: Annotated[
        float,
        typer.Option(
            "--half-width",
            min=0.1,
            max=50,
            help="Percent to which a ratio should be known: says how many repeats.",
        ),
    ] = 1.0,
    seed: Seed = 0,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Arms at one load, on the same texts: ratios with intervals, and what it takes to know them better."""
    case, named = Case(trace, machine, seed, repeats), several(arms)
    if len(named) < 2:
        raise ConfigError(
            ["an A/B needs two arms or more: name them with commas between, such as adaptive,fixed:3."]
        )
    cells = served(case, named, [concurrency], processes)
    answer = compared(cells, baseline, half_width / 100)
    if as_json:
        terminal.print_json(
            {"emulated": case.emulation, "requests": concurrency, "repeats": repeats, **asdict(answer)}
        )
        return
    out = terminal.answers()
    out.print(_table(answer, f"{concurrency} requests under way, {repeats} repeats ({case.emulation})"))
    for sentence in answer.sentences(case.emulation):
        out.print(sentence, soft_wrap=True)
    say_source(case, cells)


def _table(answer: AB, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("arm", no_wrap=True)
    for name in ("tokens/s", "one user", "tokens a step", f"× {answer.baseline}, 95 % by text"):
        table.add_column(name, justify="right")
    ratios = {each.arm: with_interval(each) for each in answer.ratios}
    for seen in answer.arms:
        numbers = (
            f"{seen.tokens_per_s:,.0f}",
            f"{seen.tokens_per_s_per_user:,.0f}",
            f"{seen.tokens_per_step:.2f}",
        )
        table.add_row(seen.arm, *numbers, ratios.get(seen.arm, "baseline"))
    return table
