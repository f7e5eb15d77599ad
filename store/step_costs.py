"""What a run says of its machine: step costs as timed, and what its steps took besides."""

import duckdb

from avlab.store.errors import NoCosts
from avlab.store.runs import describe


def step_costs(con: duckdb.DuckDBPyConnection, run: str) -> dict:
    """A run's step costs, fit for a machine's file: kind, target, machine (dict), config (dict), K; draft, a list of
    (requests, depth, ms); verify, of (tokens, ms), samples; captured, the largest captured size that its table shows,
    or 0; rest, of (rows sampled from, ms, steps): the median of what steps took besides draft and pass, where the run
    tells; passes, of (tokens, prompt tokens, ms, steps): the median of the target's passes as served.

    Raises UnknownRun, and NoCosts where nothing was timed.
    """
    about = describe(con, run)
    profile = con.execute(
        "SELECT max(profile) FROM cost_tables WHERE run = $run::UUID", {"run": run}
    ).fetchall()[0][0]
    if profile is None:
        raise NoCosts(
            f"Run {run} has timed no steps: name a run of the lab's own engine, or one with the extension."
        )
    asked = {"run": run, "profile": profile}
    found: dict[str, list[tuple]] = {}
    for name in ("cost_samples", "cost_tables"):
        found[name] = con.execute(
            f"SELECT phase, size, depth, ms FROM {name} WHERE run = $run::UUID AND profile = $profile "
            "ORDER BY phase, size, depth",
            asked,
        ).fetchall()
    table = [ms for phase, _, _, ms in found["cost_tables"] if phase == "verify"]
    rows = found["cost_samples"] or found["cost_tables"]  # a server may tell its tables alone
    verify = [(size, ms) for phase, size, _, ms in rows if phase == "verify" and ms > 0]
    rest = con.execute(
        """
        SELECT target_tokens, median(sample_ms + decide_ms + coalesce(report_ms, 0)), count(*) FROM steps
        WHERE run = $run::UUID AND prompt_tokens = 0 AND target_tokens > 0 AND sample_ms IS NOT NULL
        GROUP BY target_tokens ORDER BY target_tokens
        """,
        {"run": run},
    ).fetchall()
    drafts = con.execute(
        """
        SELECT emitting, drafted, median(draft_ms), count(*) FROM steps
        WHERE run = $run::UUID AND emitting > 0 AND drafted > 0 AND prompt_tokens = 0 AND draft_ms IS NOT NULL
        GROUP BY emitting, drafted ORDER BY count(*) DESC, emitting, drafted LIMIT 2000
        """,
        {"run": run},
    ).fetchall()
    passes = con.execute(
        """
        SELECT target_tokens, prompt_tokens, median(verify_ms), count(*) FROM steps
        WHERE run = $run::UUID AND target_tokens > 0 AND verify_ms IS NOT NULL AND prompt_tokens IS NOT NULL
        GROUP BY target_tokens, prompt_tokens ORDER BY count(*) DESC, target_tokens, prompt_tokens LIMIT 2000
        """,
        {"run": run},
    ).fetchall()
    return {
        "kind": about["kind"],
        "target": about["target"],
        "machine": about["machine"],
        "config": about["config"],
        "K": about["K"],
        "draft": [(size, depth or about["K"], ms) for phase, size, depth, ms in rows if phase == "draft"],
        "verify": verify,
        "captured": _captured(sorted({size for size, _ in verify}), table),
        "passes": passes,
        "drafts": drafts,
        "rest": [row for row in rest if row[1] is not None],
    }


def _captured(sizes: list[int], table: list[float]) -> int:
    """The largest sampled size up to which a table, [tokens + 1], has steps: between two sampled sizes the cost is the
    larger one's. 0 where it has none."""
    captured, before = 0, 0
    for size in sizes:
        between = table[before + 1 : size + 1]
        if size - before > 1 and any(ms != between[-1] for ms in between):
            return captured
        if size - before > 1:
            captured = size
        before = size
    return captured
