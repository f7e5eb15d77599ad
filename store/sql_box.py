"""A reader's own SQL over one run, where it can do no harm: in a child process, on a copy, without files or network.

DuckDB's `enable_external_access=false` holds for a whole instance and cannot be undone, so the copy is loaded first, in
a process of its own, and then the door is closed.
"""

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb

from avlab.errors import cause
from avlab.store.errors import StoreError
from avlab.store.export import export_run
from avlab.store.plain import plain
from avlab.store.tables import TABLES

MOST_ROWS = 1000
SECONDS = 20.0  # starting the child takes one or two of them
MEMORY = "512MB"  # of DuckDB's own buffers
MOST_MORE = 1 << 30  # bytes by which the child may grow in all: a vector of long texts is no buffer
MOST_BYTES = 4 << 20  # of an answer
LONGEST_TEXT = 10_000  # characters of one value
WAIT = 10.0  # seconds that a question waits for the one before it: two at once would take twice the memory

_turn = threading.Lock()
TOO_MUCH = "The query needs more memory than a question may have: ask for fewer or shorter values."
REFUSED = 3  # exit code of a child that has said why


class QueryError(StoreError):
    """A query that cannot be answered. The message is one sentence."""


def ask(con: duckdb.DuckDBPyConnection, run: str, sql: str, seconds: float = SECONDS) -> dict[str, Any]:
    """The answer to one SELECT over a run's tables: columns (names), rows (lists), cut (more than MOST_ROWS).

    The tables are those of the schema, without their column `run`. cut: also where the rows would hold more than
    MOST_BYTES; a text is cut at LONGEST_TEXT. Raises QueryError, also when `seconds` are over.
    """
    if not _turn.acquire(timeout=WAIT):
        raise QueryError("Another question is being answered: ask again in a moment.")
    try:
        return _asked(con, run, sql, seconds)
    finally:
        _turn.release()


def _asked(con: duckdb.DuckDBPyConnection, run: str, sql: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        export_run(con, run, folder)
        try:
            child = subprocess.run(
                [sys.executable, "-m", "avlab.store.sql_box", str(folder)],
                input=sql,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                cwd=Path(__file__).parents[2],
            )
        except subprocess.TimeoutExpired:
            raise QueryError(f"The query took more than {seconds:g} s and was ended: ask for less.") from None
    if child.returncode == REFUSED:
        raise QueryError(child.stderr.strip().splitlines()[-1])
    if child.returncode:
        raise QueryError(TOO_MUCH)
    return json.loads(child.stdout)


def answer(folder: Path, sql: str) -> dict[str, Any]:
    """The child's part: load the copy, close the door, run the query."""
    con = duckdb.connect(config={"threads": 1, "memory_limit": MEMORY, "temp_directory": ""})
    for table in TABLES:
        path = str(folder / f"{table}.parquet").replace("'", "''")
        con.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{path}')")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    statements = con.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError("Give one SELECT; nothing else is run here.")
    _limit_memory()
    con.execute(statements[0])
    columns = [column[0][:LONGEST_TEXT] for column in con.description]
    rows: list[Any] = []
    size = 0
    while row := con.fetchone():
        shown = json.loads(json.dumps(_short(plain(row)), default=str))
        size += len(json.dumps(shown))
        if len(rows) == MOST_ROWS or size > MOST_BYTES:
            return {"columns": columns, "rows": rows, "cut": True}
        rows.append(shown)
    return {"columns": columns, "rows": rows, "cut": False}


def _short(value: Any) -> Any:
    """A value whose texts and bytes are cut, and whose lists have an end."""
    if isinstance(value, str | bytes):
        return value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT]
    if isinstance(value, dict):
        return {_short(name): _short(each) for name, each in list(value.items())[:LONGEST_TEXT]}
    return [_short(each) for each in value[:LONGEST_TEXT]] if isinstance(value, list) else value


def _limit_memory() -> None:
    """Let this process grow by no more than MOST_MORE from here on."""
    with contextlib.suppress(OSError, ValueError):  # not on every system
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_MORE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> int:
    try:
        print(json.dumps(answer(Path(sys.argv[1]), sys.stdin.read()), default=str))
    except QueryError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except (MemoryError, duckdb.OutOfMemoryException):
        print(TOO_MUCH, file=sys.stderr)
        return REFUSED
    except (duckdb.Error, ValueError, RecursionError) as error:
        print(f"The query failed: {cause(error)[:500]}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
