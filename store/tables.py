"""The tables.

Every table is append-only and has no key and no index, so that replaying the log after a crash is simple.
Whatever changes (a run's state, notes, deletions) is an appended row of `events`. `run` is the run's UUIDv7.
Times are seconds on the run's own clock; `wall` is seconds since the epoch; `_ms` is milliseconds.
"""

from collections.abc import Mapping

import pyarrow as pa

from avlab.wire import draft_rows

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
        "features": "VARCHAR[]",  # since version 6: names of the features in the run's drafts
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
        "scheduled": "INTEGER[]",  # these four have one entry a position; null where a watched server does not tell
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
        "explored": "INTEGER",  # these two since version 2; null in older runs
        "explored_ms": "DOUBLE",
        "surplus": "DOUBLE",  # since version 7; null in older runs, replays, and vLLM's
    },
    "engine_samples": {  # since version 5: an engine of a watched server, between two readings of its counters
        "run": "UUID",
        "step": "BIGINT",
        "time": "DOUBLE",
        "block": "INTEGER",
        "model": "VARCHAR",
        "engine": "VARCHAR",
        "seconds": "DOUBLE",
        "running": "DOUBLE",
        "waiting": "DOUBLE",
        "cache_usage": "DOUBLE",
        "engine_steps": "DOUBLE",
        "prompt_tokens": "BIGINT",
        "tokens": "BIGINT",
        "finished": "BIGINT",
        "preemptions": "BIGINT",
        "outputs": "BIGINT",
        "first_tokens": "BIGINT",
        "first_token_seconds": "DOUBLE",
        "later_outputs": "BIGINT",
        "later_seconds": "DOUBLE",
        "drafts": "BIGINT",  # null without speculation, as the next two
        "draft_tokens": "BIGINT",
        "accepted": "BIGINT",
        "accepted_by_position": "BIGINT[]",
        "latencies": "VARCHAR",  # since version 8: histograms as JSON; null in older runs
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
        **draft_rows.COLUMNS,
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
        "phase": "VARCHAR",  # "draft" by number of requests and depth, "verify" by tokens in the target's pass
        "size": "INTEGER",
        "ms": "DOUBLE",
        "depth": "INTEGER",  # of a draft, since version 4; before, all were of depth K
    },
    "cost_tables": {
        "run": "UUID",
        "profile": "BIGINT",
        "source": "VARCHAR",
        "cost_hash": "VARCHAR",
        "phase": "VARCHAR",
        "size": "INTEGER",
        "ms": "DOUBLE",
        "depth": "INTEGER",
    },
    "experiments": {  # the plan of a run's A/B
        "run": "UUID",
        "arms": "VARCHAR",  # JSON: labels, in the order they were given
        "baseline": "VARCHAR",
        "rounds": "INTEGER",
        "concurrency": "INTEGER",
        "design": "VARCHAR",
        "length": "DOUBLE",
        "unit": "VARCHAR",
        "washout": "INTEGER",
        "learn": "INTEGER",
        "seed": "BIGINT",
        "time": "DOUBLE",
        "step": "BIGINT",
    },
    "rounds": {  # of an A/B, when they were over
        "run": "UUID",
        "round": "INTEGER",
        "kept": "BOOLEAN",
        "reason": "VARCHAR",
        "time": "DOUBLE",
        "step": "BIGINT",
    },
    "block_requests": {  # what each request got within a counted block of an A/B
        "run": "UUID",
        "block": "INTEGER",
        "request": "BIGINT",
        "tokens": "INTEGER",
        "seconds": "DOUBLE",
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


def arrow_schema(table: str, with_run: bool = False) -> pa.Schema:
    """The table's columns as Arrow types, without `run` unless asked (it is then text)."""
    columns = TABLES[table].items()
    return draft_rows.arrow_schema({name: kind for name, kind in columns if with_run or name != "run"})


def create_statements(prefix: str = "", tables: Mapping[str, Mapping[str, str]] = TABLES) -> list[str]:
    """The statements that make every table, of this version unless `tables` says otherwise.

    prefix: names another database ("other.").
    """
    made = {"meta": {"version": "INTEGER", "wall": "DOUBLE"}, **tables}
    columns = {
        name: ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
        for name, kinds in made.items()
    }
    return [f"CREATE TABLE {prefix}{name} ({columns[name]})" for name in made]
