"""`avlab replay rules`: rules of ours, of other engines and papers, and oracles, on the same drafts."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_options import (
    Loads,
    MachineName,
    Repeats,
    Seed,
    TraceName,
    arms_of,
    loads_of,
    say_source,
)
from avlab.experiments.replay_rules import RULES, rules
from avlab.experiments.replay_sweep import Case
from avlab.machines import DEFAULT_MACHINE
from avlab.replay.traces import DEFAULT_TRACE


def compare_rules(
    machine: MachineName = DEFAULT_MACHINE,
    trace: TraceName = DEFAULT_TRACE,
    arms: Annotated[str, typer.Option("--arms", help="Rules to compare, with commas between.")] = ",".join(
        RULES
    ),
    concurrency: Loads = "1,16,64,128",
    repeats: Repeats = 4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Rules side by side: tokens/s over the best fixed length, and the regret to an oracle."""
    case, loads = Case(trace, machine, seed, repeats), loads_of(concurrency)
    names = arms_of(arms, case, ",".join(RULES))
    case.wanted(names, loads)
    recorded, emulated = case.opened()
    with terminal.bar() as progress:
        found = rules(
            recorded,
            emulated,
            names,
            loads,
            seed,
            repeats,
            lambda done, total: progress("replaying", done, total),
        )
    if as_json:
        terminal.print_json({"emulated": case.emulation, "rows": [asdict(row) for row in found]})
        return
    table = Table(
        title=f"tokens/s over the best fixed length, and the regret to the oracle that knows true chances after the "
        f"draft, by requests ({case.emulation})",
        title_justify="left",
    )
    table.add_column("rule", no_wrap=True)
    table.add_column("sound")
    for load in loads:
        table.add_column(str(load), justify="right", no_wrap=True)
    for name in dict.fromkeys(row.rule for row in found):
        mine = [row for row in found if row.rule == name]
        shown = (f"{row.over_best_fixed:.3f}\n{100 * row.regret:.1f} %" for row in mine)
        table.add_row(name, mine[0].sound.partition(":")[0], *shown)
    out = terminal.answers()
    out.print(table)
    for note in dict.fromkeys(row.sound for row in found if ":" in row.sound):
        out.print(
            f"{note}. Its speed is what the rule would do with these drafts if the texts stayed the target's.",
            soft_wrap=True,
        )
    say_source(case)
