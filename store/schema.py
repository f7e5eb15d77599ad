"""The tables, their version, and the way from an older version to this one.

Every table is append-only and has no key and no index, so that replaying the log after a crash is simple.
Whatever changes (a run's state, notes, deletions) is an appended row of `events`. `run` is the run's UUIDv7.
Times are seconds on the run's own clock; `wall` is seconds since the epoch; `_ms` is milliseconds.
"""

import contextlib
import time

import duckdb
import pyarrow as pa

from store.errors import SchemaError

VERSION = 1

TABLES: dict[str, dict[str, str]] = {
    "runs": {
        "run": "UUID",
        "kind": "VARCHAR",
        "pid": "BIGINT",
        "wall": "DOUBLE",
        "config": "VARCHAR",  # JSON
        "target": "VARCHAR",
        "target_hash": "VARCHAR",
        "drafter": "VARCHAR",
        "drafter_hash": "VARCHAR",
        "K": "INTEGER",
        "code": "VARCHAR",
        "machine": "VARCHAR",  # JSON
    },
    "blocks": {
        "run": "UUID",
        "block": "INTEGER",
        "arm": "VARCHAR",
        "kind": "VARCHAR",
        "step": "BIGINT",
        "time": "DOUBLE",
        "workload": "VARCHAR",
        "round": "INTEGER",
    },
    "steps": {
        "run": "UUID",
        "step": "BIGINT",
        "time": "DOUBLE",
        "block": "INTEGER",
        "running": "INTEGER",
        "waiting": "INTEGER",
        "emitting": "INTEGER",
        "prompt_tokens": "INTEGER",
        "target_tokens": "INTEGER",
        "drafted": "INTEGER",
        "budget": "INTEGER",
        "tokens": "INTEGER",
        "scheduled": "INTEGER[]",  # these four have one entry a position
        "admitted": "INTEGER[]",
        "accepted": "INTEGER[]",
        "labelled": "INTEGER[]",
        "expected_tokens": "DOUBLE",  # null where no estimate was used
        "expected_ms": "DOUBLE",
        "draft_ms": "DOUBLE",
        "verify_ms": "DOUBLE",
        "sample_ms": "DOUBLE",
        "decide_ms": "DOUBLE",
        "report_ms": "DOUBLE",
        "idle_ms": "DOUBLE",
    },
    "coefficients": {  # one row a refit and position
        "run": "UUID",
        "arm": "VARCHAR",
        "block": "INTEGER",
        "refit": "INTEGER",
        "step": "BIGINT",
        "time": "DOUBLE",
        "position": "INTEGER",
        "slope": "DOUBLE",
        "intercept": "DOUBLE",
        "count": "BIGINT",
        "positives": "BIGINT",
    },
    "calibration": {  # one row a window, position and log-odds bin that is not empty
        "run": "UUID",
        "source": "VARCHAR",
        "block": "INTEGER",
        "window": "INTEGER",
        "time": "DOUBLE",
        "kind": "VARCHAR",
        "temperature": "DOUBLE",
        "position": "INTEGER",
        "bin": "INTEGER",
        "count": "BIGINT",
        "positives": "BIGINT",
        "sum_p": "DOUBLE",
        "sum_log_loss": "DOUBLE",
        "sum_squared_error": "DOUBLE",
    },
    "drafts": {  # raw draft slots, all or a sample
        "run": "UUID",
        "block": "INTEGER",
        "step": "BIGINT",
        "request": "INTEGER",
        "position": "TINYINT",
        "feature": "FLOAT",
        "estimate": "FLOAT",  # null where nothing predicted
        "survival": "FLOAT",
        "head": "FLOAT",  # null without a confidence head
        "admitted": "BOOLEAN",
        "label": "BOOLEAN",  # null where censored
    },
    "requests": {
        "run": "UUID",
        "request": "BIGINT",
        "kind": "VARCHAR",
        "temperature": "DOUBLE",
        "top_p": "DOUBLE",
        "top_k": "INTEGER",
        "seed": "BIGINT",
        "arrival": "DOUBLE",
        "admitted": "DOUBLE",
        "first_token": "DOUBLE",
        "last_token": "DOUBLE",
        "prompt_tokens": "INTEGER",
        "output_tokens": "INTEGER",
        "steps": "INTEGER",
        "drafts_accepted": "INTEGER",
        "finish": "VARCHAR",
        "block": "INTEGER",
        "prompt": "VARCHAR",  # these two only with --keep-text
        "output": "VARCHAR",
    },
    "cost_samples": {  # a profile is known by the sequence number of its frame
        "run": "UUID",
        "profile": "BIGINT",
        "source": "VARCHAR",
        "cost_hash": "VARCHAR",
        "phase": "VARCHAR",  # "draft" by number of requests, "verify" by tokens in the target's pass
        "size": "INTEGER",
        "ms": "DOUBLE",
    },
    "cost_tables": {
        "run": "UUID",
        "profile": "BIGINT",
        "source": "VARCHAR",
        "cost_hash": "VARCHAR",
        "phase": "VARCHAR",
        "size": "INTEGER",
        "ms": "DOUBLE",
    },
    "tokens": {  # the playground's steps, only with --keep-text
        "run": "UUID",
        "request": "BIGINT",
        "step": "BIGINT",
        "detail": "VARCHAR",  # JSON of the frame
    },
    "heartbeats": {
        "run": "UUID",
        "time": "DOUBLE",
        "state": "VARCHAR",
        "step": "BIGINT",
        "rss_mb": "DOUBLE",
        "drafts_dropped": "BIGINT",
    },
    "events": {
        "run": "UUID",
        "origin": "VARCHAR",  # "worker", or "lab" for what the store itself wrote
        "level": "VARCHAR",
        "kind": "VARCHAR",
        "text": "VARCHAR",
        "time": "DOUBLE",  # null for what happened outside the run
        "step": "BIGINT",
        "wall": "DOUBLE",
    },
    "commits": {  # every frame of the run up to `sequence` is in the file
        "run": "UUID",
        "sequence": "BIGINT",
        "wall": "DOUBLE",
    },
}

# From each older version, the statements that lead to the next. A step stays here for good, as does a stored
# file of its version under tests/stored.
MIGRATIONS: dict[int, tuple[str, ...]] = {}

_ARROW = {
    "UUID": pa.string(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "INTEGER[]": pa.list_(pa.int32()),
}


def arrow_schema(table: str, with_run: bool = False) -> pa.Schema:
    """The table's columns as Arrow types, without `run` unless asked (it is then text)."""
    columns = TABLES[table].items()
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns if with_run or name != "run"])


def create_statements() -> list[str]:
    """The statements that make every table of this version in an empty database."""
    tables = {"meta": {"version": "INTEGER", "wall": "DOUBLE"}, **TABLES}
    columns = {
        name: ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
        for name, kinds in tables.items()
    }
    return [f"CREATE TABLE {name} ({columns[name]})" for name in tables]


def stored_version(con: duckdb.DuckDBPyConnection) -> int:
    """Schema version of an open database; 0 for an empty one. Raises SchemaError for a foreign file."""
    present = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not present:
        return 0
    if not {"meta", "runs", "events"} <= present:
        some = ", ".join(sorted(present)[:3])
        raise SchemaError(f"This DuckDB file is not one of avlab's (it holds {some}): choose another file.")
    return con.execute("SELECT max(version) FROM meta").fetchall()[0][0] or 0


def require_current(con: duckdb.DuckDBPyConnection) -> None:
    """For readers, who cannot migrate. Raises SchemaError unless the file is of this version."""
    found = stored_version(con)
    _refuse_newer(found)
    if found < VERSION:
        raise SchemaError(
            f"The database has schema version {found}, this avlab reads {VERSION}: open it once for writing "
            "(any `avlab run`, or the dashboard), which migrates it."
        )


def prepare(con: duckdb.DuckDBPyConnection) -> int:
    """Brings an open, writable database to this version, checkpoints it, and returns the version it had.

    A migration is one transaction: it happens whole or not at all. Raises SchemaError for a newer or foreign
    file, and where a migration fails.
    """
    found = stored_version(con)
    _refuse_newer(found)
    if found == VERSION:
        return found
    statements = create_statements() if found == 0 else []
    for version in range(found, VERSION) if found else ():
        if version not in MIGRATIONS:
            raise SchemaError(
                f"The database has schema version {found}, and this avlab knows no way from it to {VERSION}: "
                "use an avlab in between."
            )
        statements += MIGRATIONS[version]
    con.execute("BEGIN")
    try:
        for statement in statements:
            con.execute(statement)
        con.execute("INSERT INTO meta VALUES (?, ?)", [VERSION, time.time()])
        con.execute("COMMIT")
    except duckdb.Error as error:
        with contextlib.suppress(duckdb.Error):  # a failed commit has already rolled back
            con.execute("ROLLBACK")
        raise SchemaError(
            f"The database could not be brought from schema version {found} to {VERSION} ({error}): "
            "it is unchanged."
        ) from None
    con.execute("CHECKPOINT")  # no table definition is left in the log when the first frame arrives
    return found


def _refuse_newer(found: int) -> None:
    if found > VERSION:
        raise SchemaError(
            f"The database has schema version {found}, this avlab knows up to {VERSION}: "
            "update avlab, or choose another file."
        )
