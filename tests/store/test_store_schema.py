"""The database file: what a fresh one holds, who may open it, and files of other versions."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import duckdb
import pytest
import store_frames as frames
from places import ROOT

from avlab.store import queries, schema
from avlab.store.database import Database, connect_reader, owner_of
from avlab.store.errors import DatabaseHeld, SchemaError, StoreError
from avlab.store.ids import new_run_id, started_at
from avlab.store.recorder import Recorder
from avlab.store.tables import TABLES

STORED = sorted((ROOT / "tests" / "stored").glob("schema_*.duckdb.gz"))


def holder(code: str, path: Path) -> subprocess.Popen:
    """A process that runs `code` with the database's path in `path`, says so, and waits."""
    text = f"path = {str(path)!r}\n{code}\nprint('ready', flush=True)\nimport sys; sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_fresh_file_is_checkpointed_and_has_no_keys_or_indexes(tmp_path):
    path = tmp_path / "lab" / "new.duckdb"  # the folder is made too
    with Database(path) as database:
        log = path.with_name(path.name + ".wal")
        assert not log.exists() or log.stat().st_size == 0, "table definitions are still in the log"
        con = database.cursor()
        made = {
            name: [
                column for (column,) in con.execute(f"SELECT column_name FROM (DESCRIBE {name})").fetchall()
            ]
            for name in TABLES
        }
        assert made == {name: list(columns) for name, columns in TABLES.items()}
        assert con.execute("SELECT count(*) FROM duckdb_indexes()").fetchall() == [(0,)]
        assert con.execute("SELECT count(*) FROM duckdb_constraints()").fetchall() == [(0,)]
        assert schema.stored_version(con) == schema.VERSION


def test_opening_again_changes_nothing(tmp_path):
    path = tmp_path / "a.duckdb"
    Database(path).close()
    with Database(path) as database:
        assert database.cursor().execute("SELECT count(*) FROM meta").fetchall() == [(1,)]


def test_newer_file_is_refused_by_writer_and_reader_and_left_alone(tmp_path):
    path = tmp_path / "a.duckdb"
    Database(path).close()
    con = duckdb.connect(str(path))
    con.execute("INSERT INTO meta VALUES (?, 0)", [schema.VERSION + 1])
    con.close()
    before = digest(path)
    for opening in (Database, connect_reader):
        with pytest.raises(
            SchemaError, match=rf"version {schema.VERSION + 1}.* up to {schema.VERSION}.*update"
        ):
            opening(path)
    assert digest(path) == before
    assert owner_of(path) is None, "a refused file must not stay locked"


def test_foreign_files_are_refused(tmp_path):
    other = tmp_path / "other.duckdb"
    con = duckdb.connect(str(other))
    con.execute("CREATE TABLE sales (amount INTEGER)")
    con.close()
    text = tmp_path / "text.duckdb"
    text.write_text("not a database at all, but long enough to have a header " * 400)
    with pytest.raises(SchemaError, match=r"not one of avlab's.*sales"):
        Database(other)
    with pytest.raises(SchemaError, match="not a DuckDB file"):
        Database(text)
    with pytest.raises(StoreError, match="no database at"):
        connect_reader(tmp_path / "missing.duckdb")
    assert not (tmp_path / "missing.duckdb").exists()


def test_older_file_is_migrated_in_one_piece(tmp_path, monkeypatch):
    path, run = tmp_path / "a.duckdb", new_run_id()
    with Recorder(path) as recorder:
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 2)
    steps = {now: ("ALTER TABLE runs ADD COLUMN place VARCHAR",), now + 1: ("ALTER TABLE nowhere",)}
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    with pytest.raises(SchemaError, match=rf"from schema version {now} to {now + 2}.*unchanged"):
        Database(path)
    with pytest.raises(
        SchemaError, match=f"version {now}, this avlab reads {now + 2}: open it once for writing"
    ):
        connect_reader(path)
    steps[now + 1] = ("UPDATE runs SET place = 'here'",)
    with Database(path) as database:
        con = database.cursor()
        assert con.execute("SELECT place FROM runs").fetchall() == [("here",)]
        assert con.execute("SELECT version FROM meta ORDER BY rowid").fetchall() == [(now,), (now + 2,)]
        assert con.execute("SELECT count(*) FROM steps").fetchall() == [(40,)]
    del steps[now + 1]
    monkeypatch.setattr(schema, "VERSION", now + 3)
    with pytest.raises(SchemaError, match="knows no way"):
        Database(path)


def test_a_file_of_every_version_is_stored():
    assert [path.name for path in STORED] == [
        f"schema_{version}.duckdb.gz" for version in range(1, schema.VERSION + 1)
    ]


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.name)
def test_stored_file_of_each_version_still_reads(stored, tmp_path):
    path = tmp_path / "a.duckdb"
    path.write_bytes(gzip.decompress(stored.read_bytes()))
    with Database(path) as database:
        con = database.cursor()
        (run,) = queries.runs(con)
        assert (run["state"], run["steps"], run["requests"]) == ("finished", 20, 3)
        summary = queries.run_summary(con, run["run_id"])
        assert summary["tokens_per_s"] == pytest.approx(80.0)
        assert summary["slope"] == 0.8
        assert summary["ece"] == pytest.approx(0.08938, abs=1e-5)
        assert (summary["exploration"] is None) == (stored.name == "schema_1.duckdb.gz")
        version = int(stored.name.split(".")[0].removeprefix("schema_"))
        later = " ".join(
            statement for v in range(version, schema.VERSION) for statement in schema.MIGRATIONS[v]
        )
        for table, columns in TABLES.items():
            filled = f"CREATE TABLE {table} " not in later
            assert con.execute(f"SELECT count(*) > 0 FROM {table}").fetchall() == [(filled,)], table
            con.execute(f"SELECT {', '.join(chr(34) + c + chr(34) for c in columns)} FROM {table}").fetchall()


def test_settings_of_older_runs_have_the_names_of_now(tmp_path):
    path, run = tmp_path / "a.duckdb", new_run_id()
    given = {"slots": 3, "context": 512, "workload": 'file:a"slots": 1'}
    with Recorder(path) as recorder:
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
    with Database(path) as database:
        con = database.cursor()
        con.execute("UPDATE runs SET config = ?", [json.dumps(given)])
        for statement in (each for each in schema.MIGRATIONS[5] if "config" in each):
            con.execute(statement)
        assert queries.describe(con, run)["config"] == {
            "max_num_seqs": 3,
            "max_num_batched_tokens": None,
            "max_model_len": 512,
            "workload": given["workload"],
        }


def test_run_ids_are_version_7_and_sort_by_time():
    ids = [new_run_id(wall) for wall in (1_780_000_000.0, 1_780_000_000.001, 1_790_000_000.5)]
    assert ids == sorted(ids) and len(set(ids)) == 3
    assert all(uuid.UUID(i).version == 7 and uuid.UUID(i).variant == uuid.RFC_4122 for i in ids)
    assert started_at(ids[2]) == pytest.approx(1_790_000_000.5, abs=0.002)
    assert len({new_run_id(1.0) for _ in range(1000)}) == 1000


def test_second_owner_is_told_who_holds_the_file(tmp_path):
    path = tmp_path / "a.duckdb"
    process = holder("from avlab.store.database import Database; d = Database(path)", path)
    try:
        for opening in (Database, connect_reader):
            with pytest.raises(DatabaseHeld, match=rf"held by another process \(PID {process.pid}, since 2"):
                opening(path)
        assert f"PID {process.pid}" in owner_of(path)
    finally:
        process.kill()
        process.wait()
    Database(path).close()  # the lock died with its owner


def test_closing_gives_the_file_free_though_a_cursor_is_still_held(tmp_path):
    path = tmp_path / "a.duckdb"
    database = Database(path)
    cursor = database.cursor()
    database.close()
    process = holder("from avlab.store.database import Database; d = Database(path)", path)
    process.kill()
    process.wait()
    with pytest.raises(duckdb.Error):
        cursor.execute("SELECT 1")


def test_closing_interrupts_what_another_thread_asks(tmp_path):
    database, ended = Database(tmp_path / "lab.duckdb"), []

    def ask():
        try:
            many = "range(10000000)"
            database.cursor().execute(
                f"SELECT count(*) FROM {many} AS a, {many} AS b WHERE a.range > b.range"
            )
        except duckdb.Error as error:
            ended.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    time.sleep(1.0)
    database.close()
    thread.join(30)
    assert isinstance(ended[0], duckdb.InterruptException)
    Database(tmp_path / "lab.duckdb").close()


def test_owner_without_our_lock_is_named_by_duckdb(tmp_path):
    path = tmp_path / "a.duckdb"
    Database(path).close()
    process = holder("import duckdb; d = duckdb.connect(path, read_only=True)", path)
    try:
        with pytest.raises(DatabaseHeld, match=rf"held by another process \(PID {process.pid}\)"):
            Database(path)
    finally:
        process.kill()
        process.wait()


def test_one_process_opens_a_file_once_for_writing_and_reads_its_own(tmp_path):
    path = tmp_path / "a.duckdb"
    with Database(path):
        with pytest.raises(DatabaseHeld, match="already open for writing in this process"):
            Database(path)
        reader = connect_reader(path)
        assert reader.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
    reader = connect_reader(path)
    with pytest.raises(DatabaseHeld, match="already open for reading in this process"):
        Database(path)
    reader.close()
    assert owner_of(path) is None
