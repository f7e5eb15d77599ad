"""Damage of a database is said, and never taken for emptiness."""

import os
import shutil

import duckdb
import pytest
import store_frames as frames

from avlab.commands import asking
from avlab.store import log, queries
from avlab.store.database import Database, connect_reader, reading
from avlab.store.errors import DamagedLog, StoreError, said
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A folder with a database that a dead process left: a log of four runs that no checkpoint has taken in."""
    folder = tmp_path_factory.mktemp("crashed")
    Database(folder / "lab.duckdb").close()
    child = os.fork()
    if not child:
        recorder = Recorder(folder / "lab.duckdb")
        for _ in range(4):
            run = new_run_id()
            for envelope in frames.envelopes(frames.whole_run(), run):
                recorder.record(envelope)
            recorder.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return folder


@pytest.fixture
def database(crashed, tmp_path):
    shutil.copytree(crashed, tmp_path / "lab")
    return tmp_path / "lab" / "lab.duckdb"


def damaged_at(path, at, size=64):
    whole = bytearray(path.read_bytes())
    whole[at : at + size] = bytes(255 - byte for byte in whole[at : at + size])
    path.write_bytes(whole)
    return bytes(whole)


def test_a_whole_log_is_read(database):
    assert log.damage(log.path_of(database)) is None
    with reading(database) as con:
        assert len(queries.runs(con)) == 4


@pytest.mark.parametrize("at", [0, 4, 20, 40, 46, 54, 70])
def test_a_damaged_head_is_refused_by_readers_and_set_aside_by_writers(database, at):
    path = log.path_of(database)
    whole = damaged_at(path, at)
    with pytest.raises(DamagedLog, match=r"lab\.duckdb\.wal is damaged at byte"):
        connect_reader(database)
    with pytest.raises(StoreError):
        asking.answer(database, "runs", queries.runs)
    assert path.read_bytes() == whole
    with Database(database) as owned:
        (note,) = owned.notes
        (kept,) = database.parent.glob("*.wal.damaged-*")
        assert str(kept) in note and kept.read_bytes() == whole
        assert queries.runs(owned.cursor()) == []
    assert kept.read_bytes() == whole


def test_damage_in_the_middle_loses_only_what_is_behind_it(database):
    path = log.path_of(database)
    whole = damaged_at(path, path.stat().st_size // 2)
    with pytest.raises(DamagedLog):
        connect_reader(database)
    with Database(database) as owned:
        assert "set aside" in owned.notes[0]
        assert len(queries.runs(owned.cursor())) < 4
    (kept,) = database.parent.glob("*.wal.damaged-*")
    assert kept.read_bytes() == whole


def test_a_write_that_was_cut_off_at_the_end_is_no_damage(database):
    path = log.path_of(database)
    size = path.stat().st_size
    for cut in (1, 17, 100, 5000):
        os.truncate(path, size - cut)
        assert log.damage(path) is None
    with Database(database) as owned:
        assert owned.notes == [] and len(queries.runs(owned.cursor())) == 3


def test_queries_on_damaged_blocks_are_sentences(crashed, tmp_path):
    shutil.copytree(crashed, tmp_path / "lab")
    database = tmp_path / "lab" / "lab.duckdb"
    Database(database).close()  # all is in the file now
    size = database.stat().st_size
    asked = (queries.runs, queries.run_list, lambda con: queries.run_summary(con, queries.newest_run(con)))
    failures = 0
    whole = database.read_bytes()
    for at in range(12288, size, max(size // 24, 4096)):
        database.write_bytes(whole)
        damaged_at(database, at, 512)
        for question in asked:
            try:
                with reading(database) as con:
                    question(con)
            except Exception as error:
                assert isinstance(error, StoreError), repr(error)
                assert "lab.duckdb" in str(error) and "\n" not in str(error)
                failures += 1
        try:
            with Database(database) as owned, owned.reading() as con:
                queries.runs(con)
        except Exception as error:
            assert isinstance(error, StoreError), repr(error)
    assert failures


def test_what_duckdb_raises_is_said_with_the_file():
    for error in (
        duckdb.IOException("x"),
        duckdb.FatalException("y"),
        UnicodeDecodeError("utf-8", b"a", 0, 1, "z"),
    ):
        with pytest.raises(StoreError, match=r"the file cannot be read here"), said("the file"):
            raise error


def test_a_path_with_a_question_mark_is_refused_before_a_file_is_made(tmp_path):
    path = tmp_path / "new" / "lab?access_mode=read_only.duckdb"
    for call in (Database, connect_reader):
        with pytest.raises(StoreError, match=r"'\?'|There is no database"):
            call(path)
    assert list(tmp_path.iterdir()) == []
