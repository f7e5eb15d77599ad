"""A made-up run of ten million rows, written by SQL alone: for measuring what the dashboard asks of a long run.

It is an A/B of two arms over eight hours, in tables of the sizes that a run with sampled drafts has: a step takes
60 ms, ten of its slots are stored, and every two seconds leave 300 rows of calibration. Its numbers are plausible and
mean nothing.
"""

import json
import time

import duckdb

from avlab.config import RunConfig
from avlab.store.ids import new_run_id
from avlab.store.tables import TABLES

ROWS = 10_000_000
K = 7
STEP_SECONDS, SLOTS = 0.06, 10  # of a step; raw slots stored of it
WINDOW_STEPS, WINDOW_ROWS = 33, 300  # of calibration
BLOCK_STEPS, REFIT_STEPS, REQUEST_STEPS = 1000, 100, 8  # steps for one block, refit, and finished request
ROWS_PER_STEP = 1 + SLOTS + WINDOW_ROWS / WINDOW_STEPS

# $run, $first and $last are the id and the steps to write: [first, last)
_ROWS = {
    "blocks": """
        SELECT $run::UUID, i, CASE WHEN i % 2 = 0 THEN 'adaptive' ELSE 'fixed:3' END, 'serve', i * $block,
            i * $block * $seconds, 'mixed', i // 2
        FROM range(ceil($first / $block)::BIGINT, ceil($last / $block)::BIGINT) AS t(i)
    """,
    "rounds": """
        SELECT $run::UUID, i, true, '', 2 * (i + 1) * $block * $seconds, 2 * (i + 1) * $block
        FROM range(ceil($first / $block / 2)::BIGINT, $last // $block // 2) AS t(i)
    """,
    "steps": """
        SELECT $run::UUID, i, (i + 1) * $seconds, i // $block, 16, i % 3, 16, 0, 48 + i % 17, $K, 32 + i % 17,
            24 + i % 9, [16, 16, 16, 16, 16, 16, 16], [16, 8, 4, 2, 1, 1, (i % 2)::INTEGER],
            [8, 4, 1, 1, 0, 0, 0], [16, 8, 3, 2, 1, 1, 0], 26.5, 55 + i % 7, 5 + (i % 11) / 10, 40 + (i % 13) / 5,
            4 + (i % 5) / 10, 0.5, 0.2, 0.1, 0, 0
        FROM range($first, $last) AS t(i)
    """,
    "drafts": """
        SELECT $run::UUID, (i // $slots) // $block, i // $slots, (i // 7) % 16, i % 7,
            [(i * 7919 % 1000) / 100 - 5, NULL], (i * 7919 % 997) / 1000, 0.9 / (1 + i % 7), i % 7 < 3,
            CASE WHEN i % 7 < 3 THEN i % 3 > 0 END
        FROM range($first * $slots, $last * $slots) AS t(i)
    """,
    "calibration": """
        SELECT $run::UUID, ['online', 'raw', 'head'][1 + i % 3], (i // $wide) * $window // $block, i // $wide,
            (i // $wide + 1) * $window * $seconds, ['code', 'verse', 'chat'][1 + i % 5 % 3], 1.0, i // 3 % 7,
            30 + i // 21 % 60, 3 + i % 4, i % 4, 1.5 + i % 3, 1.2, 0.6
        FROM range(ceil($first / $window)::BIGINT * $wide, ceil($last / $window)::BIGINT * $wide) AS t(i)
    """,
    "coefficients": """
        SELECT $run::UUID, 'adaptive', i // 7 * $refit // $block, i // 7, i // 7 * $refit,
            i // 7 * $refit * $seconds, i % 7, 0.4 + (i // 7 % 50) / 500, 0.3 - i % 7 / 10, 1000 // (1 + i % 7),
            500 // (1 + i % 7)
        FROM range(ceil($first / $refit)::BIGINT * 7, ceil($last / $refit)::BIGINT * 7) AS t(i)
    """,
    "requests": """
        SELECT $run::UUID, i, ['code', 'verse', 'chat'][1 + i % 3], 1.0, 1.0, 0, i, i * $request * $seconds,
            i * $request * $seconds, i * $request * $seconds + 0.1, i * $request * $seconds + 6, 50, 200, 100, 100,
            'length', i * $request // $block, NULL, NULL
        FROM range(ceil($first / $request)::BIGINT, ceil($last / $request)::BIGINT) AS t(i)
    """,
    "block_requests": """
        SELECT $run::UUID, i // 16, i, 1500, $block * $seconds
        FROM range(ceil($first / $block)::BIGINT * 16, ceil($last / $block)::BIGINT * 16) AS t(i)
    """,
}


def make_large_run(con: duckdb.DuckDBPyConnection, rows: int = ROWS) -> tuple[str, int]:
    """Write the run into an open, writable database; its id and its number of steps."""
    run, steps = new_run_id(), round(rows / ROWS_PER_STEP)
    config = json.dumps(RunConfig.make(policy="adaptive", workload="mixed").model_dump(mode="json"))
    values = {
        "run": run,
        "config": config,
        "arms": json.dumps(["adaptive", "fixed:3"]),
        "K": K,
        "wall": time.time(),
    }
    values |= {
        "rounds": steps // BLOCK_STEPS // 2,
        "block": BLOCK_STEPS,
        "end": steps * STEP_SECONDS,
        "last": steps,
    }
    _insert(
        con,
        "runs",
        """
        SELECT $run::UUID, 'reference', 1, $wall, $config, 'made up', '0', 'made up', '0', $K, 'unknown', '{}',
            ['max_log_odds', 'head_log_odds']
        """,
        values,
    )
    _insert(
        con,
        "experiments",
        "SELECT $run::UUID, $arms, 'fixed:3', $rounds, 16, 'switchback', $block, 'steps', 0, 0, 0, 0, 0",
        values,
    )
    for table, size, wide in (("cost_samples", 16, 2), ("cost_tables", 200, 1)):
        for phase, base in (("draft", 5.0), ("verify", 20.0)):
            of_phase = {"run": run, "phase": phase, "wide": wide, "base": base, "size": size}
            _insert(
                con,
                table,
                """
                SELECT $run::UUID, 0, 'profiled', '0', $phase, $wide * i, $base + i * $wide / 2
                FROM range($size) AS t(i)
                """,
                of_phase,
            )
    extend(con, run, 0, steps)
    _insert(con, "events", "SELECT $run::UUID, 'lab', 'info', 'finished', 'done', $end, $last, $wall", values)
    con.execute("CHECKPOINT")
    return run, steps


def extend(con: duckdb.DuckDBPyConnection, run: str, first: int, last: int) -> None:
    """Write the run's steps from `first` up to `last`, and what goes with them."""
    values = {
        "run": run, "first": first, "last": last, "seconds": STEP_SECONDS, "slots": SLOTS, "K": K,
        "block": BLOCK_STEPS, "window": WINDOW_STEPS, "wide": WINDOW_ROWS, "refit": REFIT_STEPS,
        "request": REQUEST_STEPS,
    }  # fmt: skip
    for table, select in _ROWS.items():
        _insert(con, table, select, values)


def _insert(con: duckdb.DuckDBPyConnection, table: str, select: str, values: dict) -> None:
    """Insert what a SELECT gives into a table's first columns: later versions have added some at the end."""
    used = {name: value for name, value in values.items() if f"${name}" in select}
    given = len(con.sql(f"SELECT * FROM ({select}) LIMIT 0", params=used).columns)
    columns = ", ".join(f'"{name}"' for name in list(TABLES[table])[:given])
    con.execute(f"INSERT INTO {table} ({columns}) {select}", used)
