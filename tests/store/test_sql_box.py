"""A reader's own SQL: it answers, it is limited, and it cannot leave its box."""

import pytest
import store_frames as frames

from avlab.store import sql_box
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder


@pytest.fixture(scope="module")
def con_and_run(tmp_path_factory):
    run = new_run_id()
    with Recorder(tmp_path_factory.mktemp("box") / "lab.duckdb") as recorder:
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
        recorder.flush()
        with recorder.database.cursor() as con:
            yield con, run


def ask(con_and_run, sql, **more):
    return sql_box.ask(*con_and_run, sql, **more)


def test_a_query_is_answered(con_and_run):
    found = ask(
        con_and_run,
        "SELECT block, count(*) AS n, max(scheduled) AS s FROM steps GROUP BY block ORDER BY block",
    )
    assert found["columns"] == ["block", "n", "s"] and not found["cut"]
    assert found["rows"] == [[0, 10, [4, 4, 4]], [1, 20, [4, 4, 4]], [2, 10, [4, 4, 4]]]


def test_the_result_is_limited(con_and_run):
    found = ask(con_and_run, "SELECT * FROM range(5000)")
    assert len(found["rows"]) == sql_box.MOST_ROWS and found["cut"]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "failed"),
        ("SELECT * FROM 'https://example.org/a.parquet'", "failed"),
        ("COPY steps TO '/dev/null'", "one SELECT"),
        ("SET enable_external_access = true", "one SELECT"),
        ("ATTACH '/dev/null' AS other", "one SELECT"),
        ("DROP TABLE steps", "one SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("", "one SELECT"),
        ("SELECT nothing FROM nowhere", "failed"),
    ],
)
def test_what_it_may_not_do_is_refused_with_a_sentence(con_and_run, sql, word):
    with pytest.raises(sql_box.QueryError, match=word):
        ask(con_and_run, sql)


def test_a_query_without_end_is_ended(con_and_run):
    with pytest.raises(sql_box.QueryError, match="more than 3 s"):
        ask(con_and_run, "SELECT count(*) FROM range(10000000) a, range(10000000) b", seconds=3)
