"""What the commands of a replay's sweep share: options, and the sweep under a progress bar."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.config import ConfigError
from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_intervals import Ratio
from avlab.experiments.replay_sweep import ARMS, LOADS, Case, sweep
from avlab.policies.arm import Arm, PolicyError
from avlab.processes import idle_cores

EVERY_ARM, EVERY_LOAD = ",".join(ARMS), ",".join(map(str, LOADS))

MachineName = Annotated[str, typer.Option("--machine", help="A machine's name, or a TOML file.")]
TraceName = Annotated[str, typer.Option("--trace", help="A trace's name, or a Parquet file.")]
Arms = Annotated[str, typer.Option("--arms", help="Policies to compare, with commas between.")]
Loads = Annotated[str, typer.Option("--concurrency", help="Loads: requests under way, with commas between.")]
Repeats = Annotated[
    int, typer.Option("--repeats", min=1, max=1000, help="Samples of texts; intervals come from them.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of texts, their order, and coins.")]
Processes = Annotated[
    int | None,
    typer.Option("--processes", min=1, max=64, help="Else one an idle core. Results do not depend on it."),
]


def several(text: str) -> list[str]:
    """Names with commas between; those of arms hold none."""
    return [each.strip() for each in text.split(",") if each.strip()]


def arms_of(text: str, case: Case, default: str = EVERY_ARM) -> list[str]:
    """Arms with commas between. Of the default ones, those that the trace can serve; the others are said.

    Raises TraceError or MachineError.
    """
    names = several(text)
    if text != default:
        return names
    features, left_out = case.opened()[0].about.features, []
    for name in names:
        try:
            Arm.parse(name).require_features(features)
        except PolicyError:
            left_out.append(name)
    if left_out:
        terminal.errors().print(
            f"Left out, since this trace does not hold what they read: {', '.join(left_out)}."
        )
    return [name for name in names if name not in left_out]


def loads_of(text: str) -> list[int]:
    """Loads with commas between. Raises ConfigError."""
    try:
        return [int(each) for each in several(text)]
    except ValueError:
        raise ConfigError(
            ["concurrency needs whole numbers with commas between, such as 1,4,16,64."]
        ) from None


def served(case: Case, arms: Sequence[str], loads: Sequence[int], processes: int | None) -> list[Cell]:
    """The sweep's cells, under a progress bar. Raises as `Case.wanted`."""
    case.wanted(arms, loads)
    with terminal.bar() as progress:
        return sweep(
            case,
            arms,
            loads,
            processes or idle_cores(),
            lambda done, total: progress("replaying", done, total),
        )


def with_interval(each: Ratio, digits: int = 3) -> str:
    """1.034 [1.021, 1.044]; without an interval where there is none."""
    if each.low is None or each.high is None:
        return f"{each.ratio:.{digits}f}"
    return f"{each.ratio:.{digits}f} [{each.low:.{digits}f}, {each.high:.{digits}f}]"


def say_source(case: Case, cells: Sequence[Cell] = ()) -> None:
    """What a reader should know before believing these cells, and where the costs are from."""
    _, emulated = case.opened()
    out = terminal.answers()
    for note in case.doubts(cells):
        out.print(note, soft_wrap=True)
    out.print(f"Source of the costs: {emulated.about.source} ({emulated.about.trust}).", soft_wrap=True)


def by_load(title: str, loads: Sequence[str]) -> Table:
    """An empty table with a column a load."""
    table = Table(title=title, title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("arm", no_wrap=True)
    for load in loads:
        table.add_column(load, justify="right", no_wrap=True)
    return table
