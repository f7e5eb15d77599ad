"""The schema's version, and the way from an older version to this one."""

import contextlib
import time

import duckdb

from avlab.errors import cause
from avlab.store.errors import SchemaError
from avlab.store.tables import TABLES, create_statements

VERSION = 8

# From each older version, the statements that lead to the next. A step stays here for good, as does a stored
# file of its version under tests/stored.
MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE steps ADD COLUMN explored INTEGER",
        "ALTER TABLE steps ADD COLUMN explored_ms DOUBLE",
    ),
    2: (
        "CREATE TABLE experiments (run UUID, arms VARCHAR, baseline VARCHAR, rounds INTEGER, concurrency INTEGER, "
        "design VARCHAR, length DOUBLE, unit VARCHAR, washout INTEGER, learn INTEGER, seed BIGINT, time DOUBLE, "
        "step BIGINT)",
        'CREATE TABLE rounds (run UUID, "round" INTEGER, kept BOOLEAN, reason VARCHAR, time DOUBLE, step BIGINT)',
        "CREATE TABLE block_requests (run UUID, block INTEGER, request BIGINT, tokens INTEGER, seconds DOUBLE)",
    ),
    3: (
        "ALTER TABLE cost_samples ADD COLUMN depth INTEGER",
        "ALTER TABLE cost_tables ADD COLUMN depth INTEGER",
    ),
    4: (
        "CREATE TABLE engine_samples (run UUID, step BIGINT, time DOUBLE, block INTEGER, model VARCHAR, "
        "engine VARCHAR, seconds DOUBLE, running DOUBLE, waiting DOUBLE, cache_usage DOUBLE, engine_steps DOUBLE, "
        "prompt_tokens BIGINT, tokens BIGINT, finished BIGINT, preemptions BIGINT, outputs BIGINT, "
        "first_tokens BIGINT, first_token_seconds DOUBLE, later_outputs BIGINT, later_seconds DOUBLE, "
        "drafts BIGINT, draft_tokens BIGINT, accepted BIGINT, accepted_by_position BIGINT[])",
    ),
    5: (
        "ALTER TABLE runs ADD COLUMN features VARCHAR[]",
        "UPDATE runs SET features = CASE kind WHEN 'reference' THEN ['max_log_odds', 'head_log_odds'] ELSE [] END",
        # the head's probability as log-odds, clamped as `speculation.features.log_odds` does
        "CREATE TABLE slots AS SELECT run, block, step, request, position, [feature, (CASE WHEN head <= 0 THEN -40 "
        "WHEN head >= 1 THEN 40 ELSE greatest(-40, least(40, ln(head::DOUBLE) - ln(1 - head::DOUBLE))) END)::FLOAT] "
        "AS features, estimate, survival, admitted, label FROM drafts",
        "DROP TABLE drafts",
        "ALTER TABLE slots RENAME TO drafts",
        # settings got vLLM's names; a quote inside a JSON string has a backslash before it, so only names are found
        """UPDATE runs SET config = regexp_replace(config, '"slots"(\\s*:)', '"max_num_seqs"\\1') """
        "WHERE kind = 'reference'",
        """UPDATE runs SET config = regexp_replace(config, '"context"(\\s*:)', """
        """'"max_num_batched_tokens":null,"max_model_len"\\1') WHERE kind = 'reference'""",
        # the playground's steps name the recovered token: `fate` of a slot, and the last of `fates`
        """UPDATE tokens SET detail = regexp_replace(regexp_replace(detail, '"fate"(\\s*):(\\s*)"correction"', """
        """'"fate"\\1:\\2"recovered"', 'g'), '"fates"(\\s*:[^]]*)"correction"', '"fates"\\1"recovered"')""",
    ),
    6: ("ALTER TABLE steps ADD COLUMN surplus DOUBLE",),
    7: ("ALTER TABLE engine_samples ADD COLUMN latencies VARCHAR",),
}

# Columns that a version added, by table.
ADDED: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"steps": ("explored", "explored_ms")},
    4: {"cost_samples": ("depth",), "cost_tables": ("depth",)},
    6: {"runs": ("features",)},
    7: {"steps": ("surplus",)},
    8: {"engine_samples": ("latencies",)},
}

# Tables that a version gave another shape, as they were before.
RESHAPED: dict[int, dict[str, dict[str, str]]] = {
    6: {
        "drafts": {
            "run": "UUID",
            "block": "INTEGER",
            "step": "BIGINT",
            "request": "INTEGER",
            "position": "TINYINT",
            "feature": "FLOAT",
            "estimate": "FLOAT",
            "survival": "FLOAT",
            "head": "FLOAT",
            "admitted": "BOOLEAN",
            "label": "BOOLEAN",
        }
    },
}

# Tables that a version added.
ADDED_TABLES: dict[int, tuple[str, ...]] = {
    3: ("experiments", "rounds", "block_requests"),
    5: ("engine_samples",),
}


def tables_of(version: int) -> dict[str, dict[str, str]]:
    """The tables as this or an older version has them: name to columns."""
    late = {table for since, added in ADDED_TABLES.items() if since > version for table in added}
    found = {}
    for table in TABLES:
        if table in late:
            continue
        earlier = [shapes[table] for since, shapes in RESHAPED.items() if since > version and table in shapes]
        later = {name for since, added in ADDED.items() if since > version for name in added.get(table, ())}
        columns = earlier[0] if earlier else TABLES[table]
        found[table] = {name: kind for name, kind in columns.items() if name not in later}
    return found


def migrations(since: int) -> list[str]:
    """The statements that lead from an older version to this one. Raises SchemaError where one is missing."""
    statements: list[str] = []
    for version in range(since, VERSION):
        if version not in MIGRATIONS:
            raise SchemaError(
                f"The database has schema version {since}, and this avlab knows no way from it to {VERSION}: "
                "use an avlab in between."
            )
        statements += MIGRATIONS[version]
    return statements


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
    statements = migrations(found) if found else create_statements()
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
            f"The database could not be brought from schema version {found} to {VERSION} ({cause(error)}): "
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
