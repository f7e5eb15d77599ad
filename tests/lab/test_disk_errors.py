"""A disk that takes no more: one sentence that names the file and says what to do, and nothing half written."""

import errno
import os
import resource
import sys
import time

import duckdb
import pytest
import store_frames as frames
from places import SUPPORT

from avlab import processes
from avlab.config import RunConfig
from avlab.errors import cause, not_written
from avlab.files import FileError
from avlab.lab.lab import Lab
from avlab.lab.leftover import Trace
from avlab.lab.supervisor import Supervisor, WorkerError
from avlab.report import write_report
from avlab.store import export, queries
from avlab.store.database import Database, connect_reader
from avlab.store.errors import RecorderError, StoreError, TransferError
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import frames as fr

STAND_IN = (sys.executable, str(SUPPORT / "stand_in_worker.py"))
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "q.part")
AS_JSON = duckdb.IOException(
    '{"exception_type":"IO","exception_message":"Could not write: No space left on device"}'
)


@pytest.fixture
def recorded(tmp_path):
    """(a cursor, the run that the file holds)."""
    with Database(tmp_path / "lab.duckdb") as database:
        run, of_an_ab = new_run_id(), (fr.ExperimentBegun, fr.RoundDone, fr.BlockRequests)
        sent = [frame for frame in frames.whole_run() if not isinstance(frame, of_an_ab)]
        with Recorder(database) as recorder:
            for envelope in frames.envelopes(sent, run):
                recorder.record(envelope)
        yield database.cursor(), run


@pytest.fixture
def small_files():
    """A function after which no file can grow beyond so many bytes, until the test ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("error", "said", "to_do"),
    [
        (FULL, "No space left on device", "free disk space"),
        (AS_JSON, "Could not write: No space left on device", "free disk space"),
        (
            OSError(errno.EROFS, "Read-only file system", "x"),
            "Read-only file system",
            "that you may write to",
        ),
        (
            duckdb.IOException("IO Error: Cannot open file: Permission denied"),
            "IO Error",
            "that you may write to",
        ),
        (OSError(errno.EFBIG, "File too large"), "File too large", "choose another place"),
        (duckdb.IOException("{not JSON"), "{not JSON", "choose another place"),
    ],
)
def test_each_cause_is_said_with_what_to_do(error, said, to_do):
    sentence = not_written("q", error)
    assert (
        sentence.startswith(f"q cannot be written ({said}") and sentence.endswith(".") and to_do in sentence
    )
    assert "\n" not in sentence and "exception_type" not in sentence and "Errno" not in cause(error)


def test_a_report_is_whole_or_not_there(recorded, tmp_path, small_files):
    con, run = recorded
    small_files(100_000)
    with pytest.raises(FileError, match=r"r\.html cannot be written \(File too large\)"):
        write_report(con, run, tmp_path / "r.html")
    assert not [path.name for path in tmp_path.iterdir() if "html" in path.name]
    small_files(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    write_report(con, run, tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size > 100_000
    with pytest.raises(FileError, match="is there already"):
        write_report(con, run, tmp_path / "r.html")


@pytest.mark.parametrize("error", [FULL, AS_JSON])
def test_an_export_is_whole_or_not_there(recorded, tmp_path, monkeypatch, error):
    def full(*_):
        raise error

    con, run = recorded
    monkeypatch.setattr(export, "_sha256", full)
    with pytest.raises(
        TransferError, match=r"q cannot be written \(.*No space left on device\): free disk space"
    ):
        export.export_run(con, run, tmp_path / "q")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("q")]


def test_a_worker_that_cannot_be_written_down_does_not_start(tmp_path, monkeypatch):
    def full(path, text):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write says it: without a name

    path = tmp_path / "lab.duckdb"
    with Recorder(path) as recorder:
        supervisor = Supervisor(path, recorder)
        monkeypatch.setattr(processes.Path, "write_text", full)
        with pytest.raises(
            WorkerError, match=r"lab\.duckdb\.worker cannot be written \(No space left .*free disk"
        ):
            supervisor.start(RunConfig.make(), new_run_id())
        with pytest.raises(OSError, match=r"lab\.duckdb\.worker"):
            Trace(1, 0.0, "run", "folder").write(tmp_path / "lab.duckdb.worker")
        monkeypatch.undo()
        assert not list(tmp_path.glob("*.worker*"))


def test_a_folder_and_a_foreign_file_are_refused_and_get_no_neighbours(tmp_path):
    (tmp_path / "notes.md").write_text("# Notes\n" * 99)
    with pytest.raises(StoreError, match=r"is a folder: give a file in it, such as .*lab\.duckdb"):
        Database(tmp_path)
    with pytest.raises(StoreError, match=r"notes\.md is not a DuckDB file: choose another file\."):
        Database(tmp_path / "notes.md")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]


def test_what_a_full_disk_refused_is_in_the_summary_once_there_is_room(tmp_path, monkeypatch):
    def full(runs):
        raise RecorderError("It takes no more rows (No space left on device): free disk space.")

    path = tmp_path / "lab.duckdb"
    with Lab(path, worker_commands={"reference": STAND_IN}) as lab:
        run = lab.run({"target": "plain"})
        end = time.monotonic() + 60
        while lab.progress()["tally"]["steps"] < 5:
            assert time.monotonic() < end
            time.sleep(0.02)
        monkeypatch.setattr(lab.recorder, "_commit", full)
        assert lab.supervisor.wait(60) and "No space left" in lab.supervisor.status().error
        monkeypatch.undo()
        lab.settle()
        said = lab.show(run)
    con = connect_reader(path)
    stored = queries.run_summary(con, run)
    con.close()
    assert said["steps"] >= 5 and said["state"] != "running"
    for name in ("steps", "tokens", "state", "reason"):
        assert said[name] == stored[name], name
