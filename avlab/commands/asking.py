"""A question to a database: read from its file, or asked of the lab that holds it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from avlab.config import default_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")


def path_of(database: Path | None) -> Path:
    """The file that --database names, or the one that is taken without."""
    return (database or default_database()).expanduser().resolve()


def answer(path: str | Path, question: str, read: Callable[["DuckDBPyConnection"], T], **arguments: Any) -> T:
    """What `read` finds in the file, or what the lab that holds it answers to the question with these arguments."""
    from avlab.lab.owner import ask
    from avlab.lab.reach import open_or_ask
    from avlab.store.database import reading

    def here() -> T:
        with reading(path) as con:
            return read(con)

    return open_or_ask(path, here, lambda: ask(path, question, **arguments))


def summary_of(path: Path, run: str) -> dict[str, Any]:
    """A run's summary, by its name; what `avlab show` shows."""

    def read(con: "DuckDBPyConnection") -> dict[str, Any]:
        from avlab.experiments.summary import summarise
        from avlab.store import queries

        return summarise(con, queries.find_run(con, run))

    return answer(path, "show", read, run=run)
