"""A reader's own SQL over one run, where it can do no harm: in a child process, on a copy, without files or network.

DuckDB's `enable_external_access=false` holds for a whole instance and cannot be undone, so the copy is loaded first, in
a process of its own, and then the door is closed.
"""

import json
import subprocess
import sys
import tempfile
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
MEMORY = "512MB"


class QueryError(StoreError):
    """A query that cannot be answered. The message is one sentence."""


def ask(con: duckdb.DuckDBPyConnection, run: str, sql: str, seconds: float = SECONDS) -> dict[str, Any]:
    """The answer to one SELECT over a run's tables: columns (names), rows (lists), cut (more than MOST_ROWS).

    The tables are those of the schema, without their column `run`. Raises QueryError, also when `seconds` are over.
    """
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
    if child.returncode:
        raise QueryError(
            child.stderr.strip().splitlines()[-1] if child.stderr.strip() else "The query failed."
        )
    return json.loads(child.stdout)


def answer(folder: Path, sql: str) -> dict[str, Any]:
    """The child's part: load the copy, close the door, run the query."""
    con = duckdb.connect(config={"threads": 1, "memory_limit": MEMORY})
    for table in TABLES:
        path = str(folder / f"{table}.parquet").replace("'", "''")
        con.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{path}')")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    statements = con.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError("Give one SELECT; nothing else is run here.")
    con.execute(statements[0])
    columns = [column[0] for column in con.description]
    rows = con.fetchmany(MOST_ROWS + 1)
    return {"columns": columns, "rows": plain(rows[:MOST_ROWS]), "cut": len(rows) > MOST_ROWS}


def main() -> int:
    try:
        print(json.dumps(answer(Path(sys.argv[1]), sys.stdin.read()), default=str))
    except QueryError as error:
        print(error, file=sys.stderr)
        return 1
    except duckdb.Error as error:
        print(f"The query failed: {cause(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
