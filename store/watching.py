"""What a watched server's counters say: a run of kind "attach", whose steps are intervals between two readings."""

import duckdb
import pyarrow as pa

from avlab.store.plain import plain
from avlab.store.runs import rows
from avlab.store.traces import MAX_POINTS, bucket_width, last_step, table
from avlab.vllm import histograms

SUMS = (
    "engine_steps", "prompt_tokens", "tokens", "finished", "preemptions", "outputs", "first_tokens",
    "first_token_seconds", "later_outputs", "later_seconds", "drafts", "draft_tokens", "accepted",
)  # fmt: skip


def engine_samples_since(
    con: duckdb.DuckDBPyConnection, run: str, after_step: int = -1, max_points: int = MAX_POINTS
) -> pa.Table:
    """Intervals behind `after_step`, one row a bucket, model and engine; buckets as in `steps_since`.

    Columns: bucket, width, model, engine, step and time (of its last interval), intervals, seconds; means of running,
    waiting, cache_usage; the sums in SUMS, and accepted_by_position, a list.
    """
    width = bucket_width(last_step(con, run), max_points)
    return table(
        con,
        f"""
        WITH mine AS (
            SELECT *, step // $width * $width AS bucket FROM engine_samples WHERE run = $run::UUID AND step >= $first
        ), positions AS (
            SELECT bucket, model, engine, list(accepted ORDER BY position) AS accepted_by_position FROM (
                SELECT bucket, model, engine, position, sum(accepted)::BIGINT AS accepted FROM (
                    SELECT bucket, model, engine, unnest(range(len(accepted_by_position))) AS position,
                        unnest(accepted_by_position) AS accepted FROM mine
                ) GROUP BY ALL
            ) GROUP BY ALL
        )
        SELECT bucket, $width AS width, model, engine, max(step) AS step, max(time) AS time, count(*) AS intervals,
            sum(seconds) AS seconds, avg(running) AS running, avg(waiting) AS waiting,
            avg(cache_usage) AS cache_usage, {", ".join(f"sum({name})::DOUBLE AS {name}" for name in SUMS)},
            any_value(accepted_by_position) AS accepted_by_position
        FROM (SELECT * EXCLUDE (accepted_by_position) FROM mine)
            LEFT JOIN positions USING (bucket, model, engine)
        GROUP BY ALL ORDER BY step, model, engine
        """,
        {"run": run, "width": width, "first": (after_step + 1) // width * width},
    )


def watched(con: duckdb.DuckDBPyConnection, run: str) -> dict | None:
    """A watched server over the whole run, all engines together and each; None for a run that watched none.

    engines: a list of model, engine, sums and percentiles. Of all: accepted_per_scheduled (vLLM's acceptance rate),
    tokens_per_draft (1 + accepted / drafts), first_token_ms and later_output_ms (means), engine_steps_per_s (of one
    engine), positions: accepted at each position by draft, vLLM's acceptance by position; percentiles
    (`avlab.vllm.histograms`) of first_token, between_outputs and request. None where a number is not told.
    """
    names = ", ".join(f"sum({name})::DOUBLE AS {name}" for name in SUMS)
    engines = rows(
        con,
        f"SELECT model, engine, sum(seconds) AS seconds, {names} FROM engine_samples WHERE run = $run::UUID "
        "GROUP BY ALL ORDER BY model, engine",
        {"run": run},
    )
    if not engines:
        return None
    sums = {name: _sum(engine[name] for engine in engines) for name in ("seconds", *SUMS)}
    accepted = rows(
        con,
        "SELECT position, sum(accepted)::DOUBLE AS accepted FROM (SELECT unnest(range(len(accepted_by_position))) AS "
        "position, unnest(accepted_by_position) AS accepted FROM engine_samples WHERE run = $run::UUID) "
        "GROUP BY position ORDER BY position",
        {"run": run},
    )
    latencies = _latencies(con, run)
    for engine in engines:
        engine["percentiles"] = _percentiles(latencies.get((engine["model"], engine["engine"]), {}))
    drafted = _ratio(sums["accepted"], sums["drafts"])
    return plain(
        {
            "engines": engines,
            "accepted_per_scheduled": _ratio(sums["accepted"], sums["draft_tokens"]),
            "tokens_per_draft": None if drafted is None else 1 + drafted,
            "scheduled_per_draft": _ratio(sums["draft_tokens"], sums["drafts"]),
            "first_token_ms": _ratio(sums["first_token_seconds"], sums["first_tokens"], 1e3),
            "later_output_ms": _ratio(sums["later_seconds"], sums["later_outputs"], 1e3),
            "engine_steps_per_s": _ratio(sums["engine_steps"], sums["seconds"]),
            "finished": sums["finished"],
            "percentiles": _percentiles(
                {
                    name: histograms.together(each.get(name, ()) for each in latencies.values())
                    for name in histograms.HISTOGRAMS
                }
            ),
            "positions": [_ratio(row["accepted"], sums["drafts"]) for row in accepted],
        }
    )


def _latencies(
    con: duckdb.DuckDBPyConnection, run: str
) -> dict[tuple[str, str], dict[str, histograms.Buckets]]:
    """All histograms of a run, by model and engine."""
    con.execute(
        "SELECT model, engine, latencies FROM engine_samples WHERE run = $run::UUID AND latencies IS NOT NULL",
        {"run": run},
    )
    found: dict[tuple[str, str], dict[str, histograms.Buckets]] = {}
    while rows_read := con.fetchmany(1000):
        for model, engine, text in rows_read:
            mine = found.setdefault((model, engine), {})
            for name, buckets in histograms.read(text).items():
                mine[name] = histograms.together((mine.get(name, ()), buckets))
    return found


def _percentiles(latencies: dict[str, histograms.Buckets]) -> dict[str, dict[str, float | None]]:
    return {name: histograms.percentiles(latencies.get(name, ())) for name in histograms.HISTOGRAMS}


def _sum(values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ratio(above: float | None, below: float | None, times: float = 1.0) -> float | None:
    return times * above / below if above is not None and below else None
