"""What a live chart asks for: what came after the last row it saw, in SQL buckets, as `pyarrow.Table`s.

A trace of steps has at most `max_points` points: steps are put into buckets of `width` steps, a power of two
that grows with the run. The answer begins with the bucket that holds `after_step + 1`, whole, so a reader
replaces the point with that `bucket` if it has one, and starts over (after_step = -1) when `width` has
changed.
"""

import duckdb
import pyarrow as pa

from avlab.store.errors import NoCosts
from avlab.store.runs import UNHELD

MAX_POINTS = 2000  # per trace; more cannot be told apart on a screen
MOST_SLOTS = 64 * 16  # raw slots of a step: requests times draft positions, generously
MAX_WINDOWS = 200  # each is up to K x 128 rows, and an error over few slots is mostly noise


def table(con: duckdb.DuckDBPyConnection, sql: str, parameters: dict) -> pa.Table:
    """What a query gives, as Arrow."""
    return con.sql(sql, params=parameters).to_arrow_table()


def last_step(con: duckdb.DuckDBPyConnection, run: str) -> int:
    """The highest step number recorded, -1 before the first."""
    found = con.execute("SELECT max(step) FROM steps WHERE run = ?::UUID", [run]).fetchall()[0][0]
    return -1 if found is None else found


def bucket_width(last: int, max_points: int = MAX_POINTS) -> int:
    """The smallest power of two that puts steps 0 to `last` into at most `max_points` buckets."""
    width = 1
    while (last + width) // width > max_points:  # buckets 0 to last // width
        width *= 2
    return width


def _window(con: duckdb.DuckDBPyConnection, run: str, after_step: int, max_points: int) -> dict:
    width = bucket_width(last_step(con, run), max_points)
    return {"run": run, "width": width, "first": (after_step + 1) // width * width}


def steps_since(
    con: duckdb.DuckDBPyConnection, run: str, after_step: int = -1, max_points: int = MAX_POINTS
) -> pa.Table:
    """Steps behind `after_step`, one row a bucket and block. A step's time begins with the step before, or its block.

    Columns: bucket (its first step's number), width, block, step and time (of its last step), steps, seconds, paused
    (how much of the seconds passed before serving went on after a pause); means of running, waiting, target_tokens,
    budget, drafted, expected_tokens, expected_ms and of the six `_ms`; sums of tokens, emitting, prompt_tokens,
    scheduled, admitted, accepted, labelled, explored, explored_ms; tokens_per_s, tokens_per_step.
    """
    return table(
        con,
        """
        WITH timed AS (  -- of few columns: a window keeps whole rows
            SELECT step, block, time, lag(time) OVER (ORDER BY step) AS before
            FROM steps WHERE run = $run::UUID AND step >= $first - 1
        ), begun AS (
            SELECT step, block, timed.time, greatest(before, b.time) AS since FROM timed
                LEFT JOIN (SELECT block, time FROM blocks WHERE run = $run::UUID) AS b USING (block)
            WHERE step >= $first
        ), resumed AS (
            SELECT time AS moment FROM events WHERE run = $run::UUID AND origin = 'worker' AND kind = 'serving'
        ), lasted AS (
            SELECT step // $width * $width AS bucket, block, sum(time - since) AS seconds,
                sum(greatest(moment - since, 0)) AS paused
            FROM begun ASOF LEFT JOIN resumed ON begun.time >= resumed.moment GROUP BY ALL
        ), summed AS (
            SELECT step // $width * $width AS bucket, block, max(step) AS step,
                max(time) AS time, count(*) AS steps,
                avg(running) AS running, avg(waiting) AS waiting, avg(target_tokens) AS target_tokens,
                avg(budget) AS budget, avg(drafted) AS drafted, avg(expected_tokens) AS expected_tokens,
                avg(expected_ms) AS expected_ms, avg(draft_ms) AS draft_ms, avg(verify_ms) AS verify_ms,
                avg(sample_ms) AS sample_ms, avg(decide_ms) AS decide_ms, avg(report_ms) AS report_ms,
                avg(idle_ms) AS idle_ms, sum(tokens)::BIGINT AS tokens, sum(emitting)::BIGINT AS emitting,
                sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(list_sum(scheduled))::BIGINT AS scheduled,
                sum(list_sum(admitted))::BIGINT AS admitted, sum(list_sum(accepted))::BIGINT AS accepted,
                sum(list_sum(labelled))::BIGINT AS labelled, coalesce(sum(explored), 0)::BIGINT AS explored,
                coalesce(sum(explored_ms), 0) AS explored_ms
            FROM steps WHERE run = $run::UUID AND step >= $first GROUP BY ALL
        )
        SELECT bucket, $width AS width, summed.* EXCLUDE (bucket), seconds, paused,
            tokens / nullif(seconds, 0) AS tokens_per_s, tokens / nullif(emitting, 0) AS tokens_per_step
        FROM summed JOIN lasted USING (bucket, block) ORDER BY step
        """,
        _window(con, run, after_step, max_points),
    )


def positions_since(
    con: duckdb.DuckDBPyConnection, run: str, after_step: int = -1, max_points: int = MAX_POINTS
) -> pa.Table:
    """Draft slots behind `after_step`, one row a bucket, block and position: bucket, width, block, position,
    step (the bucket's last), and sums of scheduled, admitted, accepted, labelled.
    """
    return table(
        con,
        """
        WITH slots AS (
            SELECT step, block, unnest(range(len(accepted)))::INTEGER AS position,
                unnest(scheduled) AS scheduled, unnest(admitted) AS admitted, unnest(accepted) AS accepted,
                unnest(labelled) AS labelled
            FROM steps WHERE run = $run::UUID AND step >= $first
        )
        SELECT step // $width * $width AS bucket, $width AS width, block, position, max(step) AS step,
            sum(scheduled)::BIGINT AS scheduled, sum(admitted)::BIGINT AS admitted,
            sum(accepted)::BIGINT AS accepted, sum(labelled)::BIGINT AS labelled
        FROM slots GROUP BY bucket, block, position ORDER BY step, position
        """,
        _window(con, run, after_step, max_points),
    )


def _rows_since(
    con: duckdb.DuckDBPyConnection, name: str, columns: str, run: str, after_row: int
) -> pa.Table:
    return table(
        con,
        f"SELECT rowid AS row, {columns} FROM {name} WHERE run = $run::UUID AND rowid > $after ORDER BY row",
        {"run": run, "after": after_row},
    )


def refits_since(con: duckdb.DuckDBPyConnection, run: str, after_row: int = -1) -> pa.Table:
    """Coefficients recorded behind row `after_row`, one row a refit and position: row, arm, block, refit,
    step, time, position, slope, intercept, count, positives. Pass the highest `row` seen to go on.
    """
    return _rows_since(con, "coefficients", "* EXCLUDE (run)", run, after_row)


def requests_since(con: duckdb.DuckDBPyConnection, run: str, after_row: int = -1) -> pa.Table:
    """Requests that ended, recorded behind `after_row`: row, and the columns of `requests` but its texts.

    Without the playground's own and those that it made wait.
    """
    return table(
        con,
        "SELECT rowid AS row, * EXCLUDE (run, prompt, output) FROM requests "
        f"WHERE run = $run::UUID AND rowid > $after AND {UNHELD} ORDER BY row",
        {"run": run, "after": after_row},
    )


def events_since(con: duckdb.DuckDBPyConnection, run: str, after_row: int = -1) -> pa.Table:
    """Events behind row `after_row`: row, origin ("worker", "lab"), level, kind, text, time, step, wall."""
    return _rows_since(con, "events", "* EXCLUDE (run)", run, after_row)


def last_heartbeat(con: duckdb.DuckDBPyConnection, run: str) -> dict | None:
    """The worker's last sign of life: time, state, step, rss_mb, drafts_dropped; None before the first."""
    sql = "SELECT * EXCLUDE (run) FROM heartbeats WHERE run = $run::UUID ORDER BY rowid DESC LIMIT 1"
    found = table(con, sql, {"run": run}).to_pylist()
    return found[0] if found else None


def calibration_rows(
    con: duckdb.DuckDBPyConnection,
    run: str,
    source: str | None = None,
    after_window: int = -1,
    workload: str | None = None,
    temperature: float | None = None,
    kinds=("serve", "window"),
    max_windows: int = MAX_WINDOWS,
) -> pa.Table:
    """Calibration sums behind window `after_window`, over blocks of these kinds, optionally of one source,
    workload kind and temperature. Windows are put into buckets like steps are.

    Columns: bucket (its first window's number), width, window and time (of its last), source, position, bin, and
    the five sums, ready to be added up at any grain.
    """
    last = con.execute('SELECT max("window") FROM calibration WHERE run = ?::UUID', [run]).fetchall()[0][0]
    width = bucket_width(-1 if last is None else last, max_windows)
    return table(
        con,
        """
        SELECT c."window" // $width * $width AS bucket, $width AS width, max(c."window") AS "window",
            max(c.time) AS time, source, position, bin, sum(count)::BIGINT AS count,
            sum(positives)::BIGINT AS positives, sum(sum_p) AS sum_p, sum(sum_log_loss) AS sum_log_loss,
            sum(sum_squared_error) AS sum_squared_error
        FROM (SELECT * FROM calibration WHERE run = $run::UUID) AS c
            JOIN (SELECT block FROM blocks WHERE run = $run::UUID AND kind IN $kinds) AS b USING (block)
        WHERE c."window" >= $first AND coalesce(source = $source, true)
            AND coalesce(c.kind = $workload, true) AND coalesce(temperature = $temperature, true)
        GROUP BY bucket, source, position, bin ORDER BY bucket, source, position, bin
        """,
        {
            "run": run,
            "kinds": list(kinds),
            "width": width,
            "first": (after_window + 1) // width * width,
            "source": source,
            "workload": workload,
            "temperature": temperature,
        },
    )


def cost_profile(con: duckdb.DuckDBPyConnection, run: str) -> pa.Table:
    """The last cost profile: form ("sample", "table"), source, phase ("draft", "verify"), size, depth (null for
    "verify"), ms.
    """
    return table(
        con,
        """
        SELECT form, source, phase, size,
            CASE phase WHEN 'draft' THEN coalesce(depth, (SELECT K FROM runs WHERE run = $run::UUID)) END AS depth, ms
        FROM (
            SELECT 'sample' AS form, * FROM cost_samples UNION ALL SELECT 'table', * FROM cost_tables
        ) WHERE run = $run::UUID AND profile = (SELECT max(profile) FROM cost_tables WHERE run = $run::UUID)
        ORDER BY form, phase, size, depth, ms
        """,
        {"run": run},
    )


def cost_samples(con: duckdb.DuckDBPyConnection, run: str) -> dict:
    """The samples of the last cost profile, as they were timed: cost_hash, draft, a list of (requests, depth, ms), and
    verify, a list of (tokens, ms). Raises NoCosts where nothing was timed.
    """
    found = con.execute(
        """
        SELECT phase, size, coalesce(depth, K), ms, cost_hash FROM cost_samples JOIN runs USING (run)
        WHERE run = $run::UUID AND profile = (SELECT max(profile) FROM cost_samples WHERE run = $run::UUID)
        ORDER BY cost_samples.rowid
        """,
        {"run": run},
    ).fetchall()
    if not found:
        raise NoCosts(f"Run {run} has timed no steps: name a run of the lab's own engine.")
    return {
        "cost_hash": found[0][4],
        "draft": [(size, depth, ms) for phase, size, depth, ms, _ in found if phase == "draft"],
        "verify": [(size, ms) for phase, size, _, ms, _ in found if phase == "verify"],
    }


def cost_medians(con: duckdb.DuckDBPyConnection, run: str, after_step: int = -1) -> pa.Table:
    """Costs as measured while serving, behind `after_step`: phase, size, depth, ms (median), steps.

    "draft" is by number of running requests and drafted positions (depth); "verify" by tokens in the target's
    pass (depth null), over steps without prompt tokens, which cost otherwise.
    """
    return table(
        con,
        """
        WITH mine AS (SELECT * FROM steps WHERE run = $run::UUID AND step > $after)
        SELECT 'draft' AS phase, running AS size, drafted AS depth, median(draft_ms) AS ms, count(*) AS steps
        FROM mine WHERE drafted > 0 GROUP BY ALL
        UNION ALL
        SELECT 'verify', target_tokens, NULL, median(verify_ms), count(*)
        FROM mine WHERE prompt_tokens = 0 AND target_tokens > 0 GROUP BY ALL
        ORDER BY phase, depth, size
        """,
        {"run": run, "after": after_step},
    )


def calibration_classes(con: duckdb.DuckDBPyConnection, run: str) -> list[tuple[str, float]]:
    """The classes of requests that calibration tells apart: (workload kind, temperature), in order."""
    sql = "SELECT DISTINCT kind, temperature FROM calibration WHERE run = ?::UUID ORDER BY ALL"
    return con.execute(sql, [run]).fetchall()


def admitted_lengths(con: duckdb.DuckDBPyConnection, run: str, steps: int = 120) -> pa.Table:
    """Of the last `steps` steps whose raw slots were stored: step, request, scheduled and admitted draft tokens.

    Only among the last rows, `MOST_SLOTS` a step: a long run's are not all looked at.
    """
    return table(
        con,
        """
        WITH last AS (
            SELECT step, request, admitted FROM drafts WHERE run = $run::UUID
                AND rowid > (SELECT max(rowid) FROM drafts WHERE run = $run::UUID) - $rows
        ), chosen AS (SELECT DISTINCT step FROM last ORDER BY step DESC LIMIT $steps)
        SELECT step, request, count(*) AS scheduled, count(*) FILTER (admitted) AS admitted
        FROM last JOIN chosen USING (step) GROUP BY ALL ORDER BY step, request
        """,
        {"run": run, "steps": steps, "rows": steps * MOST_SLOTS},
    )


def last_stored_step(con: duckdb.DuckDBPyConnection, run: str) -> dict | None:
    """The last step whose raw slots were stored: its row of `steps`, and `survival`, one number for every slot that
    was scheduled (request by request, in order of position; None where nothing predicted). None before the first.
    """
    found = table(
        con,
        """
        WITH mine AS (
            SELECT step, list(survival ORDER BY request, position) AS survival FROM drafts
            WHERE run = $run::UUID AND step = (SELECT max(step) FROM drafts WHERE run = $run::UUID) GROUP BY step
        )
        SELECT steps.* EXCLUDE (run), survival FROM steps JOIN mine USING (step) WHERE run = $run::UUID
        """,
        {"run": run},
    ).to_pylist()
    return found[0] if found else None
