"""`avlab trace served`: a run that verified every draft, as a trace."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avlab import temporary
from avlab.commands import terminal
from avlab.commands.asking import answer, path_of
from avlab.commands.options import Database, Json, RunName

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def served_trace(
    run: RunName,
    file: Annotated[Path, typer.Argument(help="A new Parquet file.")],
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a trace of a run that verified all its drafts: of those it kept (--drafts all), else of their sums."""
    from avlab.replay.served_run import kept_drafts, of_export
    from avlab.replay.served_sums import of_record
    from avlab.replay.trace import write_trace

    with temporary.folder() as folder:
        target = str(folder / "run")

        def read(con: "DuckDBPyConnection") -> dict[str, Any]:
            from avlab.store import queries
            from avlab.store.export import export_run

            return export_run(con, queries.find_run(con, run), folder=target, form="parquet")

        answer(path_of(database), "export", read, run=run, folder=target, form="parquet")
        ordered = kept_drafts(Path(target))
        trace, left_out = of_export(Path(target)) if ordered else (of_record(Path(target)), 0)
    path = file.expanduser().absolute()
    write_trace(trace, path)
    if as_json:
        counts = {"texts": trace.texts, "anchors": trace.anchors, "left_out": left_out}
        terminal.print_json(
            {"file": str(path), "origin": trace.about.origin, "note": trace.about.note} | counts
        )
        return
    if not ordered:
        terminal.answers().print(
            f"{path}: {trace.about.text()}; {trace.size()}. The run kept no drafts in order, so slots are drawn from "
            "its sums: rates, ranking and reliability are the run's, and slots are independent.",
            soft_wrap=True,
        )
        return
    terminal.answers().print(
        f"{path}: {trace.size()} ({trace.about.note}; stand-ins elsewhere), "
        f"{left_out} requests left out. Exact for the policy that served it, an approximation for others.",
        soft_wrap=True,
    )
