"""`avlab runs` and `avlab show`: what has been recorded."""

from typing import TYPE_CHECKING, Any

from avlab.commands import terminal, terminal_ab
from avlab.commands.asking import answer, path_of, summary_of
from avlab.commands.attach import show_watched
from avlab.commands.options import Database, Json, RunName
from avlab.experiments.answers import ABAnswer, FrontierAnswer
from avlab.experiments.values import from_values
from avlab.kinds.registry import recorded_kind

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def runs(database: Database = None, as_json: Json = False) -> None:
    """List the runs of a database, newest first."""

    def read(con: "DuckDBPyConnection") -> list[dict[str, Any]]:
        from avlab.store import queries

        return queries.runs(con)

    path = path_of(database)
    found = answer(path, "runs", read)
    if as_json:
        terminal.print_json({"database": str(path), "runs": found})
        return
    terminal.show_runs(found)
    terminal.errors().print(f"Read from {path}.")


def show(run: RunName, database: Database = None, as_json: Json = False) -> None:
    """Show a run: rates, acceptance by position, coefficients, calibration, where the time went; an A/B's verdict."""
    summary = summary_of(path_of(database), run)
    if as_json:
        terminal.print_json(summary)
        return
    watches = recorded_kind(summary["kind"]).watches
    show_watched(summary) if watches else terminal.show_summary(summary)
    if summary["ab"]:
        terminal.answers().print("\nThe A/B:")
        terminal_ab.show(from_values(ABAnswer, summary["ab"]))
    if summary["frontier"]:
        terminal.answers().print("\nThe frontier:")
        terminal_ab.show_frontier(from_values(FrontierAnswer, summary["frontier"]))
