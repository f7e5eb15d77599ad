"""What happens to runs afterwards: notes, deletion, and rewriting the file without the deleted ones.

Notes and deletions are appended events, possible at any time from any cursor of the owner. Only `compact` and
`apply_retention` rewrite the file; they want it to themselves.
"""

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from avlab.errors import cause
from avlab.store.database import Database, append_event
from avlab.store.errors import StoreError
from avlab.store.ids import started_at
from avlab.store.runs import DELETED, describe, runs
from avlab.store.tables import TABLES, create_statements

TAG = re.compile(r"(?<!\S)#[\w:-]+")


def add_note(con: duckdb.DuckDBPyConnection, run: str, text: str) -> None:
    """Appends a note to a run. Raises UnknownRun, and StoreError for an empty note."""
    if not text.strip():
        raise StoreError("The note is empty: write something, or leave it.")
    append_event(con, describe(con, run)["run_id"], "note", text.strip())


def tags_of(notes: Sequence[str]) -> list[str]:
    """The words of a run's notes that begin with #, each once, in their order."""
    return list(dict.fromkeys(word for note in notes for word in TAG.findall(note)))


def delete_run(con: duckdb.DuckDBPyConnection, run: str) -> None:
    """Hides a run; its rows go with the next `compact`. Raises UnknownRun, and StoreError while it runs."""
    described = describe(con, run)
    if described["state"] == "running":
        raise StoreError(f"Run {run} is running: stop it before deleting it.")
    append_event(con, described["run_id"], "deleted", "Deleted by the user.")


def restore_run(con: duckdb.DuckDBPyConnection, run: str) -> None:
    """Takes a deletion back, as long as the file was not compacted. Raises UnknownRun."""
    append_event(con, describe(con, run)["run_id"], "restored", "Restored by the user.")


def compact(path: str | os.PathLike) -> dict[str, int]:
    """Rewrites a database without its deleted runs; returns bytes_before and bytes_after.

    A crash leaves either the old file or the new one. Raises DatabaseHeld while anybody, this process
    included, has the file open, and StoreError where there is no file or no room for the copy.
    """
    path = _existing(path)
    before, fresh = path.stat().st_size, path.with_name(path.name + ".compact")
    with Database(path) as database:
        fresh.unlink(missing_ok=True)
        try:
            con = database.cursor()
            _copy_kept(con, fresh)
            con.close()
            database.close(replacement=fresh)
        except (duckdb.Error, OSError) as error:
            raise StoreError(
                f"{path} could not be rewritten ({cause(error)}): it is unchanged. The copy needs up to "
                f"{before / 1e6:.0f} MB of free disk."
            ) from None
        finally:
            for leftover in (fresh, fresh.with_name(fresh.name + ".wal")):
                with contextlib.suppress(OSError):
                    leftover.unlink(missing_ok=True)
    return {"bytes_before": before, "bytes_after": path.stat().st_size}


def _copy_kept(con: duckdb.DuckDBPyConnection, fresh: Path) -> None:
    target = str(fresh).replace("'", "''")
    con.execute(f"ATTACH '{target}' AS fresh")
    for statement in create_statements("fresh."):
        con.execute(statement)
    con.execute("INSERT INTO fresh.meta SELECT * FROM meta ORDER BY rowid")
    for table in TABLES:
        con.execute(
            f"INSERT INTO fresh.{table} SELECT * FROM {table} WHERE run NOT IN ({DELETED}) ORDER BY rowid"
        )
    con.execute("CHECKPOINT fresh")
    con.execute("DETACH fresh")


def expired(
    con: duckdb.DuckDBPyConnection,
    max_age_days: float | None = None,
    max_bytes: int | None = None,
    now: float | None = None,
) -> list[str]:
    """The runs that a retention rule would delete, oldest first; never the newest, never one that runs.

    max_age_days: by the time at which the run began. max_bytes: what the whole file should take; how much of
    it a run holds is estimated from its rows. now: seconds since the epoch, default this moment.
    """
    kept = [run for run in reversed(runs(con)) if run["state"] != "running"]
    newest = kept.pop()["run_id"] if kept else None
    chosen: list[str] = []
    if max_age_days is not None:
        oldest = (time.time() if now is None else now) - max_age_days * 86_400
        chosen = [run["run_id"] for run in kept if run["started"] < oldest]
    if max_bytes is not None:
        sizes = _estimated_bytes(con)
        total = sum(sizes.get(run["run_id"], 0.0) for run in runs(con) if run["run_id"] not in chosen)
        for run in kept:
            if total <= max_bytes:
                break
            if run["run_id"] not in chosen and run["run_id"] != newest:
                chosen.append(run["run_id"])
                total -= sizes.get(run["run_id"], 0.0)
    return sorted(chosen, key=started_at)


def _estimated_bytes(con: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Bytes of the file by run: shared out by number of values (rows times columns)."""
    cells = " UNION ALL ".join(
        f"SELECT run, count(*) * {len(columns)} AS cells FROM {table} GROUP BY run"
        for table, columns in TABLES.items()
    )
    found = con.execute(f"SELECT run::VARCHAR, sum(cells)::DOUBLE FROM ({cells}) GROUP BY run").fetchall()
    total = sum(amount for _, amount in found) or 1.0
    sql = (
        "SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = current_database()"
    )
    used = con.execute(sql).fetchall()[0][0]
    return {run: used * amount / total for run, amount in found}


def apply_retention(
    path: str | os.PathLike, max_age_days: float | None = None, max_bytes: int | None = None
) -> list[str]:
    """Deletes what `expired` names and compacts the file, until nothing is expired any more.

    Returns the deleted runs, oldest first. Raises like `compact`.
    """
    path, gone = _existing(path), []
    if max_bytes is not None and path.stat().st_size > max_bytes:
        compact(path)  # what earlier deletions left behind may be enough
    while chosen := _delete_expired(path, max_age_days, max_bytes):
        gone += chosen
        compact(path)  # sizes were estimates, so look again
    return gone


def _delete_expired(path: Path, max_age_days: float | None, max_bytes: int | None) -> list[str]:
    with Database(path) as database, database.reading() as con:
        con.execute("CHECKPOINT")  # so that the size counts the log too
        chosen = expired(con, max_age_days, max_bytes)
        for run in chosen:
            append_event(con, run, "deleted", "Deleted by the retention rule.")
    return chosen


def _existing(path: str | os.PathLike) -> Path:
    path = Path(path).expanduser().resolve()
    if not path.is_file():
        raise StoreError(f"There is no database at {path}: there is nothing to compact.")
    return path
