"""`avlab export`, `avlab report` and `avlab costs`: a run, or what it has timed, as files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avlab.commands import terminal
from avlab.commands.ab import objective
from avlab.commands.asking import answer, path_of, summary_of
from avlab.commands.options import Database, Json, RunName
from avlab.cost_file import text_of
from avlab.files import write_new

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def export(
    run: RunName,
    folder: Annotated[Path | None, typer.Argument(help="A new folder; else one named after the run.")] = None,
    form: Annotated[str, typer.Option("--form", help="parquet or csv")] = "parquet",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Write a run to a folder, a file for each table."""
    path = path_of(database)
    if folder is None:
        folder = Path(f"avlab-{summary_of(path, run)['run_id']}")
    target = str(folder.expanduser().absolute())

    def read(con: "DuckDBPyConnection") -> dict[str, Any]:
        from avlab.store import queries
        from avlab.store.export import export_run

        return export_run(con, queries.find_run(con, run), folder=target, form=form)

    manifest = answer(path, "export", read, run=run, folder=target, form=form)
    if as_json:
        terminal.print_json({"folder": target, **manifest})
    else:
        rows = sum(table["rows"] for table in manifest["tables"].values())
        terminal.answers().print(f"Run {manifest['run_id']}: {rows:,} rows in {target}.", soft_wrap=True)


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
    within, path = objective(slo), path_of(database)
    if file is None:
        file = Path(f"avlab-{summary_of(path, run)['run_id']}.html")
    target = str(file.expanduser().absolute())

    def read(con: "DuckDBPyConnection") -> None:
        from avlab.report import write_report
        from avlab.store import queries

        write_report(con, queries.find_run(con, run), Path(target), within)

    answer(path, "report", read, run=run, file=target, slo=within)
    terminal.print_json({"file": target}) if as_json else terminal.answers().print(target, soft_wrap=True)


def costs(
    run: RunName,
    file: Annotated[Path | None, typer.Argument(help="A new file; else one named after the run.")] = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Write the step costs that a run has timed as a file for --costs, for runs that can be repeated."""

    def read(con: "DuckDBPyConnection") -> dict[str, Any]:
        from avlab.store import queries

        return queries.cost_samples(con, queries.find_run(con, run))

    samples = answer(path_of(database), "costs", read, run=run)
    path = (file or Path(f"avlab-costs-{samples['cost_hash']}.json")).expanduser().absolute()
    write_new(path, lambda: text_of(samples["draft"], samples["verify"]))
    if as_json:
        terminal.print_json({"file": str(path), "cost_hash": samples["cost_hash"]})
    else:
        terminal.answers().print(str(path), soft_wrap=True)
