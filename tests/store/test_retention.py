"""Notes, deletion, and rewriting the file without what was deleted."""

import os

import numpy as np
import pytest
import store_frames as frames

from avlab.store import queries, retention
from avlab.store.database import Database, connect_reader
from avlab.store.errors import DatabaseHeld, StoreError, UnknownRun
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.store.tables import TABLES

DAY = 86_400.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lab.duckdb"


def record(path, *ages, rows=3000, ended=True):
    """Runs that began so many days before 1,780,000,000; their ids in the same order."""
    made = [new_run_id(1_780_000_000.0 - age * DAY) for age in ages]
    rng = np.random.default_rng(0)
    with Recorder(path) as recorder:
        for run, age in zip(made, ages, strict=True):
            noise = rng.random(rows)
            sent = [
                frames.hello(wall=1_780_000_000.0 - age * DAY),
                *frames.whole_run()[1:-1],
                frames.drafts(rows, features=frames.with_features(noise), survival=noise),
                frames.bye(),
            ]
            for envelope in frames.envelopes(sent if ended else sent[:-1], run):
                recorder.record(envelope)
    return made


def listed(con, **options):
    return [run["run_id"] for run in queries.runs(con, **options)]


def test_a_note_is_kept_in_order(path):
    (run,) = record(path, 0)
    with Database(path) as database:
        con = database.cursor()
        retention.add_note(con, run, " first ")
        retention.add_note(con, run, "second")
        assert queries.runs(con)[0]["notes"] == ["first", "second"]
        assert queries.runs(con)[0]["state"] == "finished", "a note is no state"
        with pytest.raises(StoreError, match="note is empty"):
            retention.add_note(con, run, "  ")
        with pytest.raises(UnknownRun):
            retention.add_note(con, new_run_id(), "x")


def test_a_deleted_run_is_hidden_until_restored(path):
    old, new = record(path, 5, 0)
    with Database(path) as database:
        con = database.cursor()
        retention.delete_run(con, old)
        assert listed(con) == [new] and listed(con, deleted=True) == [old]
        with pytest.raises(UnknownRun):
            queries.find_run(con, old)
        retention.restore_run(con, old)
        assert listed(con) == [new, old] and queries.find_run(con, old) == old
        retention.delete_run(con, old)
        assert listed(con) == [new]


def test_a_running_run_cannot_be_deleted(path):
    run = new_run_id()
    with Recorder(path) as recorder:
        for envelope in frames.envelopes([frames.hello(), frames.steps(0, 5)], run):
            recorder.record(envelope)
        recorder.flush()
        with pytest.raises(StoreError, match="is running: stop it"):
            retention.delete_run(recorder.database.cursor(), run)


def test_compacting_drops_deleted_rows_and_keeps_every_other(path):
    old, kept, new = record(path, 9, 5, 0, rows=100_000)
    with Database(path) as database:
        con = database.cursor()
        before = {
            table: con.execute(f"SELECT * FROM {table} WHERE run = ?::UUID", [kept]).fetchall()
            for table in TABLES
        }
        retention.delete_run(con, old)
    sizes = retention.compact(path)
    assert sizes["bytes_after"] < 0.85 * sizes["bytes_before"]
    assert sizes["bytes_after"] == path.stat().st_size
    assert {p.name for p in path.parent.iterdir()} <= {"lab.duckdb", "lab.duckdb.lock"}
    with Database(path) as database:
        con = database.cursor()
        assert listed(con) == [new, kept] and listed(con, deleted=True) == []
        after = {
            table: con.execute(f"SELECT * FROM {table} WHERE run = ?::UUID", [kept]).fetchall()
            for table in TABLES
        }
        assert after == before
        for table in TABLES:
            assert con.execute(f"SELECT count(*) FROM {table} WHERE run = ?::UUID", [old]).fetchall() == [
                (0,)
            ]
        recorder = Recorder(database)
        assert recorder.committed(kept) == len(frames.whole_run()), "a worker that comes back finds its place"


def test_compacting_wants_the_file_to_itself(path):
    record(path, 0)
    before = path.read_bytes()
    with Database(path), pytest.raises(DatabaseHeld, match="already open for writing in this process"):
        retention.compact(path)
    reader = connect_reader(path)
    with pytest.raises(DatabaseHeld, match="already open for reading"):
        retention.compact(path)
    reader.close()
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="nothing to compact"):
        retention.compact(path.with_name("none.duckdb"))
    assert not path.with_name("none.duckdb").exists()


def test_a_rewrite_that_fails_leaves_the_old_file(path, monkeypatch):
    old, new = record(path, 5, 0)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StoreError, match=r"could not be rewritten .*No space left.*unchanged"):
        retention.compact(path)
    monkeypatch.undo()
    assert {p.name for p in path.parent.iterdir()} <= {"lab.duckdb", "lab.duckdb.lock"}
    with Database(path) as database:
        assert listed(database.cursor()) == [new, old]


def test_runs_expire_by_age_but_never_the_newest(path):
    made = record(path, 40, 31, 29, 1)
    with Database(path) as database:
        con = database.cursor()
        assert retention.expired(con, max_age_days=30, now=1_780_000_000.0) == made[:2]
        assert retention.expired(con, max_age_days=0.5, now=1_780_000_000.0) == made[:3]
        assert retention.expired(con) == []


def test_runs_expire_by_size_oldest_first(path):
    made = record(path, 9, 5, 3, 1, rows=250_000)  # large against what an empty file takes
    size = retention.compact(path)["bytes_after"]
    with Database(path) as database:
        con = database.cursor()
        assert retention.expired(con, max_bytes=2 * size) == []
        assert retention.expired(con, max_bytes=int(0.8 * size)) == made[:1]
        assert retention.expired(con, max_bytes=1) == made[:3]
    gone = retention.apply_retention(path, max_bytes=int(0.7 * size))
    assert gone == made[: len(gone)] and 1 <= len(gone) <= 2
    assert path.stat().st_size <= 0.7 * size
    reader = connect_reader(path)
    assert listed(reader) == made[: len(gone) - 1 : -1]
    reader.close()
    assert retention.apply_retention(path, max_age_days=1e6) == []
    assert retention.apply_retention(path, max_bytes=1) == made[len(gone) : 3], "the newest stays"


def test_room_left_by_deletions_is_given_back_before_runs_are_deleted(path):
    old, _ = record(path, 9, 0, rows=150_000)
    size = retention.compact(path)["bytes_after"]
    with Database(path) as database:
        retention.delete_run(database.cursor(), old)
    assert retention.apply_retention(path, max_bytes=int(0.8 * size)) == []
    assert path.stat().st_size <= 0.8 * size


def test_a_run_that_runs_does_not_expire(path):
    (live,) = record(path, 40, ended=False)
    with Database(path) as database:
        con = database.cursor()
        con.execute("DELETE FROM events WHERE kind = 'cut short'")
        record_new = Recorder(database)
        for envelope in frames.envelopes([frames.hello(), frames.bye()], new_run_id(1_780_000_000.0)):
            record_new.record(envelope)
        assert retention.expired(con, max_age_days=1, now=1_780_000_000.0) == []
        assert queries.describe(con, live)["state"] == "running"
