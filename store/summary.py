"""One run in numbers: its headline rates, its positions, its calibration and its ledger."""

import statistics

import duckdb
import numpy as np

from avlab.policies.arm import arm_of
from avlab.speculation.calibration import BINS, FIELDS, Scores, scores
from avlab.speculation.stuck import dropped_in_a_row
from avlab.store.plain import plain
from avlab.store.ranges import MOST_K
from avlab.store.runs import ENDINGS, UNHELD, blocks, describe, rows
from avlab.store.traces import events_since
from avlab.store.watching import watched
from avlab.wire.frames import HEADLINE

LEDGER = ("draft", "verify", "sample", "decide", "report", "idle")


def _chosen_blocks(con: duckdb.DuckDBPyConnection, run: str, kinds, arm: str | None) -> list[int]:
    sql = "SELECT block FROM blocks WHERE run = $run::UUID AND kind IN $kinds AND coalesce(arm = $arm, true)"
    found = con.execute(sql, {"run": run, "kinds": list(kinds), "arm": arm}).fetchall()
    return [block for (block,) in found]


def position_totals(
    con: duckdb.DuckDBPyConnection, run: str, kinds=HEADLINE, arm: str | None = None
) -> list[dict]:
    """By position, over blocks of these kinds (and this arm): position, scheduled, admitted, accepted,
    labelled, conditional_acceptance (accepted / labelled); None where a watched server did not always tell.
    """
    return plain(
        rows(
            con,
            """
            WITH slots AS (
                SELECT unnest(range(len(accepted))) AS position, unnest(scheduled) AS scheduled,
                    unnest(admitted) AS admitted, unnest(accepted) AS accepted, unnest(labelled) AS labelled
                FROM steps WHERE run = $run::UUID AND block IN $blocks
            )
            SELECT position, CASE WHEN count(scheduled) = count(*) THEN sum(scheduled)::BIGINT END AS scheduled,
                CASE WHEN count(admitted) = count(*) THEN sum(admitted)::BIGINT END AS admitted,
                sum(accepted)::BIGINT AS accepted,
                CASE WHEN count(labelled) = count(*) THEN sum(labelled)::BIGINT END AS labelled,
                CASE WHEN count(labelled) = count(*)
                    THEN sum(accepted) / nullif(sum(labelled), 0) END AS conditional_acceptance
            FROM slots GROUP BY position ORDER BY position
            """,
            {"run": run, "blocks": _chosen_blocks(con, run, kinds, arm)},
        )
    )


def calibration_sums(
    con: duckdb.DuckDBPyConnection, run: str, source: str, kinds=HEADLINE, arm: str | None = None
) -> np.ndarray:
    """Binned calibration sums [K, 128, 5] of one source ("online", "raw", "head"), as
    `speculation.calibration` takes them, over blocks of these kinds (and this arm). K is 0 where there are
    none.
    """
    columns = ", ".join(f"sum({field})::DOUBLE" for field in FIELDS)
    found = con.execute(
        f"SELECT position, bin, {columns} FROM calibration WHERE run = $run::UUID AND source = $source "
        f"AND block IN $blocks AND position BETWEEN 0 AND {MOST_K} AND bin BETWEEN 0 AND {BINS - 1} "
        "GROUP BY position, bin",
        {"run": run, "source": source, "blocks": _chosen_blocks(con, run, kinds, arm)},
    ).fetchnumpy()
    position, bins = (np.asarray(found[name], dtype=np.int64) for name in ("position", "bin"))
    sums = np.zeros((int(position.max()) + 1 if len(position) else 0, BINS, len(FIELDS)))
    for column, name in enumerate(list(found)[2:]):
        sums[position, bins, column] = found[name]
    return sums


def measures(result: Scores) -> dict:
    """The measures of calibration by the names that `show` uses; None where the data cannot give one."""
    return plain({name: getattr(result, name) for name in ("ece", "log_loss", "brier", "auc")})


def interactivity(
    con: duckdb.DuckDBPyConnection, run: str, kinds=HEADLINE, arm: str | None = None
) -> float | None:
    """Output tokens/s for one user: the median over requests of (n - 1) / (last token's time - first token's time).

    Requests that the run's end cut off count too: leaving the longest out would flatter. Those that waited for the
    playground do not. None without a request of two tokens.
    """
    sql = (
        "SELECT (output_tokens - 1) / (last_token - first_token) FROM requests "
        "WHERE run = $run::UUID AND block IN $blocks AND finish IN ('end', 'length', 'cancelled') "
        f"AND output_tokens > 1 AND last_token > first_token AND {UNHELD}"
    )
    found = con.execute(sql, {"run": run, "blocks": _chosen_blocks(con, run, kinds, arm)}).fetchall()
    return statistics.median(rate for (rate,) in found) if found else None


def run_summary(con: duckdb.DuckDBPyConnection, run: str, arm: str | None = None) -> dict:
    """What `avlab show --json` prints of a run, or of one arm of it. JSON-safe; None where undefined.

    Rates and counts are over blocks of kind "serve"; `requests` are those served to their end. `ece`, `log_loss`,
    `brier`, `auc` are those of the source that the policy decides by; `raw_ece` that of the maximum probability used
    as it is. `exploration` is None where nothing was explored. Raises UnknownRun.
    """
    described = describe(con, run)
    all_blocks = blocks(con, run)
    served = [b for b in all_blocks if b["kind"] in HEADLINE and arm in (None, b["arm"])]
    arms = list(dict.fromkeys(b["arm"] for b in served))
    config = described["config"]
    tokens, emitting = (sum(b[name] for b in served) for name in ("tokens", "emitting"))
    seconds = sum(b["seconds"] for b in served)
    source = _source(arms)
    sums = calibration_sums(con, run, source, arm=arm) if source else np.zeros((0, BINS, len(FIELDS)))
    raw = calibration_sums(con, run, "raw", arm=arm)
    positions = position_totals(con, run, arm=arm)
    for position in positions:
        k = position["position"]
        position |= measures(scores(sums[k] if k < len(sums) else np.zeros((BINS, len(FIELDS)))))
    answer = {
        "run_id": described["run_id"],
        "state": described["state"],
        "reason": described["reason"],
        "started": described["started"],
        "duration_s": described["duration_s"],
        "emulated": described["emulated"],
        "kind": described["kind"],
        "policy": arm or described["compared"] or ", ".join(arms) or config.get("policy"),
        "workload": next((b["workload"] for b in served if b["workload"]), config.get("workload")),
        "arrival": described["arrival"],
        "target": described["target"],
        "drafter": described["drafter"],
        "K": described["K"],
        "steps": sum(b["steps"] for b in served),
        "tokens": tokens,
        **_endings(con, run, [b["block"] for b in served]),
        "tokens_per_s": tokens / seconds if seconds > 0 else None,
        "tokens_per_s_per_user": interactivity(con, run, arm=arm),
        "tokens_per_step": tokens / emitting if emitting else None,
        **_coefficients(con, run, arms),
        "positions": positions,
        **measures(scores(sums.sum(axis=0))),
        "raw_ece": measures(scores(raw.sum(axis=0)))["ece"],
        "exploration": _exploration(con, run, [b["block"] for b in served]),
        "watched": watched(con, run),
        "server": described["machine"].get("server"),
        "adaptive": described["machine"].get("adaptive"),
        "told": bool(described["machine"].get("told")),
        "extension": bool(described["machine"].get("extension")),
        "unread": described["machine"].get("unread", []),
        "ledger_ms": _ledger(con, run, [b["block"] for b in served]),
        "blocks": all_blocks,
        "events": events_since(con, run).to_pylist(),
    }
    return plain(answer)


def _source(arms: list[str]) -> str | None:
    """The estimates that these arms decide by, where they all use the same."""
    known = [arm_of(arm) for arm in arms]
    sources = {arm.source for arm in known if arm.adaptive}
    return sources.pop() if len(sources) == 1 else None


def _endings(con: duckdb.DuckDBPyConnection, run: str, chosen: list[int]) -> dict:
    """Requests of these blocks by how they ended: requests (served to their end), refused, cancelled."""
    sql = f"SELECT {ENDINGS} FROM requests WHERE run = $run::UUID AND block IN $blocks"
    return rows(con, sql, {"run": run, "blocks": chosen})[0]


def _coefficients(con: duckdb.DuckDBPyConnection, run: str, arms: list[str]) -> dict:
    """slope, intercepts and refits after the last refit of these arms, None where none of them learns; and
    dropped_slope_steps, how many refits in a row did not move the slope.
    """
    last = rows(
        con,
        """
        WITH mine AS (SELECT *, rowid AS row FROM coefficients WHERE run = $run::UUID AND arm IN $arms)
        SELECT slope, intercept, refit, arm FROM mine
        WHERE (arm, refit) = (SELECT (arg_max(arm, row), arg_max(refit, row)) FROM mine) ORDER BY position
        """,
        {"run": run, "arms": arms},
    )
    if not last:
        return {"slope": None, "intercepts": None, "refits": None, "dropped_slope_steps": 0}
    history = rows(
        con,
        """
        SELECT any_value(slope) AS slope, sum(count) AS labels FROM coefficients
        WHERE run = $run::UUID AND arm = $arm GROUP BY refit ORDER BY refit
        """,
        {"run": run, "arm": last[0]["arm"]},
    )
    return {
        "slope": last[0]["slope"],
        "intercepts": [row["intercept"] for row in last],
        "refits": last[0]["refit"],
        "dropped_slope_steps": dropped_in_a_row(
            [each["slope"] for each in history], [each["labels"] for each in history[1:]]
        ),
    }


def _exploration(con: duckdb.DuckDBPyConnection, run: str, chosen: list[int]) -> dict | None:
    """What exploration cost over these blocks: explored and admitted draft tokens, steps, and milliseconds by the
    cost table."""
    found = rows(
        con,
        """
        SELECT sum(explored)::BIGINT AS explored, sum(list_sum(admitted))::BIGINT AS admitted, count(*) AS steps,
            sum(explored_ms) AS explored_ms
        FROM steps WHERE run = $run::UUID AND block IN $blocks
        """,
        {"run": run, "blocks": chosen},
    )[0]
    return found if found["explored"] else None


def _ledger(con: duckdb.DuckDBPyConnection, run: str, chosen: list[int]) -> dict:
    means = ", ".join(f"avg({name}_ms) AS {name}" for name in LEDGER)
    return rows(
        con,
        f"SELECT {means} FROM steps WHERE run = $run::UUID AND block IN $blocks",
        {"run": run, "blocks": chosen},
    )[0]
