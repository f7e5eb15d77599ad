"""The worker's file: what is written there is what the extension's own readers get, and nothing of it is believed."""

import json
import logging
import os
import random
import struct
import threading

import pytest
from stand_in_runner import INTERVAL, REQUESTS, K, Worker, load, manage, serve
from torch.utils._python_dispatch import TorchDispatchMode

from avlab.vllm import drained, extension, ring, telemetry
from avlab.vllm.ring import RingError, RingFile, ring_files
from avlab.vllm.telemetry import Layout, Ring, framed, unframed


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(telemetry, "PERIOD", 0.02)


def worker_into(folder, monkeypatch):
    monkeypatch.setenv(extension.TELEMETRY, str(folder))
    worker = Worker()
    worker.init_worker_extension()
    load(worker.model_runner)
    manage(worker.model_runner)
    return worker


@pytest.fixture
def written(tmp_path, monkeypatch, quick):
    """A worker that has served and ended, and its file."""
    worker = worker_into(tmp_path, monkeypatch)
    for steps in (3, 100, 2 * INTERVAL):
        serve(worker.model_runner, steps)
    worker.destroy_worker_extension()
    return worker, RingFile(tmp_path / "engine-0.ring")


def same(a, b):
    """Equal, where nan is itself; both as JSON would carry them."""
    return json.dumps(a) == json.dumps(b)


def test_a_file_says_what_the_extension_says(written):
    worker, file = written
    for cursors in ((-1, -1), (50, 3), (drained.NO_STEPS, -1), (122, 12)):
        told, found = worker.avlab_drain(*cursors), file.drain(*cursors)
        for name in ("steps", "refits_made", "calibration", "next", "dropped", "K", "source", "step_fields"):
            assert same(found[name], told[name]), name
    assert len(file.drain(-1, -1)["steps"]) == 123 and file.torn == 0
    state = file.state()
    assert state.state == "ended" and not state.lives and abs(state.offset) < 1


def test_sums_since_the_start_are_those_of_the_steps(written):
    worker, file = written
    told, totals = worker.avlab_drain(), file.state().totals
    columns = {name: [row[i] for row in told["steps"]] for i, name in enumerate(told["step_fields"])}
    assert totals["steps"] == 123 and totals["tokens"] == sum(columns["tokens"])
    for name in telemetry.BY_POSITION:
        assert totals["by_position"][name] == [sum(row[k] for row in columns[name]) for k in range(K)]
    assert totals["expected_accepted"] == pytest.approx(sum(columns["expected_accepted"]))
    assert columns["expected_accepted"][0] == pytest.approx(REQUESTS * (0.7 + 0.49 + 0.343), rel=1e-6)
    assert sum(totals["errors"]) == totals["expected_steps"] == 123


def test_cost_tables_are_there_and_written_again_when_they_change(tmp_path, monkeypatch, quick):
    import numpy as np

    worker = worker_into(tmp_path, monkeypatch)
    manager = worker.model_runner.adaptive_verification
    manager.cost_tables = np.linspace(0, 1, 5), np.linspace(0, 9, 33)
    serve(worker.model_runner, 2)
    until(lambda: (tmp_path / "engine-0.ring").exists() and RingFile(tmp_path / "engine-0.ring").costs())
    file = RingFile(tmp_path / "engine-0.ring")
    assert same(file.drain(-1, -1)["cost_tables"], worker.avlab_drain()["cost_tables"])
    manager.cost_tables = np.linspace(0, 2, 5), np.linspace(0, 9, 33)
    until(lambda: file.costs()["cost_tables"][0][-1] == 2)
    worker.destroy_worker_extension()


def until(condition, seconds=20.0):
    import time

    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except RingError:
            pass
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_a_ring_keeps_the_last_rows_and_says_how_many_are_gone(tmp_path, monkeypatch, quick):
    monkeypatch.setattr(telemetry, "STEPS", 50)
    worker = worker_into(tmp_path, monkeypatch)
    serve(worker.model_runner, 170)
    worker.destroy_worker_extension()
    file = RingFile(tmp_path / "engine-0.ring")
    found = file.drain(100, -1)
    assert [row[0] for row in found["steps"]] == list(range(120, 170))
    assert (found["dropped"], found["next"]) == (19, 170)
    assert file.state().totals["steps"] == 170
    assert (tmp_path / "engine-0.ring").stat().st_size == file.places["end"]


def test_a_torn_row_is_left_out(written):
    _, file = written
    place = file.places["steps"] + 7 * (telemetry.AROUND + 8 * file.layout.width) + 40
    with open(file.path, "r+b") as out:
        out.seek(place)
        out.write(b"\xff" * 8)
    found = file.drain(-1, -1)
    assert [row[0] for row in found["steps"]] == [n for n in range(123) if n != 7]
    assert file.torn == 1 and found["dropped"] == 1


def test_a_torn_copy_leaves_the_one_before(tmp_path):
    layout = Layout(K, 8, 4, 4, 100, 100, 100)
    made = Ring(tmp_path / "x.ring", layout)
    made.copy("state", b"first")
    made.copy("state", b"second")
    file = RingFile(tmp_path / "x.ring")
    assert file._copy("state") == b"second"
    place = layout.places["state"] + 0 * (telemetry.AROUND + 100)  # the second copy, of an even number
    os.pwrite(made._file, struct.pack("<Q", 4), place)  # a third write has just begun there
    assert file._copy("state") == b"first"
    with pytest.raises(ValueError, match="needs 101 bytes"):
        made.copy("state", bytes(101))
    made.close()


def test_frames_are_whole_or_nothing():
    front, behind = framed(5, b"payload")
    whole = front + b"payload" + behind
    assert unframed(whole) == (5, b"payload") and unframed(bytes(40)) == (0, b"")
    for i in range(len(whole)):
        for bit in (1, 128):
            broken = bytearray(whole)
            broken[i] ^= bit
            assert unframed(bytes(broken)) in (None, (0, b"")), i


def test_damage_anywhere_ends_in_a_sentence_or_in_fewer_rows_and_never_in_wrong_ones(written):
    _, file = written
    whole = file.path.read_bytes()
    truth = {json.dumps(row) for row in file.drain(-1, -1)["steps"]}
    ends = file.places
    dice = random.Random(0)
    places = [dice.randrange(ends[a], ends[b]) for a, b in (
        ("state", "calibration"), ("calibration", "costs"), ("costs", "steps"), ("steps", "refits"), ("refits", "end"),
    ) for _ in range(40)] + list(range(80)) * 3  # fmt: skip
    for place in places:
        broken = bytearray(whole)
        broken[place : place + 4] = dice.randbytes(min(4, len(whole) - place))
        file.path.write_bytes(broken)
        try:
            opened = RingFile(file.path)
            found = opened.drain(-1, -1)
            assert {json.dumps(row) for row in found["steps"]} <= truth
            opened.close()
        except RingError as error:
            assert str(file.path) in str(error)


@pytest.mark.parametrize(
    "value, sentence",
    [
        (b"", "is empty"),
        (bytes(9000), "is empty"),
        (b"GIF89a" + bytes(9000), "is no telemetry"),
        (Layout(2**31, 1, 1, 1, 1, 1, 1).header(bytes(16)), "impossible sizes"),
        (Layout(3, 28, 8, 8, 8, 8, 8).header(bytes(16)), "and should have"),
        (
            Layout(3, 28, 8, 8, 8, 8, 8).header(bytes(16)).replace(b"avlabrng\x01", b"avlabrng\x02"),
            "layout 2",
        ),
    ],
)
def test_foreign_files_are_refused(tmp_path, value, sentence):
    (tmp_path / "a.ring").write_bytes(value)
    with pytest.raises(RingError, match=sentence):
        RingFile(tmp_path / "a.ring")


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.ring")
    with pytest.raises(RingError, match="no plain file"):
        RingFile(tmp_path / "a.ring")
    with pytest.raises(RingError, match="AVLAB_TELEMETRY"):
        ring_files(tmp_path / "missing")
    (tmp_path / "a.ring").unlink()
    with pytest.raises(RingError, match="holds no telemetry"):
        ring_files(tmp_path)


def hostile_state(**more):
    about = {"K": 3, "adaptive": True, "source": "online", "steps": True, "step_fields": [], "missing": []}
    state = {
        "model": "m",
        "engine": 0,
        "vllm": "",
        "state": "serving",
        "wall": 1.0,
        "monotonic": 1.0,
        "about": about,
    }
    return state | {"totals": {}, "sources": [], "steps_kept": 0, "refits_kept": 0} | more


@pytest.mark.parametrize(
    "text",
    [
        "[" * 30_000,
        "{}",
        json.dumps(hostile_state(engine="1; drop")),
        json.dumps(hostile_state(model=7)),
        json.dumps(hostile_state(steps_kept=-5)),
        json.dumps(hostile_state(steps_kept=1e300)),
        json.dumps(hostile_state(wall="NaN?")),
        json.dumps(hostile_state(totals={"steps": float("inf")})),
        json.dumps(hostile_state(totals={"by_position": {"accepted": ["x"]}})),
    ],
)
def test_a_state_of_wrong_values_is_a_sentence(tmp_path, text):
    made = Ring(tmp_path / "a.ring", Layout(3, 28, 8, 8, 1 << 16, 8, 8))
    made.copy("state", text.encode())
    with pytest.raises(RingError, match=r"damaged"):
        RingFile(tmp_path / "a.ring").state()
    made.close()


def test_readers_that_never_wait_read_nothing_wrong_while_it_is_written(tmp_path):
    """A row holds its own number throughout; ten thousand are written while they are read as fast as that goes."""
    layout = Layout(K, 40, 64, 8, 256, 8, 8)
    made = Ring(tmp_path / "a.ring", layout)
    made.rows("steps", [(0, [0.0] * 40)])
    ended = threading.Event()

    def write():
        for number in range(1, 10_000):
            made.rows("steps", [(number, [float(number)] * 40)])
            made.copy("state", f"{number:200d}".encode())
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    file, read, states = RingFile(tmp_path / "a.ring"), 0, 0
    while not ended.is_set():
        state = file._copy("state")
        last = int(state) if state else 0
        states += 1
        for row in file._rows("steps", max(0, last - 63), last + 1):
            assert len(set(row)) == 1 and last - 64 < row[0] <= last
            read += 1
    writer.join()
    made.close()
    assert read > 500 and states > 20


def test_another_life_of_the_worker_is_told(tmp_path):
    layout = Layout(3, 28, 8, 8, 64, 8, 8)
    made = Ring(tmp_path / "a.ring", layout)
    file = RingFile(tmp_path / "a.ring")
    assert not file.replaced()
    with pytest.raises(OSError, match="written by another server"):
        Ring(tmp_path / "a.ring", layout)
    assert not file.replaced()
    made.close()
    Ring(tmp_path / "a.ring", layout)
    assert file.replaced()


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.ring").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        Ring(tmp_path / "a.ring", Layout(3, 28, 8, 8, 64, 8, 8))
    (tmp_path / "a.ring").unlink()
    os.link(tmp_path / "precious", tmp_path / "a.ring")
    with pytest.raises(OSError, match="not a plain file"):
        Ring(tmp_path / "a.ring", Layout(3, 28, 8, 8, 64, 8, 8))
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_that_cannot_be_written_disturbs_nothing_and_is_said_once(
    tmp_path, monkeypatch, quick, caplog
):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "vllm.avlab"):
        worker = worker_into(tmp_path / "file" / "below", monkeypatch)
        serve(worker.model_runner, 20)
        until(lambda: worker.avlab_record._publisher.failure)
        serve(worker.model_runner, 20)
    assert len(worker.avlab_drain()["steps"]) == 40
    assert [each.message for each in caplog.records if "Telemetry" in each.message][1:] == []
    assert "Telemetry is not written" in worker.avlab_begin()["missing"][-1]


def test_a_file_that_is_cut_short_disturbs_nothing(tmp_path, monkeypatch, quick):
    worker = worker_into(tmp_path, monkeypatch)
    serve(worker.model_runner, 5)
    until(lambda: RingFile(tmp_path / "engine-0.ring").state())
    os.truncate(tmp_path / "engine-0.ring", 100)
    until(lambda: worker.avlab_record._publisher.failure)
    serve(worker.model_runner, 5)
    found = worker.avlab_drain()
    assert len(found["steps"]) == 10 and "cut short" in found["missing"][-1]


def test_beside_the_extension_alone_it_says_what_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr(extension, "__name__", "avlab_extension")
    worker = worker_into(tmp_path, monkeypatch)
    assert "avlab_telemetry.py must lie beside" in " ".join(worker.avlab_begin()["missing"])
    serve(worker.model_runner, 3)
    assert len(worker.avlab_drain()["steps"]) == 3


def test_workers_beside_the_first_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(extension.TELEMETRY, str(tmp_path))
    other = Worker()
    other.rank = 1
    other.init_worker_extension()
    assert other.avlab_record._publisher is None and not any(tmp_path.iterdir())


def test_the_reader_and_the_writer_know_the_same(monkeypatch):
    assert telemetry.BY_POSITION == extension.VECTORS and telemetry.UNTRIMMED == extension.UNTRIMMED
    assert ring.CELL == 7 and extension.BINS == 128
    assert extension.REFIT_FIELDS[3:] == ("slope", "intercepts", "counts", "positives")


class Operations(TorchDispatchMode):
    """Counts what this thread asks of torch."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def operations(worker, steps=4 * extension.BUFFER):
    """A step's operations in the thread that serves, sums of the buffer and refits with them."""
    serve(worker.model_runner, 1)
    with Operations() as counted:
        serve(worker.model_runner, steps)
    return counted.count / steps


def test_the_file_adds_no_operation_to_the_hot_path(tmp_path, monkeypatch):
    monkeypatch.setattr(telemetry, "PERIOD", 0.05)
    monkeypatch.delenv(extension.TELEMETRY, raising=False)
    alone = Worker()
    alone.init_worker_extension()
    load(alone.model_runner)
    bare = operations_without_record()
    manage(alone.model_runner)
    watched = operations(alone)
    written = operations(worker_into(tmp_path, monkeypatch))
    assert written <= watched + 2  # a buffer may be summed once more, when the thread asks
    assert watched - bare < 26  # measured: 13, and the sums of refits every ten steps here


def operations_without_record():
    worker = Worker()
    load(worker.model_runner)
    manage(worker.model_runner)
    return operations(worker)
