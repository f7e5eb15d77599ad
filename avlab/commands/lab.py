"""`avlab lab`: how good estimators are on recorded drafts, and what their faults cost."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.config import ConfigError
from avlab.experiments.estimator_scores import Judged, Measure, Scored
from avlab.machines import DEFAULT_MACHINE

app = typer.Typer(
    help="The estimator lab: any estimator on any recorded trace, its calibration and what its faults cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TraceName = Annotated[str, typer.Option("--trace", help="A shipped trace's name, or a Parquet file.")]
MachineName = Annotated[str, typer.Option("--machine", help="A machine's name, or a TOML file.")]
Estimators = Annotated[
    str, typer.Option("--estimators", help="Names with commas between; else every one that the trace allows.")
]
Load = Annotated[int, typer.Option("--concurrency", min=1, help="Requests under way.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Of the order of texts, and of who is judged by whom.")
]
Depth = Annotated[bool, typer.Option("--depth", help="Choose how deep to draft, too (+depth).")]


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


@app.command()
def judge(
    trace: TraceName = "reasoning",
    estimators: Estimators = "",
    machine: MachineName = DEFAULT_MACHINE,
    concurrency: Load = 16,
    steps: Annotated[int, typer.Option("--steps", min=0, max=100_000, help="Steps to learn from.")] = 1000,
    seed: Seed = 0,
    positions: Annotated[bool, typer.Option("--positions", help="Also by draft position.")] = False,
    as_json: Json = False,
) -> None:
    """AUC, log-loss, Brier score and calibration error of estimators on texts that they have not learnt from.

    Labels are uncensored: whole drafts are verified. "own" is an estimator that learnt only from drafts that it
    admitted itself on the machine under the load. The floor is what a perfect estimator would show with so many labels;
    an interval of the ECE has that noise taken off, so it may lie below the figure.
    """
    from avlab.experiments.estimator_learning import judgeable
    from avlab.experiments.estimator_scores import judge as judged
    from avlab.machines import machine as machine_named
    from avlab.replay.traces import trace_named
    from avlab.store.plain import plain

    recorded = trace_named(trace)
    emulated = machine_named(machine, recorded.about.K)
    names = _names(estimators) or judgeable(recorded)
    with terminal.bar() as progress:
        found = judged(
            recorded, emulated, names, concurrency, steps, seed,
            progress=lambda done, total: progress("judging", done, total),
        )  # fmt: skip
    if as_json:
        about = asdict(recorded.about) | {"texts": recorded.texts, "anchors": recorded.anchors}
        terminal.print_json(plain({"trace": about, "estimators": [asdict(each) for each in found]}))
        return
    out = terminal.answers()
    sampling = recorded.about.sampling()
    out.print(_scores(f"{recorded.about.target} at {sampling}: all positions, 95 % interval by text", found))
    if positions:
        for each in found:
            out.print(_by_position(each))


@app.command()
def losses(
    trace: TraceName = "card",
    estimators: Estimators = "online,monotone,head",
    machine: MachineName = DEFAULT_MACHINE,
    concurrency: Load = 64,
    depth: Depth = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What an arm loses, by exact replay: to its calibration, to its ranking, to not knowing, and to its rule."""
    from avlab.experiments.estimator_losses import losses as found_losses
    from avlab.machines import machine as machine_named
    from avlab.replay.traces import trace_named

    recorded = trace_named(trace)
    emulated = machine_named(machine, recorded.about.K)
    found, names = {}, _names(estimators)
    with terminal.bar() as progress:
        for done, name in enumerate(names):
            progress("replaying", done, len(names))
            found[name] = found_losses(recorded, emulated, name, concurrency, depth, seed)
    emulation = (
        f"emulated: {emulated.about.title}; {recorded.about.target}'s text at {recorded.about.sampling()}"
    )
    if as_json:
        rungs = {name: [asdict(each) for each in rungs] for name, rungs in found.items()}
        terminal.print_json({"emulated": emulation, "concurrency": concurrency, "estimators": rungs})
        return
    table = Table(title=f"{concurrency} requests ({emulation})", title_justify="left")
    table.add_column("estimator", no_wrap=True)
    table.add_column("tokens/s", justify="right")
    for title in ("perfect\ncalibration", "true chance,\nafter the draft", "true chance,\nbefore it", "rule"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, (arm, *above) in found.items():
        gains = (f"{each.gain:.3f}\n{each.low:.3f} {each.high:.3f}" for each in above)
        table.add_row(name, f"{arm.tokens_per_s:,.0f}", *gains)
    terminal.answers().print(table)
    terminal.answers().print(
        "A column is what one thing more would gain, over the column before. The last two see what no sound rule may "
        "see.",
        soft_wrap=True,
    )


@app.command()
def drift(
    trace: TraceName = "card",
    estimators: Estimators = "online,monotone",
    machine: MachineName = DEFAULT_MACHINE,
    concurrency: Load = 64,
    depth: Depth = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What a cost table costs that is no longer true: tokens/s by a wrong table over those by the true one."""
    from avlab.experiments.cost_drift import DRIFTS
    from avlab.experiments.cost_drift import drift as found_drift
    from avlab.machines import machine as machine_named
    from avlab.replay.traces import trace_named

    recorded = trace_named(trace)
    emulated = machine_named(machine, recorded.about.K)
    found, names = {}, _names(estimators)
    with terminal.bar() as progress:
        for done, name in enumerate(names):
            progress("replaying", done, len(names))
            found[name] = found_drift(recorded, emulated, name, concurrency, depth, seed)
    emulation = (
        f"emulated: {emulated.about.title}; {recorded.about.target}'s text at {recorded.about.sampling()}"
    )
    if as_json:
        drifts = {name: [asdict(each) for each in rows] for name, rows in found.items()}
        terminal.print_json({"emulated": emulation, "concurrency": concurrency, "estimators": drifts})
        return
    table = Table("the table is wrong by", *found, title=f"{concurrency} requests ({emulation})")
    for number, name in enumerate(DRIFTS):
        cells = (rows[number] for rows in found.values())
        table.add_row(name, *(f"{each.ratio:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in cells))
    terminal.answers().print(table)


@app.command()
def answers(
    traces: Annotated[
        str, typer.Option("--traces", help="Traces with commas between; else every one that ships.")
    ] = "",
    machines: Annotated[
        str, typer.Option("--machines", help="Machines with commas between; else every one that ships.")
    ] = "",
    table: Annotated[
        str,
        typer.Option("--table", help="stuck, calibration or drift; else all three, one behind the other."),
    ] = "",
) -> None:
    """The tables of docs/estimators.md as Markdown: where a slope is stuck, what calibration and wrong costs cost."""
    from avlab.experiments import estimator_answers as tables
    from avlab.machines import known as known_machines
    from avlab.machines import machine as machine_named
    from avlab.replay.traces import shipped, trace_named

    if table not in ("", "stuck", "calibration", "drift"):
        raise ConfigError([f"table is {table!r}: choose stuck, calibration or drift."])
    recorded = [trace_named(name) for name in _names(traces) or shipped()]
    emulated = [machine_named(name, recorded[0].about.K) for name in _names(machines) or known_machines()]
    with terminal.bar() as progress:

        def say(what: str) -> None:
            progress(what, 0, 0)

        parts = {
            "stuck": lambda: tables.stuck(recorded, emulated[0], say),
            "calibration": lambda: tables.calibration(recorded, emulated, say),
            "drift": lambda: tables.drift(recorded, emulated, say),
        }
        found = [make() for name, make in parts.items() if table in ("", name)]
    print("\n\n".join(found))


@app.command()
def transfer(
    learnt_on: Annotated[
        str, typer.Option("--learnt-on", help="The trace that estimators learn from.")
    ] = "reasoning",
    judged_on: Annotated[
        str, typer.Option("--judged-on", help="The trace that they are judged on.")
    ] = "card",
    estimators: Estimators = "online,cut,converged,monotone",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Estimators that learnt at one sampling or workload and are judged at another: at once, and 1,000 steps later."""
    from avlab.experiments.estimator_scores import transfer as transferred
    from avlab.machines import machine as machine_named
    from avlab.replay.traces import trace_named
    from avlab.store.plain import plain

    traces = trace_named(learnt_on), trace_named(judged_on)
    if traces[0].about.K != traces[1].about.K:
        raise ConfigError(
            [f"The traces draft {traces[0].about.K} and {traces[1].about.K} positions: take two of one K."]
        )
    found = transferred(*traces, machine_named(DEFAULT_MACHINE, traces[0].about.K), _names(estimators), seed)
    if as_json:
        rows = [{"name": n, "at_once": asdict(a), "later": asdict(b)} for n, a, b in found]
        terminal.print_json(plain({"learnt_on": learnt_on, "judged_on": judged_on, "estimators": rows}))
        return
    title = f"learnt on {learnt_on}, judged on {judged_on}, 95 % interval by text"
    table = Table(
        "estimator", "ECE at once", "after 1,000 steps", "log-loss at once", "after 1,000 steps", title=title
    )
    for name, at_once, later in found:
        table.add_row(
            name, *(_shown(each) for each in (at_once.ece, later.ece, at_once.log_loss, later.log_loss))
        )
    terminal.answers().print(table)


def _shown(measure: Measure) -> str:
    return f"{measure.value:.3f}\n{measure.low:.3f} {measure.high:.3f}"


def _scores(title: str, found: list[Judged]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("estimator", no_wrap=True)
    for name in ("AUC", "log-loss", "Brier", "ECE", "ECE floor", "ECE, own", "labels"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        whole, own = each.overall, each.own
        measures = (_shown(m) for m in (whole.auc, whole.log_loss, whole.brier, whole.ece))
        table.add_row(
            each.name if each.sound else f"{each.name} (UNSOUND)",
            *measures,
            f"{whole.ece_floor:.3f}",
            "–" if own is None else f"{own.ece.value:.3f}",
            f"{whole.labels:,}",
        )
    return table


def _by_position(judged: Judged) -> Table:
    table = Table(title=f"{judged.name}: {judged.title}", title_justify="left")
    for name in ("position", "AUC", "log-loss", "Brier", "ECE", "ECE floor", "accepted", "labels"):
        table.add_column(name, justify="right", no_wrap=True)

    def row(name: str, each: Scored) -> None:
        measures = (_shown(m) for m in (each.auc, each.log_loss, each.brier, each.ece))
        table.add_row(name, *measures, f"{each.ece_floor:.3f}", f"{each.observed:.3f}", f"{each.labels:,}")

    for k, each in enumerate(judged.by_position):
        row(str(k), each)
    row("all", judged.overall)
    return table
