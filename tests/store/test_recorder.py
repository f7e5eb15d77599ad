"""The one writer: what is recorded, what is acknowledged, and what survives."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest
import store_frames as frames
from places import ROOT
from store_frames import envelopes

from avlab.store import queries
from avlab.store.database import Database, connect_reader
from avlab.store.errors import RecorderError
from avlab.store.ids import new_run_id
from avlab.store.measure import measure_rate
from avlab.store.recorder import Recorder
from avlab.store.tables import TABLES
from avlab.wire import codec, draft_rows
from avlab.wire import frames as fr

LATER = 3600.0  # flush_seconds with which nothing is committed by itself


def count(con, table: str) -> int:
    return con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "lab.duckdb") as database:
        yield database


def record(database, sent, **settings) -> Recorder:
    recorder = Recorder(database, **settings)
    for envelope in sent:
        recorder.record(envelope)
    recorder.flush()
    return recorder


def states(database) -> list[str]:
    return [run["state"] for run in queries.runs(database.cursor())]


def test_every_frame_type_becomes_its_rows(database):
    assert {type(frame) for frame in frames.whole_run()} == set(typing.get_args(fr.Frame))
    record(database, envelopes(frames.whole_run()))
    con = database.cursor()
    assert {table: count(con, table) for table in TABLES if table not in ("calibration", "commits")} == {
        "runs": 1,
        "blocks": 3,
        "experiments": 1,
        "rounds": 1,
        "block_requests": 2,
        "steps": 40,
        "engine_samples": 1,
        "coefficients": 6,
        "drafts": 30,
        "requests": 3,
        "cost_samples": 5,
        "cost_tables": 15,
        "tokens": 0,
        "heartbeats": 1,
        "events": 2,
    }


def test_a_step_comes_back_as_it_was(database):
    run = new_run_id()
    sent = frames.step(5, expected_ms=float("nan"))
    record(database, envelopes([frames.hello(), fr.Steps([sent])], run))
    con = database.cursor()
    (row,) = con.execute("SELECT * EXCLUDE (run) FROM steps").fetchall()
    expected = [list(v) if isinstance(v, tuple) else v for v in msgspec.structs.astuple(sent)]
    assert list(row) == [None if v != v else v for v in expected]
    assert con.execute("SELECT run::VARCHAR FROM steps").fetchall() == [(run,)]


def test_drafts_keep_their_values_and_say_null_for_what_is_not_there(database):
    record(database, envelopes([frames.hello(), frames.drafts(6, first_step=10, block=2)]))
    rows = database.cursor().execute("SELECT * EXCLUDE (run) FROM drafts ORDER BY rowid").fetchall()
    assert rows[:3] == [
        (2, 10, 7, 0, [0.0, None], 0.75, 0.5, True, True),
        (2, 10, 7, 1, [0.125, None], 0.75, 0.5, True, False),
        (2, 10, 7, 2, [0.25, None], 0.75, 0.5, False, None),
    ]
    assert rows[5] == (2, 11, 7, 2, [0.625, None], None, 0.5, False, None)


def test_calibration_sums_come_back(database):
    sums = frames.sums_of(np.random.default_rng(3))
    run = new_run_id()
    sent = [
        frames.hello(),
        frames.block(0),
        frames.calibration(sums, window=1),
        frames.calibration(sums, window=2),
    ]
    record(database, envelopes(sent, run))
    np.testing.assert_allclose(queries.calibration_sums(database.cursor(), run, "online"), 2 * sums)


def test_acknowledged_means_committed(database):
    acknowledged = []
    recorder = Recorder(database, lambda *said: acknowledged.append(said), flush_seconds=LATER)
    run = new_run_id()
    reader = database.cursor()
    for envelope in envelopes([frames.hello(), frames.steps(0, 5), frames.drafts(30)], run):
        recorder.record(envelope)
    assert acknowledged == [] and count(reader, "steps") == 0 and recorder.committed(run) is None
    assert recorder.flush() == {run: 2}
    assert acknowledged == [(run, 2)] and count(reader, "steps") == 5 and recorder.committed(run) == 2
    recorder.flush()
    assert acknowledged == [(run, 2)], "nothing new, nothing to say"


def test_a_batch_is_committed_when_it_is_old_or_large_or_the_run_ends(database):
    acknowledged = []
    settings = {"acknowledge": lambda run, sequence: acknowledged.append(sequence)}
    sent = envelopes([frames.hello(), frames.steps(0, 5), frames.drafts(300), frames.bye()])
    recorder = Recorder(database, flush_seconds=LATER, flush_rows=100, **settings)
    for envelope in sent:
        recorder.record(envelope)
    assert acknowledged == [2, 3], "300 rows are enough, and so is the last frame"
    recorder = Recorder(database, flush_seconds=0.05, **settings)
    first, second, *_ = envelopes([frames.hello(), frames.steps(0, 5)])
    recorder.record(first)
    time.sleep(0.06)
    recorder.record(second)
    assert acknowledged[2:] == [1]


def test_duplicates_are_ignored_exactly(database):
    acknowledged, run = [], new_run_id()
    sent = envelopes([frames.hello(), frames.steps(0, 5), frames.drafts(30), frames.event()], run)
    recorder = record(database, [*sent, *sent[1:]], flush_seconds=LATER)  # twice in one batch
    recorder.record(sent[2])
    recorder.flush()  # after the commit
    again = record(  # after a restart
        database, sent, flush_seconds=LATER, acknowledge=lambda run, sequence: acknowledged.append(sequence)
    )
    con = database.cursor()
    assert [count(con, table) for table in ("runs", "steps", "drafts", "events")] == [1, 5, 30, 1]
    assert acknowledged == [3], "the worker must hear again that it is safe"
    for envelope in envelopes([frames.steps(5, 9)], run, first=4):
        again.record(envelope)
    assert again.flush() == {run: 4} and count(con, "steps") == 9


def test_a_gap_is_said(database):
    run = new_run_id()
    sent = envelopes([frames.hello(), *(frames.steps(i, i + 1) for i in range(9))], run)
    recorder = record(database, [*sent[:3], *sent[6:]])
    con = database.cursor()
    assert con.execute("SELECT kind, text FROM events").fetchall() == [
        ("gap", "Frames 3 to 5 never arrived.")
    ]
    assert count(con, "steps") == 6 and recorder.received(run) == 9


def test_a_heartbeat_before_the_greeting_is_not_recorded(database):
    run = new_run_id()
    early = envelopes([frames.heartbeat()], run, first=codec.UNNUMBERED)
    record(database, [*early, *envelopes([frames.hello(), frames.heartbeat()], run)])
    assert [count(database.cursor(), table) for table in ("heartbeats", "events", "runs")] == [1, 0, 1]


def test_a_run_that_begins_in_the_middle_says_so(database):
    record(database, envelopes([frames.steps(0, 5)], first=7))
    con = database.cursor()
    assert count(con, "steps") == 5
    assert con.execute("SELECT kind FROM events WHERE text LIKE '%number 7%'").fetchall() == [("gap",)]


def other_columns():
    """An Arrow stream of one row, as any other program writes it."""
    batch, sink = pa.record_batch({"step": pa.array([1])}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def ragged_features():
    """Draft slots of which one has another number of features."""
    table = draft_rows.unpack(frames.drafts(3).batch, 3)
    features = pa.array([[1.0], [1.0, 2.0], [1.0]], pa.list_(pa.float32()))
    place, sink = table.column_names.index("features"), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.set_column(place, table.schema.field(place), features))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "damaged",
    [
        fr.Drafts(30, frames.drafts(2).batch),
        fr.Drafts(3, b"abc"),
        fr.Drafts(30, frames.drafts(30).batch[:-300]),
        fr.Drafts(1, other_columns()),
        fr.Drafts(3, ragged_features()),
        frames.calibration(frames.sums_of(np.random.default_rng(0)), position=[0]),
        fr.Refit("adaptive", 0, 1, 100, 1.0, 0.5, [0.1, 0.2], [1], [1]),
        frames.request(1, tokens=1 << 40),
    ],
    ids=[
        *("too few slots", "no stream", "cut short", "other columns", "ragged features"),
        *("unequal columns", "unequal vectors", "too large"),
    ],
)
def test_a_damaged_frame_becomes_an_event_and_the_rest_is_recorded(database, damaged):
    run = new_run_id()
    recorder = record(database, envelopes([frames.hello(), damaged, frames.steps(0, 5)], run))
    con = database.cursor()
    assert recorder.committed(run) == 2 and count(con, "steps") == 5
    ((text,),) = con.execute("SELECT text FROM events WHERE kind = 'damaged frame'").fetchall()
    assert f"Frame 1 ({type(damaged).__name__})" in text
    assert [count(con, table) for table in ("drafts", "calibration", "coefficients", "requests")] == [0] * 4


def test_runs_may_be_interleaved(database):
    first, second = new_run_id(), new_run_id()
    pairs = zip(
        envelopes([frames.hello(), frames.steps(0, 5), frames.bye()], first),
        envelopes([frames.hello(), frames.steps(0, 7), frames.bye()], second),
        strict=True,
    )
    record(database, [envelope for pair in pairs for envelope in pair])
    found = {run["run_id"]: run["steps"] for run in queries.runs(database.cursor())}
    assert found == {first: 5, second: 7}


def test_a_run_id_that_is_no_uuid_is_refused(database):
    with pytest.raises(RecorderError, match=r"'../etc', which is no UUID"):
        Recorder(database).record(envelopes([frames.hello()], "../etc")[0])


@pytest.mark.parametrize(
    "complete, reason, state",
    [
        (True, "done", "finished"),
        (False, "stopped", "stopped"),
        (False, "The target ran out of memory.", "failed"),
    ],
)
def test_a_goodbye_ends_a_run(database, complete, reason, state):
    record(database, envelopes([frames.hello(), frames.bye(complete, reason)]))
    (run,) = queries.runs(database.cursor())
    assert (run["state"], run["reason"]) == (state, reason)


def test_a_run_without_goodbye_is_cut_short(tmp_path):
    path, run = tmp_path / "lab.duckdb", new_run_id()
    database = Database(path)
    recorder = record(database, envelopes([frames.hello(), frames.steps(0, 5)], run))
    assert states(database) == ["running"]
    database.close()
    reader = connect_reader(path)  # nobody owns the file: nobody can be writing the run
    assert queries.runs(reader)[0]["state"] == "cut short"
    reader.close()
    with Database(path) as database:
        assert states(database) == ["cut short"]
        recorder = record(database, envelopes([frames.steps(5, 9)], run, first=2))
        assert states(database) == ["running"], "the worker had outlived the lab and came back"
        recorder.end(run, "The worker went away.")
        recorder.end(run, "The worker went away.")
        (found,) = queries.runs(database.cursor())
        assert (found["state"], found["reason"], found["steps"]) == ("cut short", "The worker went away.", 9)
        kinds = database.cursor().execute("SELECT kind FROM events ORDER BY rowid").fetchall()
        assert kinds == [("cut short",), ("resumed",), ("cut short",)]


def test_ending_a_finished_run_changes_nothing(database):
    run = new_run_id()
    record(database, envelopes([frames.hello(), frames.bye()], run)).end(run, "The worker went away.")
    assert states(database) == ["finished"]


@pytest.mark.parametrize("keep", [True, False])
def test_text_of_the_playground_is_kept_only_when_asked(database, keep):
    tokens = fr.Tokens(1, 3, [5], ["a secret"], ["sampled"], [])
    run = new_run_id()
    record(database, envelopes([frames.hello(config={"keep_text": keep})], run))
    record(database, envelopes([tokens], run, first=1))  # a recorder that did not see the greeting
    con = database.cursor()
    assert count(con, "tokens") == keep
    assert not keep or "a secret" in con.execute("SELECT detail FROM tokens").fetchall()[0][0]


def test_several_threads_may_record_and_read(database):
    recorder, failures = Recorder(database, flush_seconds=0.0), []

    def write(run):
        try:
            for envelope in envelopes([frames.hello(), *(frames.steps(i, i + 1) for i in range(40))], run):
                recorder.record(envelope)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(new_run_id(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    reader = database.cursor()
    while any(thread.is_alive() for thread in threads):
        assert all(run["steps"] <= 40 for run in queries.runs(reader))
    assert not failures
    assert [run["steps"] for run in queries.runs(reader)] == [40, 40]


# --- what survives

WRITE_FOR_EVER = """
import sys
from avlab.wire.codec import decode_frame
from avlab.store.measure import draft_frames
from avlab.store.recorder import Recorder
recorder = Recorder(sys.argv[1], lambda run, sequence: print(run, sequence, flush=True), flush_rows=4096)
for data in draft_frames(1000):
    recorder.record(decode_frame(data))
"""


@pytest.mark.parametrize("acknowledgements", [2, 9, 40])
def test_every_acknowledged_row_survives_a_kill(tmp_path, acknowledgements):
    path = tmp_path / "lab.duckdb"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    said = [process.stdout.readline() for _ in range(acknowledgements)]
    time.sleep(0.001 * acknowledgements)  # somewhere within the next commits
    os.kill(process.pid, signal.SIGKILL)
    said += process.stdout.readlines()
    process.wait()
    run, last = next(line for line in reversed(said) if line.endswith("\n")).split()
    reader = connect_reader(path)  # a reader replays the log too
    (committed,) = reader.execute("SELECT max(sequence) FROM commits").fetchall()[0]
    rows = count(reader, "drafts")
    reader.close()
    assert committed >= int(last) > 0
    assert rows == 1000 * committed, "whole frames, up to the last committed one"
    with Database(path) as database:  # and it goes on from there
        assert states(database) == ["cut short"]
        recorder = record(database, envelopes([frames.drafts(30)], run, first=committed + 1))
        assert recorder.committed(run) == committed + 1
        assert count(database.cursor(), "drafts") == rows + 30
        assert count(database.cursor(), "events") == 2, "cut short, resumed: no gap"


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 12 MB, 6 of them taken by a file named filler."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    made = mount and os.geteuid() == 0
    made = (
        made
        and subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], capture_output=True
        ).returncode
        == 0
    )
    if not made:
        pytest.skip("mounting a small disk needs root")
    (disk / "filler").write_bytes(bytes(6 << 20))
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_stops_recording_and_keeps_what_was_recorded(small_disk):
    run, acknowledged = new_run_id(), [0]
    database = Database(small_disk / "lab.duckdb")
    recorder = Recorder(database, lambda run, sequence: acknowledged.append(sequence), flush_rows=4000)
    rng = np.random.default_rng(0)

    def drafts(number):
        return envelopes([frames.drafts(4000, features=frames.with_features(rng.random(4000)))], run, number)[
            0
        ]

    recorder.record(envelopes([frames.hello()], run)[0])
    with pytest.raises(RecorderError, match=r"takes no more rows .*No space left.* intact; free disk space"):
        for number in range(1, 10_000):
            recorder.record(drafts(number))
    reader = database.cursor()
    assert acknowledged[-1] == number - 1 > 2
    assert count(reader, "drafts") == 4000 * acknowledged[-1]
    with pytest.raises(RecorderError):
        recorder.flush()  # still full
    (small_disk / "filler").unlink()
    assert recorder.flush() == {run: number}, "there is room again, and the waiting frame is not lost"
    database.close()
    with Database(small_disk / "lab.duckdb") as database:
        assert count(database.cursor(), "drafts") == 4000 * number


def test_a_commit_that_fails_is_tried_again_and_memory_is_bounded(database, monkeypatch):
    run, real = new_run_id(), Recorder._commit
    sent = envelopes([frames.hello(), *(frames.drafts(300) for _ in range(6))], run)
    recorder = Recorder(database, flush_seconds=LATER, flush_rows=1000)
    monkeypatch.setattr("avlab.store.recorder.PENDING_ROWS", 1000)

    def fail(self, runs):
        raise RecorderError("no")

    monkeypatch.setattr(Recorder, "_commit", fail)
    refused = []
    for envelope in sent:
        try:
            recorder.record(envelope)
        except RecorderError:
            refused.append(envelope.sequence)
    assert refused == [4, 5, 6] and recorder.received(run) == 4, "the fourth was taken, the last two were not"
    monkeypatch.setattr(Recorder, "_commit", real)
    for envelope in sent[3:]:  # the worker sends what was not acknowledged
        recorder.record(envelope)
    recorder.flush()
    con = database.cursor()
    assert count(con, "drafts") == 1800 and count(con, "events") == 0


def test_a_failed_commit_leaves_no_part_of_the_batch(database):
    run = new_run_id()
    recorder = Recorder(database, flush_seconds=LATER)
    for envelope in envelopes([frames.hello(), frames.steps(0, 5), frames.event()], run):
        recorder.record(envelope)
    side = database.cursor()
    side.execute("ALTER TABLE events RENAME TO elsewhere")
    with pytest.raises(RecorderError, match=r"elsewhere|events") as raised:
        recorder.flush()
    assert isinstance(raised.value.__cause__, duckdb.Error)
    assert count(side, "steps") == 0 and count(side, "runs") == 0
    side.execute("ALTER TABLE elsewhere RENAME TO events")
    assert recorder.flush() == {run: 2}
    assert count(side, "steps") == 5 and count(side, "events") == 1


def test_the_recorder_keeps_up(tmp_path):
    measured = measure_rate(tmp_path / "rate.duckdb", seconds=1.0, rows_per_frame=448)  # 64 requests by K = 7
    assert measured["rows_per_s"] >= 100_000, measured
    reader = connect_reader(tmp_path / "rate.duckdb")
    assert count(reader, "drafts") == measured["rows"] == 448 * measured["acknowledged"]
    reader.close()
