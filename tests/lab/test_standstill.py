"""Whatever stands still, for however long, the run goes on: liveness is told by signs, not by seconds."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from places import SUPPORT

from avlab.lab.leftover import Trace
from avlab.liveness import Awake, Silence, Standstill
from avlab.store import queries
from avlab.store.database import connect_reader
from avlab.store.ids import new_run_id, next_run_id, started_at

WORKER = (sys.executable, str(SUPPORT / "impatient_worker.py"))
STILL = 4.0  # seconds: four times what the worker allows its lab, twice what the lab allows its worker
LAB = """
import json, pathlib, sys, threading, time
from avlab.config import RunConfig
from avlab.lab import supervisor as module
from avlab.store.recorder import Recorder
module.DEAD_SECONDS = 2.0
path, run, jump, *command = sys.argv[1:]
if float(jump):
    true, began = time.time, time.monotonic()
    time.time = lambda: true() + (float(jump) if time.monotonic() - began > 1.5 else 0.0)
with Recorder(path) as recorder:
    supervisor = module.Supervisor(pathlib.Path(path), recorder, worker_commands={"reference": command})
    supervisor.start(RunConfig.make(target="plain", policy="fixed:2", tokens=800), run)
    while supervisor._worker.inbox.committed < 5:
        time.sleep(0.02)
    print("recorded", flush=True)
    supervisor.wait()
    status = supervisor.status()
    print(json.dumps([status.outcome, status.error]), flush=True)
"""


def begin(tmp_path, jump=0.0):
    path, run = tmp_path / "lab.duckdb", new_run_id()
    command = [sys.executable, "-c", LAB, str(path), run, str(jump), *WORKER]
    lab = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SUPPORT)})
    assert lab.stdout.readline() == b"recorded\n"
    return lab, run, path


def end(lab, run, path):
    out, _ = lab.communicate(timeout=60)
    assert json.loads(out) == ["done", ""]
    con = connect_reader(path)
    try:
        found = queries.run_summary(con, run)
        steps = con.execute("SELECT count(*), max(step), count(DISTINCT step) FROM steps").fetchone()
    finally:
        con.close()
    assert (found["state"], found["tokens"]) == ("finished", 800) and steps == (200, 199, 200)
    return [event["text"] for event in found["events"]]


@pytest.mark.parametrize("who", ["lab", "worker", "both"])
def test_a_process_that_is_stopped_loses_nothing(tmp_path, who):
    lab, run, path = begin(tmp_path)
    worker = Trace.read(tmp_path / "lab.duckdb.worker").pid
    stopped = {"lab": [lab.pid], "worker": [worker], "both": [lab.pid, worker]}[who]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STILL)
    for pid in reversed(stopped):
        os.kill(pid, signal.SIGCONT)
    said = end(lab, run, path)
    assert any("The worker stood still for" in text for text in said) == (who != "lab")


def test_a_run_that_ends_while_its_lab_stands_still_is_recorded_to_its_end(tmp_path):
    lab, run, path = begin(tmp_path)
    os.kill(lab.pid, signal.SIGSTOP)
    time.sleep(STILL + 6.0)  # its 200 steps take some four
    os.kill(lab.pid, signal.SIGCONT)
    end(lab, run, path)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_loses_nothing(tmp_path, jump):
    end(*begin(tmp_path, jump))


@pytest.mark.slow
@pytest.mark.parametrize("who", ["lab", "worker", "both"])
def test_fourteen_seconds_with_the_limits_that_are_served(tmp_path, who, monkeypatch):
    monkeypatch.setitem(globals(), "WORKER", (sys.executable, str(SUPPORT / "stand_in_worker.py")))
    monkeypatch.setitem(globals(), "LAB", LAB.replace("module.DEAD_SECONDS = 2.0\n", ""))
    monkeypatch.setitem(globals(), "STILL", 14.0)
    test_a_process_that_is_stopped_loses_nothing(tmp_path, who)


def test_a_run_is_the_last_though_the_clock_was_set_back():
    ahead = new_run_id(time.time() + 3600)
    after = next_run_id(ahead)
    assert after > ahead and started_at(after) > started_at(ahead)
    assert started_at(next_run_id(None)) == pytest.approx(time.time(), abs=5)


def test_time_counts_only_while_we_run():
    now = [0.0]
    awake = Awake(lambda: now[0])
    for _ in range(10):
        now[0] += 0.5
        awake.read()
    assert awake.seconds == 5.0 and awake.gap == 0.0
    now[0] += 14.0
    assert awake.read() == 5.2 and awake.gap == 14.0
    now[0] -= 100.0  # a clock that goes back, which a monotonic one does not
    assert awake.read() == 5.2


def test_silence_counts_only_while_the_other_process_runs():
    code = "import sys\nprint(flush=True)\nfor line in sys.stdin: sum(range(3_000_000)); print(flush=True)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    other = subprocess.Popen([sys.executable, "-c", code], **pipes)
    other.stdout.readline()
    now = [0.0]
    silence = Silence(other.pid, lambda: now[0])

    def look(work):
        if work:
            other.stdin.write(b"\n")
            other.stdin.flush()
            other.stdout.readline()
        now[0] += 0.5
        return silence.look()

    assert [look(False) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert [look(True) for _ in range(3)] == [0.5, 1.0, 1.5]
    silence.heard()
    assert look(False) == 0.0
    other.kill()
    other.wait()
    assert look(False) > 0.0  # nobody to look at: our own time counts


def test_a_standstill_is_seconds_without_work():
    now, worked = [0.0], [0.0]
    still = Standstill(lambda: now[0], lambda: worked[0])
    now[0] = 0.9
    assert still.seconds() == 0.0  # too short to tell
    now[0] = 14.0
    assert still.seconds() == 14.0
    worked[0] = 2.0  # a busy machine gave it little, but some
    assert still.seconds() == 0.0
    still.begin()
    assert still.seconds() == 0.0
