"""What an A/B measured: its plan, its rounds, throughput by block, times of users, and the ledger by arm.

Only counted blocks (kind "serve") are asked for, and of an A/B only those of kept rounds: a round that was dropped, or
that a worker's end cut off, is nowhere in here.
"""

import statistics
from collections.abc import Iterator, Sequence

import duckdb
import numpy as np

from avlab.speculation.saving import saved_ms
from avlab.store import recorded
from avlab.store.errors import DamagedRun
from avlab.store.experiment_rows import BlockRate, RecordedPlan, Round, ServedLedger, UserTimes
from avlab.store.plain import plain
from avlab.store.ranges import wrong_plan
from avlab.store.runs import DELETED, rows
from avlab.store.traces import cost_profile

# Counted blocks: block, arm, round, their time, and when the next block began (null for the last).
_BLOCKS = """
    SELECT b.block, b.arm, b."round", b.time, b.until FROM (
        SELECT *, lead(time) OVER (ORDER BY block) AS until FROM blocks WHERE run = $run::UUID
    ) AS b JOIN
"""
# of kept rounds: an A/B compares arms within a round, so a round counts whole or not at all
KEPT = _BLOCKS + (
    '(SELECT DISTINCT "round" FROM rounds WHERE run = $run::UUID AND kept) AS r USING ("round") '
    "WHERE b.kind = 'serve'"
)
# all that were served to their end: a frontier needs no whole rounds
FINISHED = _BLOCKS + (
    "(SELECT DISTINCT block FROM block_requests WHERE run = $run::UUID) AS r USING (block) WHERE b.kind = 'serve'"
)


def experiment(con: duckdb.DuckDBPyConnection, run: str) -> RecordedPlan | None:
    """The plan of a run's A/B or frontier; None where a run has none. Raises DamagedRun for one that cannot be."""
    found = rows(con, "SELECT * EXCLUDE (run) FROM experiments WHERE run = $run::UUID", {"run": run})
    if not found:
        return None
    if wrong := wrong_plan(con, run):
        raise DamagedRun(f"The plan of run {run} cannot be read: {wrong}.")
    return RecordedPlan(**plain(found[0] | {"arms": recorded.labels(found[0]["arms"])}))


def experiment_runs(con: duckdb.DuckDBPyConnection, frontier: bool = False) -> list[str]:
    """The ids of the runs that have an A/B, or those that measured a frontier; newest first, without deleted ones."""
    sql = (
        "SELECT DISTINCT run::VARCHAR FROM experiments WHERE contains(arms, '@') = $frontier "
        f"AND run NOT IN ({DELETED}) ORDER BY ALL DESC"
    )
    return [run for (run,) in con.execute(sql, {"frontier": frontier}).fetchall()]


def rounds(con: duckdb.DuckDBPyConnection, run: str) -> list[Round]:
    """The rounds that are over, in order."""
    sql = 'SELECT "round", kept, reason, time, step FROM rounds WHERE run = $run::UUID ORDER BY "round"'
    return [Round(**row) for row in plain(rows(con, sql, {"run": run}))]


def unfinished_round(con: duckdb.DuckDBPyConnection, run: str) -> int | None:
    """The round that has begun and is not over; None between rounds."""
    sql = (
        'SELECT max("round") FROM blocks WHERE run = $run::UUID '
        'AND "round" NOT IN (SELECT "round" FROM rounds WHERE run = $run::UUID)'
    )
    return con.execute(sql, {"run": run}).fetchall()[0][0]


def finished_blocks(con: duckdb.DuckDBPyConnection, run: str) -> int:
    """How many counted blocks were served to their end so far."""
    sql = "SELECT count(DISTINCT block) FROM block_requests WHERE run = ?::UUID"
    return con.execute(sql, [run]).fetchall()[0][0]


def block_rates(con: duckdb.DuckDBPyConnection, run: str, counted: str = KEPT) -> list[BlockRate]:
    """Counted blocks in order."""
    found = plain(
        rows(
            con,
            f"""
            WITH counted AS ({counted})
            , users AS (
                SELECT block, median(tokens / seconds) AS interactivity FROM block_requests
                WHERE run = $run::UUID AND seconds > 0 GROUP BY block
            ), timed AS (
                SELECT c.*, s.tokens, s.emitting, s.time AS ended, s.prompt_tokens AS prompted, s.surplus,
                    greatest(s.time - lag(s.time, 1, c.time) OVER (PARTITION BY block ORDER BY s.step), 0) AS lasted
                FROM counted AS c JOIN (SELECT * FROM steps WHERE run = $run::UUID) AS s USING (block)
            )
            SELECT block, arm, "round", sum(tokens)::BIGINT AS tokens, max(ended) - time AS seconds,
                count(*) AS steps, sum(emitting)::BIGINT AS emitting,
                sum(tokens) / nullif(max(ended) - time, 0) AS tokens_per_s, any_value(interactivity) AS interactivity,
                coalesce(sum(prompted), 0)::BIGINT AS prompt_tokens,
                count(*) FILTER (prompted > 0) AS prompt_steps,
                coalesce(sum(lasted) FILTER (prompted > 0), 0) AS prompt_seconds,
                CASE WHEN count(surplus) = count(*) THEN sum(surplus) END AS surplus
            FROM timed LEFT JOIN users USING (block)
            GROUP BY block, arm, "round", time ORDER BY block
            """,
            {"run": run},
        )
    )
    return [BlockRate(run=run, **row) for row in found]


def user_times(
    con: duckdb.DuckDBPyConnection, runs: str | Sequence[str], counted: str = KEPT
) -> dict[str, UserTimes]:
    """By arm, what users saw within its blocks, of one run or of several together."""
    found = f"""
        WITH counted AS ({counted})
        SELECT arm, list(seconds / tokens) AS pace, list(tokens) AS weight
        FROM counted JOIN (SELECT * FROM block_requests WHERE run = $run::UUID) USING (block)
        WHERE seconds > 0 GROUP BY arm
        """
    first = f"""
        WITH counted AS ({counted})
        SELECT arm, list(1e3 * (first_token - arrival)) AS ms
        FROM (SELECT first_token, arrival FROM requests WHERE run = $run::UUID) AS q
            ASOF JOIN counted ON q.first_token > counted.time
        WHERE q.first_token <= coalesce(counted.until, 'infinity'::DOUBLE) GROUP BY arm
        """
    paces: dict[str, list[float]] = {}
    weights: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    for run in _each(runs):
        for row in rows(con, found, {"run": run}):
            paces.setdefault(row["arm"], []).extend(row["pace"])
            weights.setdefault(row["arm"], []).extend(row["weight"])
        for row in rows(con, first, {"run": run}):
            waits.setdefault(row["arm"], []).extend(row["ms"])
    answer = {}
    for arm in paces:
        pace, weight = np.array(paces[arm]), np.array(weights[arm], dtype=np.float64)
        order = np.argsort(pace)
        below = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
        p50, p95 = 1e3 * np.interp([0.5, 0.95], below, pace[order])
        answer[arm] = UserTimes(
            interactivity=statistics.median((1 / pace).tolist()),
            p50_tpot_ms=float(p50),
            p95_tpot_ms=float(p95),
            p50_ttft_ms=statistics.median(waits[arm]) if arm in waits else None,
        )
    return answer


def _each(runs: str | Sequence[str]) -> Iterator[str]:
    yield from [runs] if isinstance(runs, str) else runs


def arm_ledger(
    con: duckdb.DuckDBPyConnection, runs: str | Sequence[str], counted: str = KEPT
) -> dict[str, ServedLedger]:
    """By arm, over its counted blocks in one run or in several together."""
    sql = f"""
        WITH counted AS ({counted})
        SELECT arm, target_tokens, list_sum(scheduled) AS scheduled, list_sum(admitted) AS admitted,
            sum(list_sum(accepted))::BIGINT AS accepted, count(*) AS steps, sum(tokens)::BIGINT AS tokens,
            sum(emitting)::BIGINT AS emitting, sum(draft_ms) AS draft_ms, sum(verify_ms) AS verify_ms,
            sum(sample_ms) AS sample_ms, sum(decide_ms) AS decide_ms, sum(explored) AS explored,
            sum(explored_ms) AS explored_ms,
            sum(expected_ms) FILTER (prompt_tokens = 0) AS expected_ms,
            count(expected_ms) FILTER (prompt_tokens = 0) AS expectations,
            sum(draft_ms + verify_ms) FILTER (prompt_tokens = 0 AND expected_ms IS NOT NULL) AS measured_ms
        FROM counted JOIN (SELECT * FROM steps WHERE run = $run::UUID) AS s USING (block)
        GROUP BY arm, target_tokens, list_sum(scheduled), list_sum(admitted)
        """
    seconds: dict[str, float] = {}
    passes: dict[str, list[dict]] = {}
    saved: dict[str, float] = {}
    for run in _each(runs):
        verify = _verify_table(con, run)
        for block in block_rates(con, run, counted):
            seconds[block.arm] = seconds.get(block.arm, 0.0) + block.seconds
        by_pass = rows(con, sql, {"run": run})
        for arm in {row["arm"] for row in by_pass}:
            mine = [row for row in by_pass if row["arm"] == arm]
            passes.setdefault(arm, []).extend(mine)
            saved[arm] = saved.get(arm, 0.0) + _saved(mine, verify)
    return {arm: _entry(passes[arm], seconds[arm], saved[arm]) for arm in seconds}


def _verify_table(con: duckdb.DuckDBPyConnection, run: str) -> np.ndarray:
    profile = cost_profile(con, run).to_pydict()
    table = [
        ms
        for form, phase, ms in zip(profile["form"], profile["phase"], profile["ms"], strict=True)
        if (form, phase) == ("table", "verify")
    ]
    return np.array(table)


def _saved(mine: list[dict], verify: np.ndarray) -> float:
    """Milliseconds that trimming has saved in these passes by the cost table; nan without one."""
    if not len(verify):
        return np.nan
    columns = {
        name: np.array([row[name] for row in mine], dtype=float)
        for name in ("target_tokens", "scheduled", "admitted")
    }
    return float(saved_ms(verify, **columns) @ [row["steps"] for row in mine])


def _entry(mine: list[dict], seconds: float, saved: float) -> ServedLedger:
    def total(name: str) -> float:
        return float(sum(row[name] or 0 for row in mine))

    def drafts(name: str) -> float:
        return float(sum(row[name] * row["steps"] for row in mine))

    tokens, expectations = total("tokens"), total("expectations")
    per = 1e3 / tokens if tokens else np.nan
    scheduled, admitted, accepted = drafts("scheduled"), drafts("admitted"), total("accepted")

    def told(name: str) -> float | None:
        return plain(per * total(name)) if any(row[name] is not None for row in mine) else None

    parts = {name: told(name) for name in ("draft_ms", "verify_ms", "sample_ms", "decide_ms")}
    return ServedLedger(
        **parts,
        other_ms=per * seconds * 1e3 - sum(ms or 0.0 for ms in parts.values()),
        total_ms=per * seconds * 1e3,
        scheduled=per * scheduled,
        admitted=per * admitted,
        accepted=per * accepted,
        trimmed=per * (scheduled - admitted),
        rejected=per * (admitted - accepted),
        saved_ms=plain(per * saved),
        explored=told("explored"),
        explored_ms=told("explored_ms"),
        tokens=int(tokens),
        steps=int(total("steps")),
        seconds=seconds,
        tokens_per_step=tokens / total("emitting") if total("emitting") else None,
        expected_ms=plain(total("expected_ms") / expectations) if expectations else None,
        measured_ms=plain(total("measured_ms") / expectations) if expectations else None,
    )
