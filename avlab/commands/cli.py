"""The lab without a browser: `avlab fetch`, `run`, `ab`, `frontier`, `runs`, `show`, `export`, `report`, `costs`,
`window`, `bias`, `attach`, `doctor`, `vllm`, `bench`.

Answers go to standard output, everything else to standard error; with --json the answer is one JSON object. What
goes wrong is one sentence on standard error and an exit code other than 0: 2 for wrong usage, 130 for Ctrl-C, else 1.
"""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from avlab.bias.rules import CaseError
from avlab.commands import ab as ab_command
from avlab.commands import attach as attach_command
from avlab.commands import bias as bias_command
from avlab.commands import doctor as doctor_command
from avlab.commands import frontier as frontier_command
from avlab.commands import run as run_command
from avlab.commands import terminal, terminal_ab
from avlab.commands import vllm as vllm_command
from avlab.config import ConfigError, default_database
from avlab.cost_file import text_of
from avlab.errors import is_ours
from avlab.files import write_new
from avlab.vllm.attach_config import AttachConfig

app = typer.Typer(
    name="avlab",
    help="A lab bench for adaptive verification in speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, run_command.JSON]
Database = Annotated[
    Path | None, typer.Option("--database", help="The lab's file; else $AVLAB_DATABASE, else the user's own.")
]
RunName = Annotated[str, typer.Argument(help='A run\'s id, the beginning or end of one, or "last".')]


def main() -> None:
    """The entry point: errors of ours become their sentence."""
    try:
        app()
    except (ConfigError, CaseError) as error:
        terminal.fail(_by_options(str(error)))
        sys.exit(2)
    except Exception as error:
        if not is_ours(error):
            raise
        terminal.fail(str(error))
        sys.exit(1)


def _by_options(sentences: str) -> str:
    """Settings that sentences begin with by the names of their options: "top_p is 2" as "--top-p is 2"."""
    group: Any = typer.main.get_command(app)
    options: dict[str, str] = {
        each.name: each.opts[0] for command in group.commands.values() for each in command.params
    }
    return re.sub(r"^(\w+)(?= is )", lambda match: options.get(match[1], match[1]), sentences, flags=re.M)


@app.command()
def fetch(
    verify: Annotated[bool, typer.Option("--verify", help="Compare the hash of every file.")] = False,
    as_json: Json = False,
) -> None:
    """Download the default target once and convert it; later runs need no network."""
    from avlab.engine import fetch as fetching

    with terminal.bar() as progress:
        folder = fetching.fetch(progress)
        if verify:
            progress("comparing hashes", 0, 0)
            fetching.check(folder, thorough=True)
    if as_json:
        terminal.print_json({"folder": str(folder), "verified": verify})
    else:
        terminal.answers().print(f"The default target is in {folder}.", soft_wrap=True)


app.command("run")(run_command.make())
app.command("ab")(ab_command.make())
app.command("frontier")(frontier_command.make())
app.add_typer(bias_command.app, name="bias")
app.add_typer(vllm_command.app, name="vllm")
app.command("attach")(attach_command.attach)
app.command("doctor")(doctor_command.doctor)


@app.command()
def runs(database: Database = None, as_json: Json = False) -> None:
    """List the runs of a database, newest first."""
    found, path = _answer(database, "runs"), str(_path(database))
    if as_json:
        terminal.print_json({"database": path, "runs": found})
        return
    terminal.show_runs(found)
    terminal.errors().print(f"Read from {path}.", markup=False)


@app.command()
def show(run: RunName, database: Database = None, as_json: Json = False) -> None:
    """Show a run: rates, acceptance by position, coefficients, calibration, where the time went; an A/B's verdict."""
    summary = _answer(database, "show", run=run)
    if as_json:
        terminal.print_json(summary)
        return
    attached = summary["kind"] == AttachConfig.kind
    attach_command.show_watched(summary) if attached else terminal.show_summary(summary)
    if summary["ab"]:
        terminal.answers().print("\nThe A/B:")
        terminal_ab.show(summary["ab"])
    if summary["frontier"]:
        terminal.answers().print("\nThe frontier:")
        terminal_ab.show_frontier(summary["frontier"])


@app.command()
def export(
    run: RunName,
    folder: Annotated[Path | None, typer.Argument(help="A new folder; else one named after the run.")] = None,
    form: Annotated[str, typer.Option("--form", help="parquet or csv")] = "parquet",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Write a run to a folder, a file for each table."""
    if folder is None:
        folder = Path(f"avlab-{_answer(database, 'show', run=run)['run_id']}")
    target = str(folder.expanduser().absolute())
    manifest = _answer(database, "export", run=run, folder=target, form=form)
    if as_json:
        terminal.print_json({"folder": target, **manifest})
    else:
        rows = sum(table["rows"] for table in manifest["tables"].values())
        terminal.answers().print(f"Run {manifest['run_id']}: {rows:,} rows in {target}.", soft_wrap=True)


@app.command()
def report(
    run: RunName,
    file: Annotated[Path | None, typer.Argument(help="A new file; else one named after the run.")] = None,
    slo: Annotated[
        str | None, typer.Option("--slo", help="Name the best arm within a limit, as p95_tpot_ms=80.")
    ] = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Write a run as one HTML file that opens without a network: verdict, charts, ledger, settings, machine."""
    within = ab_command.objective(slo)
    if file is None:
        file = Path(f"avlab-{_answer(database, 'show', run=run)['run_id']}.html")
    target = str(file.expanduser().absolute())
    _answer(database, "report", run=run, file=target, slo=within)
    terminal.print_json({"file": target}) if as_json else terminal.answers().print(target, soft_wrap=True)


@app.command()
def costs(
    run: RunName,
    file: Annotated[Path | None, typer.Argument(help="A new file; else one named after the run.")] = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Write the step costs that a run has timed as a file for --costs, for runs that can be repeated."""
    samples = _answer(database, "costs", run=run)
    path = (file or Path(f"avlab-costs-{samples['cost_hash']}.json")).expanduser().absolute()
    write_new(path, lambda: text_of(samples["draft"], samples["verify"]))
    if as_json:
        terminal.print_json({"file": str(path), "cost_hash": samples["cost_hash"]})
    else:
        terminal.answers().print(str(path), soft_wrap=True)


def _path(database: Path | None) -> Path:
    return (database or default_database()).expanduser().resolve()


def _answer(database: Path | None, what: str, **arguments: Any) -> Any:
    """Ask a database: read it where nobody holds it, else ask its owner."""
    from avlab.lab.owner import ask
    from avlab.lab.reach import here_or_there

    path = _path(database)
    return here_or_there(path, lambda: _read(path, what, **arguments), lambda: ask(path, what, **arguments))


def _read(path: Path, what: str, **arguments: Any) -> Any:
    from avlab.experiments.summary import summarise
    from avlab.store import queries
    from avlab.store.database import connect_reader
    from avlab.store.export import export_run

    con = connect_reader(path)
    try:
        if what == "runs":
            return queries.runs(con)
        run = queries.find_run(con, arguments.pop("run"))
        if what == "costs":
            return queries.cost_samples(con, run)
        if what == "report":
            from avlab.report import write_report

            return write_report(con, run, Path(arguments["file"]), arguments["slo"])
        return export_run(con, run, **arguments) if what == "export" else summarise(con, run)
    finally:
        con.close()


@app.command()
def window(
    steps: Annotated[int, typer.Option("--steps", help="How many steps verify everything.", min=1)] = 200,
    teach: Annotated[
        bool, typer.Option("--teach/--no-teach", help="Let the estimator learn from its labels.")
    ] = False,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """In the run that is served now, verify every draft for some steps: labels that no trimming has selected."""
    from avlab.lab.owner import ask
    from avlab.lab.reach import here_or_there
    from avlab.store.database import connect_reader
    from avlab.store.errors import StoreError

    path = _path(database)

    def nobody_serves() -> str:
        connect_reader(path).close()
        raise StoreError(
            f"Nothing is served into {path} now: start a run, or open the dashboard and press Start."
        )

    run = here_or_there(path, nobody_serves, lambda: ask(path, "window", steps=steps, teach=teach))
    if as_json:
        terminal.print_json({"run": run, "steps": steps, "teach": teach})
    else:
        terminal.answers().print(
            f"Run {run} was asked to verify everything for {steps} steps.", soft_wrap=True
        )


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="The short form, at most ten minutes.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="A measure; may be given again.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The page to write; a full run: docs/benchmarks.md.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was measured before.")] = False,
    drafter: Annotated[str, typer.Option("--drafter", help="As in a run.")] = "default",
    as_json: Json = False,
) -> None:
    """Measure speed, memory and calibration against the project's bars; goes on where it was interrupted."""
    from avlab import bench as benchmark

    raise typer.Exit(benchmark.main(quick, as_json, only or (), out, fresh, drafter))
