"""A database of years: 1,000 runs, ten million rows. Lists and pages stay quick, and a long run's charts too."""

import time

import pytest
import store_frames as frames

from avlab.experiments.summary import summarise
from avlab.store import queries
from avlab.store.database import Database, reading
from avlab.store.export import export_run
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder

RUNS, STEPS, LONG = 1_000, 8_000, 2_000_000  # steps of each run, and of the last one
LIST_SECONDS, PAGE_SECONDS = 2.0, 3.0


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The path, and the id of the long run. Rows are copies of a recorded run's, with other ids and steps."""
    path, run = tmp_path_factory.mktemp("large") / "lab.duckdb", new_run_id()
    with Database(path) as database:
        with Recorder(database) as recorder:
            for envelope in frames.envelopes(frames.whole_run(), run):
                recorder.record(envelope)
        con = database.cursor()
        con.execute(
            "CREATE TEMP TABLE ids AS SELECT i, gen_random_uuid() AS id FROM range(?) AS r(i)", [RUNS - 1]
        )
        for table in ("runs", "events", "blocks", "coefficients", "requests", "cost_tables"):
            con.execute(
                f"INSERT INTO {table} BY NAME SELECT t.* REPLACE (ids.id AS run) FROM {table} AS t, ids "
                "WHERE t.run = ?::UUID", [run],
            )  # fmt: skip
        one = "(SELECT * FROM steps WHERE run = $run::UUID AND step = 39)"
        more = "t.* REPLACE (i AS step, 0.1 * i AS time, {run} AS run)"
        con.execute(
            f"INSERT INTO steps BY NAME SELECT {more.format(run='ids.id')} FROM {one} AS t, "
            "(SELECT id FROM ids) AS ids, range($steps) AS r(i)",
            {"run": run, "steps": STEPS},
        )
        con.execute(
            f"INSERT INTO steps BY NAME SELECT {more.format(run='t.run')} FROM {one} AS t, range(40, $steps) AS r(i)",
            {"run": run, "steps": LONG},
        )
        assert con.execute("SELECT count(*) FROM steps").fetchone()[0] >= 9_900_000
    return path, run


def timed(read):
    began = time.process_time(), time.monotonic()
    found = read()
    # of a processor: the machine may be busy; but a wait is a wait
    return found, min(time.process_time() - began[0], time.monotonic() - began[1])


@pytest.mark.long
def test_lists_and_pages_of_a_large_database_are_quick(large, tmp_path):
    path, run = large
    told = {}
    with reading(path) as con:
        runs, told["list"] = timed(lambda: queries.runs(con))
        assert len(runs) == RUNS
        _, told["find"] = timed(lambda: queries.find_run(con, run))
        for name, read in {
            "summary": lambda: summarise(con, run),
            "steps": lambda: queries.steps_since(con, run),
            "positions": lambda: queries.positions_since(con, run),
            "a tick": lambda: queries.steps_since(con, run, after_step=LONG - 50),
            "blocks": lambda: queries.blocks(con, run),
            "costs": lambda: queries.step_costs(con, run),
        }.items():
            _, told[name] = timed(read)
        short = next(each["run_id"] for each in runs if each["run_id"] != run)
        _, told["export of a short run"] = timed(lambda: export_run(con, short, tmp_path / "out", "parquet"))
    print({name: round(seconds, 2) for name, seconds in told.items()}, f"{path.stat().st_size >> 20} MB")
    assert told["list"] < LIST_SECONDS
    assert all(seconds < PAGE_SECONDS for seconds in told.values()), told
