"""Which runs there are, and what one run is: its description and its blocks."""

import duckdb

from avlab.policies.arm import load_of, unlabelled
from avlab.store import recorded
from avlab.store.database import LAST_STATE
from avlab.store.errors import UnknownRun
from avlab.store.plain import plain
from avlab.wire.frames import HEADLINE

# by how requests ended: those served to their end, those that nobody could serve, those that a run's end cut off
ENDINGS = """count(*) FILTER (finish IN ('end', 'length')) AS requests,
    count(*) FILTER (finish = 'refused') AS refused, count(*) FILTER (finish = 'cancelled') AS cancelled"""
# of requests: that the playground did not hold, and that are not its own
UNHELD = """NOT EXISTS (
    SELECT 1 FROM (
        SELECT kind AS why, time AS since, coalesce(lead(time) OVER (ORDER BY block), 'inf'::DOUBLE) AS until
        FROM blocks WHERE run = $run::UUID
    ) WHERE why = 'playground' AND first_token < until AND last_token > since
)"""
LONGEST_MACHINE = 80  # characters
LONGEST_EMULATED = 400  # characters; a run that was imported may say anything
DELETED = "SELECT run FROM events WHERE origin = 'lab' AND kind IN ('deleted', 'restored') GROUP BY run "
DELETED += "HAVING arg_max(kind, rowid) = 'deleted'"


def rows(con: duckdb.DuckDBPyConnection, sql: str, parameters: dict | None = None) -> list[dict]:
    """The rows that a query gives, as dicts."""
    con.execute(sql, parameters or {})
    names = [column[0] for column in con.description]
    return [dict(zip(names, row, strict=True)) for row in con.fetchall()]


def _is_owned(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether this process holds the file for writing; nobody does when it could be opened read-only."""
    sql = "SELECT NOT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    return con.execute(sql).fetchall()[0][0]


def _state(state: str | None, owned: bool) -> str:
    if state in (None, "resumed"):
        return "running" if owned else "cut short"
    return state


def find_run(con: duckdb.DuckDBPyConnection, text: str) -> str:
    """The run id that `text` means: a whole id, the beginning or end of exactly one, or "last".

    Raises UnknownRun. Deleted runs are not found.
    """
    known = [
        run
        for (run,) in con.execute(
            f"SELECT run::VARCHAR FROM runs WHERE run NOT IN ({DELETED}) ORDER BY run"
        ).fetchall()
    ]
    wanted = text.strip().lower()
    if wanted == "last" and known:
        return known[-1]
    found = [run for run in known if run == wanted]
    found = found or [run for run in known if wanted and (run.startswith(wanted) or run.endswith(wanted))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownRun(f"{len(found)} runs answer to {text!r}: give more of the id.")
    raise UnknownRun(f"No run answers to {text!r} among the {len(known)} here: `avlab runs` lists them.")


def newest_run(con: duckdb.DuckDBPyConnection) -> str | None:
    """The id of the last run, deleted ones included; None where there is none."""
    ((run,),) = con.execute("SELECT max(run)::VARCHAR FROM runs").fetchall()
    return None if run is None else str(run)


def runs(con: duckdb.DuckDBPyConnection, deleted: bool = False) -> list[dict]:
    """All runs, newest first: run_id, state ("running", "finished", "stopped", "failed", "cut short"), reason, started
    (seconds since the epoch), duration_s, kind, policy, workload, arrival, target, drafter, emulated (what is, in
    words; "" for a measured run), machine (its processor, or the emulated one, or ""), seed, temperature, K, steps,
    tokens, tokens_per_s (as in `run_summary`; None where nothing was served), requests (served to their end), refused,
    cancelled, notes. All counts are over blocks of kind "serve", as in `run_summary`. Deleted ones only if asked for.
    """
    owned = _is_owned(con)
    answer = rows(
        con,
        f"""
        WITH headline AS (SELECT run, block, arm, workload FROM blocks WHERE kind IN $headline
        ), lasted AS (SELECT run, max(time) AS time FROM steps GROUP BY run
        ), beside AS (SELECT run, block FROM blocks WHERE kind NOT IN $headline
        ), by_block AS (
            SELECT run, block, count(*) AS steps, sum(tokens) AS tokens, max(time) AS until
            FROM steps ANTI JOIN beside USING (run, block) GROUP BY run, block
        ), counted AS (
            SELECT run, sum(by_block.steps) AS steps, sum(tokens) AS tokens, sum(until - blocks.time) AS seconds
            FROM by_block LEFT JOIN blocks USING (run, block) GROUP BY run
        ), served AS (
            SELECT run, list(DISTINCT arm ORDER BY arm) AS arms, arg_max(workload, block) AS workload
            FROM headline GROUP BY run
        ), asked AS (SELECT run, {ENDINGS} FROM requests ANTI JOIN beside USING (run, block) GROUP BY run
        ), noted AS (
            SELECT run, list(text ORDER BY rowid) AS notes FROM events
            WHERE origin = 'lab' AND kind = 'note' GROUP BY run
        )
        SELECT run::VARCHAR AS run_id, state, reason, wall AS started,
            greatest(lasted.time, last.time) AS duration_s, kind, served.arms AS arms, plan.arms AS plan,
            workload, config, machine, target, drafter, K,
            coalesce(steps, 0)::BIGINT AS steps, coalesce(tokens, 0)::BIGINT AS tokens,
            tokens / nullif(greatest(counted.seconds, 0), 0) AS tokens_per_s,
            coalesce(requests, 0) AS requests, coalesce(refused, 0) AS refused,
            coalesce(cancelled, 0) AS cancelled, coalesce(notes, []) AS notes
        FROM runs LEFT JOIN ({LAST_STATE}) AS last USING (run) LEFT JOIN lasted USING (run)
            LEFT JOIN counted USING (run) LEFT JOIN served USING (run) LEFT JOIN asked USING (run)
            LEFT JOIN noted USING (run) LEFT JOIN experiments AS plan USING (run)
        WHERE (run IN ({DELETED})) = $deleted ORDER BY run DESC
        """,
        {"headline": list(HEADLINE), "deleted": deleted},
    )
    for run in answer:
        config = recorded.settings(run.pop("config"))
        machine = recorded.machine(run.pop("machine"))
        run["emulated"] = emulated(machine)
        run["machine"] = str(machine.get("device" if run["emulated"] else "processor") or "")[
            :LONGEST_MACHINE
        ]
        run["seed"], run["temperature"] = config.get("seed"), config.get("temperature")
        arms = run.pop("arms")
        plan = run.pop("plan")
        run["policy"] = compared(plan) or (", ".join(arms) if arms else config.get("policy"))
        run["workload"] = run["workload"] or config.get("workload")
        run["arrival"] = arrival_of(config, plan)
        run["state"] = _state(run["state"], owned)
    return plain(answer)


def describe(con: duckdb.DuckDBPyConnection, run: str) -> dict:
    """One run's description: run_id, state, reason, started, duration_s, kind, pid, target, drafter and their
    hashes, K, code, config and machine (dicts), the cost_hash of its last cost profile, `compared`, what its A/B or
    frontier compares ("" without one), `arrival`, see `arrival_of`, and `emulated`. Raises UnknownRun.
    """
    found = rows(
        con,
        "SELECT runs.*, state, reason, "
        "greatest(last.time, (SELECT max(time) FROM steps WHERE run = $run::UUID)) AS duration_s "
        f"FROM runs LEFT JOIN ({LAST_STATE}) AS last USING (run) WHERE run = $run::UUID",
        {"run": run},
    )
    if not found:
        raise UnknownRun(f"There is no run {run!r} in this database: `avlab runs` lists what there is.")
    answer = found[0]
    answer["run_id"], answer["started"] = str(answer.pop("run")), answer.pop("wall")
    answer["state"] = _state(answer["state"], _is_owned(con))
    answer["config"] = recorded.settings(answer["config"])
    answer["machine"] = recorded.machine(answer["machine"])
    answer["K"] = recorded.draft_positions(answer["K"])
    answer["emulated"] = emulated(answer["machine"])
    sql = "SELECT arg_max(cost_hash, profile) FROM cost_tables WHERE run = ?::UUID"
    answer["cost_hash"] = con.execute(sql, [run]).fetchall()[0][0]
    plan = con.execute("SELECT any_value(arms) FROM experiments WHERE run = ?::UUID", [run]).fetchall()
    answer["compared"] = compared(plan[0][0])
    answer["arrival"] = arrival_of(answer["config"], plan[0][0])
    return plain(answer)


def emulated(machine: dict | None) -> str:
    """What of a run is emulated, in the words that its worker recorded; "" for a run that was measured."""
    return " ".join(str((machine or {}).get("emulated", "")).split())[:LONGEST_EMULATED]


def compared(arms: str | None) -> str:
    """What an experiment with these arms (JSON) compares, in words; "" for None."""
    if not arms:
        return ""
    labels = recorded.labels(arms)
    loads = {load_of(label) for label in labels}
    if loads == {None}:
        return f"A/B of {', '.join(labels)}"
    return f"frontier of {', '.join(dict.fromkeys(map(unlabelled, labels)))} at {len(loads)} loads"


def arrival_of(config: dict, arms: str | None) -> str | None:
    """How requests arrive in a run of this configuration; a frontier (arms: JSON) has a load for each of its cells."""
    loads = sorted({load for label in recorded.labels(arms) if (load := load_of(label))})
    return f"closed:{', '.join(map(str, loads))}" if loads else config.get("arrival")


def blocks(con: duckdb.DuckDBPyConnection, run: str) -> list[dict]:
    """A run's blocks in order: block, arm, kind, round, workload, step and time of the beginning, steps,
    tokens, seconds (up to the last step), emitting (request-steps), scheduled, admitted, accepted,
    tokens_per_s, tokens_per_step.
    """
    return plain(
        rows(
            con,
            """
            WITH counted AS (
                SELECT block, count(*) AS steps, max(time) AS until, sum(tokens)::BIGINT AS tokens,
                    sum(emitting)::BIGINT AS emitting, sum(list_sum(scheduled))::BIGINT AS scheduled,
                    sum(list_sum(admitted))::BIGINT AS admitted, sum(list_sum(accepted))::BIGINT AS accepted
                FROM steps WHERE run = $run::UUID GROUP BY block
            )
            SELECT block, arm, kind, round, workload, step, time, coalesce(steps, 0) AS steps,
                coalesce(tokens, 0) AS tokens, coalesce(until - time, 0) AS seconds,
                coalesce(emitting, 0) AS emitting, coalesce(scheduled, 0) AS scheduled,
                coalesce(admitted, 0) AS admitted, coalesce(accepted, 0) AS accepted,
                tokens / nullif(until - time, 0) AS tokens_per_s,
                tokens / nullif(emitting, 0) AS tokens_per_step
            FROM blocks LEFT JOIN counted USING (block) WHERE run = $run::UUID ORDER BY block
            """,
            {"run": run},
        )
    )


def run_list(con: duckdb.DuckDBPyConnection) -> list[dict]:
    """All runs that are not deleted, newest first, without counting anything: run_id, state, reason, started, policy,
    workload and arrival (as configured), kind, K, emulated.
    """
    owned = _is_owned(con)
    answer = rows(
        con,
        "SELECT run::VARCHAR AS run_id, state, reason, wall AS started, kind, config, machine, K, arms FROM runs "
        f"LEFT JOIN ({LAST_STATE}) AS last USING (run) LEFT JOIN (SELECT run, arms FROM experiments) USING (run) "
        f"WHERE run NOT IN ({DELETED}) ORDER BY run DESC",
    )
    for run in answer:
        config = recorded.settings(run.pop("config"))
        run["emulated"] = emulated(recorded.machine(run.pop("machine")))
        arms = run.pop("arms")
        run["policy"], run["workload"] = compared(arms) or config.get("policy"), config.get("workload")
        run["arrival"] = arrival_of(config, arms)
        run["state"] = _state(run["state"], owned)
    return plain(answer)


def block_list(con: duckdb.DuckDBPyConnection, run: str) -> list[dict]:
    """A run's blocks in order, without counting their steps: block, arm, kind, round, workload, step, time."""
    sql = 'SELECT block, arm, kind, "round", workload, step, time FROM blocks WHERE run = $run::UUID ORDER BY block'
    return plain(rows(con, sql, {"run": run}))
