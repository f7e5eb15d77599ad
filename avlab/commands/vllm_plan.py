"""`avlab vllm plan`: a sweep as command lines, and settings from measured costs by replay."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_options import Processes, Repeats, Seed, loads_of, say_source, served, several
from avlab.config import ConfigError
from avlab.formats import number
from avlab.replay.traces import DEFAULT_TRACE
from avlab.vllm.presets import names, preset
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.sweep_plan import importing, plan


def plan_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="A model or a preset; behind it --, and what vllm serve is given."
        ),
    ],
    lengths: Annotated[str, typer.Option("--lengths", help="Draft lengths, 0 without drafts.")] = "0,1,3,5,7",
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Loads, with commas between.")
    ] = "1,16,64,128",
    machine: Annotated[
        str | None, typer.Option("--machine", help="Advise by replay on this machine's step costs.")
    ] = None,
    trace: Annotated[str, typer.Option("--trace", help="With --machine: the texts.")] = DEFAULT_TRACE,
    least_user: Annotated[
        float | None,
        typer.Option("--least-user", min=0.0, help="With --machine: tokens/s that each user shall have."),
    ] = None,
    repeats: Repeats = 4,
    seed: Seed = 0,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """A sweep of draft lengths and loads as command lines; with --machine also K, --max-num-seqs and graph size."""
    first, *more = words
    line = preset(first).line if first in names() else ServeLine.parse(words)
    if first in names() and more:
        raise ConfigError(
            ["A preset's command stands for itself here: give the model and its arguments instead."]
        )
    try:
        wanted = [int(each) for each in several(lengths)]
    except ValueError:
        raise ConfigError(["lengths needs whole numbers with commas between, such as 0,1,3,5."]) from None
    loads = loads_of(concurrency)
    servers = plan(line, wanted, loads)
    advice = None
    if machine is not None:
        from avlab.experiments.advice import advise
        from avlab.experiments.replay_sweep import Case, rows

        case = Case(trace, machine, seed, repeats)
        K = case.opened()[0].about.K
        arms = [f"fixed:{each}" if each else "none" for each in wanted if each <= K]
        if not arms:
            raise ConfigError([f"The trace drafts {K}: give a length of at most that."])
        cells = served(case, arms, loads, processes)
        advice = advise(rows(case, cells), least_user)
    if as_json:
        terminal.print_json(
            {
                "servers": [asdict(each) for each in servers],
                "import": importing(servers),
                "advice": None if advice is None else asdict(advice),
                "emulated": None if advice is None else case.emulation,
            }
        )
        return
    out = terminal.answers()
    for server in servers:
        out.print(f"# {server.arm}", server.serve, *server.benches, sep="\n", soft_wrap=True)
    out.print(importing(servers), soft_wrap=True)
    if advice is None:
        return
    table = Table(title=f"best length by load ({case.emulation})", title_justify="left", box=None)
    for name in ("requests", "K", "tokens/s", "for one user", "over the next best"):
        table.add_column(name, justify="right")
    for each in advice.loads:
        table.add_row(
            str(each.load), str(each.K), number(each.tokens_per_s, 0), number(each.user_tokens_per_s, 1),
            number(each.over_next, 3),
        )  # fmt: skip
    out.print(table)
    if not advice.enough:
        out.print(f"No load gives each user {least_user:g} tokens/s; the smallest comes nearest.")
    out.print(
        f"--max-num-seqs {advice.max_num_seqs}, num_speculative_tokens {advice.K}, max_cudagraph_capture_size "
        f"{advice.capture} (emulated).",
        soft_wrap=True,
    )
    say_source(case, cells)
