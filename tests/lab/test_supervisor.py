"""A worker starts, is watched, ends; whatever dies, nothing acknowledged is lost or left behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from places import SUPPORT

from avlab.config import SPIN, RunConfig
from avlab.lab import supervisor as module
from avlab.lab.lab import Lab
from avlab.lab.leftover import Trace
from avlab.lab.supervisor import Supervisor, WorkerError
from avlab.processes import members, usable_cores, worker_environment
from avlab.store import queries
from avlab.store.database import Database, connect_reader
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import commands as cm
from avlab.wire import frames as fr

COMMAND = (sys.executable, str(SUPPORT / "stand_in_worker.py"))


@pytest.fixture
def lab(tmp_path):
    frames = []
    with Recorder(tmp_path / "lab.duckdb") as recorder:
        supervisor = Supervisor(tmp_path / "lab.duckdb", recorder, {"reference": COMMAND})
        supervisor.frames, supervisor.recorder = frames, recorder
        yield supervisor
        supervisor.close()


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def begin(lab, mood="plain", **values):
    run = new_run_id()
    lab.start(RunConfig.make(target=mood, **values), run, lab.frames.append)
    return run


def steps_seen(lab):
    return sum(isinstance(frame, fr.Steps) for frame in lab.frames)


def summary(lab, run):
    with lab.recorder.database.cursor() as con:
        return queries.run_summary(con, run)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def leftovers(tmp_path):
    return [path.name for path in tmp_path.iterdir() if path.name.endswith(".worker")]


def test_a_run_is_served_recorded_and_over(lab, tmp_path):
    run = begin(lab, tokens=40, policy="fixed:2")
    assert lab.wait(60)
    status = lab.status()
    assert (status.run, status.state, status.outcome, status.error) == (run, "ended", "done", "")
    found = summary(lab, run)
    assert (found["state"], found["steps"], found["tokens"]) == ("finished", 10, 40)
    assert leftovers(tmp_path) == []


def test_stopping_says_goodbye(lab):
    run = begin(lab)
    until(lambda: steps_seen(lab) > 3)
    assert lab.status().alive and lab.status().pid
    pid = lab.status().pid
    status = lab.stop()
    assert (status.outcome, status.error) == ("stopped", "")
    assert summary(lab, run)["state"] == "stopped" and gone(pid)


def test_one_worker_at_a_time_and_the_next_may_follow(lab):
    with pytest.raises(WorkerError, match="No worker"):
        lab.send(cm.Pause())
    run = begin(lab)
    with pytest.raises(WorkerError, match=f"busy with run {run}"):
        begin(lab)
    lab.stop()
    begin(lab, tokens=4)
    assert lab.wait(60) and lab.status().outcome == "done"


def test_a_refused_start_leaves_what_is_known_of_the_run_before(tmp_path):
    with Lab(tmp_path / "lab.duckdb", worker_commands={"reference": COMMAND}) as lab:
        run = lab.run({"target": "plain"})
        until(lambda: lab.tally.steps > 5)
        known = lab.tally, lab.generation
        with pytest.raises(WorkerError, match=f"busy with run {run}"):
            lab.run({"target": "plain"})
        assert (lab.tally, lab.generation) == known
        seen = lab.tally.steps
        until(lambda: lab.tally.steps > seen)
        lab.stop()
        lab.supervisor._commands = {"reference": (str(tmp_path / "nothing here"),)}
        with pytest.raises(WorkerError, match="could not be started"):
            lab.run({"target": "plain"})
        told = lab.progress()
        assert (told["status"]["run"], told["status"]["outcome"]) == (run, "stopped")
        assert told["tally"]["steps"] > seen and told["tally"]["policy"]


def fail(*_):
    raise RuntimeError("a fault of ours")


@pytest.mark.parametrize(
    ("what", "mood"), [("members", "slow to start"), ("sweep", "plain"), ("tail", "plain")]
)
def test_whatever_fails_while_a_worker_is_watched_its_end_is_said(lab, monkeypatch, capsys, what, mood):
    monkeypatch.setattr(module, what, fail)
    begin(lab, mood, tokens=4)
    pid = lab.status().pid
    assert lab.wait(60)
    assert "a fault of ours" in lab.status().error and lab.status().outcome == "failed" and gone(pid)
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.undo()
    begin(lab, tokens=4)
    assert lab.wait(60) and (lab.status().outcome, lab.status().error) == ("done", "")


def test_a_trace_that_cannot_be_removed_is_said_and_keeps_nobody_waiting(lab, monkeypatch):
    unlink = Path.unlink

    def refused(path, missing_ok=False):
        if path.name.endswith(".worker"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    run = begin(lab, tokens=40)
    assert lab.wait(60)
    assert "lab.duckdb.worker cannot be removed (Permission denied)" in lab.status().error
    assert (summary(lab, run)["state"], summary(lab, run)["steps"]) == ("finished", 10)


def test_a_fault_of_whoever_looks_on_is_said_and_the_run_is_recorded(lab, capsys):
    run = new_run_id()
    lab.start(RunConfig.make(target="plain", tokens=40), run, fail)
    assert lab.wait(60)
    assert (summary(lab, run)["state"], summary(lab, run)["steps"]) == ("finished", 10)
    assert "a fault of ours" in lab.status().error and "Traceback" in capsys.readouterr().err


def test_a_killed_worker_is_marked_and_loses_nothing_acknowledged(lab):
    run = begin(lab)
    until(lambda: steps_seen(lab) > 5 and lab._worker.inbox.committed > 3)
    kept = lab._worker.inbox.committed
    os.kill(lab.status().pid, signal.SIGKILL)
    assert lab.wait(60)
    assert lab.status().outcome == "cut short" and "signal 9" in lab.status().error
    found = summary(lab, run)
    assert found["state"] == "cut short" and "signal 9" in found["reason"]
    assert found["steps"] + 2 >= kept  # the other two are Hello and Block
    begin(lab, tokens=4)
    assert lab.wait(60) and lab.status().outcome == "done"


def test_a_killed_worker_is_said_to_have_ended_after_the_steps_that_are_recorded(lab):
    run = begin(lab)
    until(lambda: steps_seen(lab) > 5)
    os.kill(lab.status().pid, signal.SIGKILL)
    assert lab.wait(60)
    assert f"after {summary(lab, run)['steps']} steps" in lab.status().error


def test_a_worker_killed_while_it_starts_is_a_sentence_that_says_what_to_do(lab):
    begin(lab, "slow to start")
    until(lambda: lab.status().pid)
    os.kill(lab.status().pid, signal.SIGKILL)
    assert lab.wait(60)
    assert lab.status().outcome == "failed"
    for word in ("killed by signal 9 while it started", "start it again", "--max-num-seqs"):
        assert word in lab.status().error


@pytest.mark.parametrize("greeted", [False, True])
def test_a_stop_that_is_only_sent_ends_a_worker_before_and_after_its_greeting(lab, greeted):
    begin(lab, "plain" if greeted else "slow to start")
    until(lambda: steps_seen(lab) > 3 if greeted else lab.status().pid)
    lab.send(cm.Stop())
    assert greeted or lab.status().state in ("stopping", "ended")
    assert lab.wait(60)
    assert (lab.status().outcome, lab.status().error) == ("stopped", "")


def test_a_killed_workers_children_go_too(lab):
    begin(lab, "child")
    until(lambda: any(isinstance(f, fr.Event) and f.kind == "child" for f in lab.frames))
    child = next(int(f.text) for f in lab.frames if isinstance(f, fr.Event))
    os.kill(lab.status().pid, signal.SIGKILL)
    assert lab.wait(60)
    until(lambda: gone(child))


@pytest.mark.slow
def test_a_worker_that_does_not_listen_is_ended(lab):
    run = begin(lab, "deaf")
    until(lambda: steps_seen(lab) > 1)
    pid, child = lab.status().pid, next(int(f.text) for f in lab.frames if isinstance(f, fr.Event))
    status = lab.stop(timeout=0.5)
    assert status.outcome == "cut short" and "did not stop" in status.error
    assert gone(pid) and gone(child) and summary(lab, run)["state"] == "cut short"


@pytest.mark.slow
def test_a_worker_that_hangs_is_noticed_and_ended(lab, monkeypatch):
    run = begin(lab, "hung")
    until(lambda: steps_seen(lab) > 0)  # it hangs after a few
    monkeypatch.setattr(module, "LATE_SECONDS", 0.5)
    until(lambda: lab.status().late > 0.5)
    monkeypatch.setattr(module, "DEAD_SECONDS", 2.0)
    assert lab.wait(60)
    assert "did not answer" in lab.status().error and summary(lab, run)["state"] == "cut short"


def test_a_worker_that_is_stopped_is_late_and_can_be_stopped_for_good(lab, monkeypatch):
    run = begin(lab, "sleepy")
    until(lambda: steps_seen(lab) > 0)  # it sleeps after a few
    monkeypatch.setattr(module, "LATE_SECONDS", 0.5)
    monkeypatch.setattr(module, "DEAD_SECONDS", 0.5)
    until(lambda: lab.status().late > 1.5)
    assert lab.status().alive
    status = lab.stop(timeout=0.5)
    assert "did not stop when asked" in status.error and summary(lab, run)["state"] == "cut short"


def test_a_worker_that_cannot_start_says_why(lab):
    begin(lab, "missing")
    assert lab.wait(60)
    assert (lab.status().outcome, lab.status().error) == (
        "failed",
        "The target 'missing' is not here: fetch it.",
    )
    assert lab.status().log == ()  # which says no more than that
    begin(lab, "broken")
    assert lab.wait(60)
    assert lab.status().error == "The worker could not start: RuntimeError: a fault of ours"
    assert any("Traceback" in line for line in lab.log_tail())
    log = lab.status().log
    assert "Traceback" in log[0] and "RuntimeError: a fault of ours" not in log  # the sentence has it


def test_a_run_that_never_began_leaves_nothing_in_the_database(tmp_path):
    with Lab(tmp_path / "lab.duckdb", worker_commands={"reference": COMMAND}) as lab:
        lab.run({"target": "missing"})
        assert lab.supervisor.wait(60)
        lab.settle()
    with Database(tmp_path / "lab.duckdb") as database:
        for table in ("runs", "events"):
            assert database.cursor().execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


def test_a_failing_run_keeps_its_sentence(lab):
    run = begin(lab, "failing")
    assert lab.wait(60)
    assert (lab.status().outcome, lab.status().error) == ("failed", "The engine failed: a fault in step 3.")
    assert summary(lab, run)["state"] == "failed"


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_a_sentence(lab, monkeypatch):
    run = begin(lab)
    until(lambda: lab._worker.inbox.committed > 3)

    def full(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(lab.recorder, "record", full)
    monkeypatch.setattr(lab.recorder, "flush", full)
    monkeypatch.setattr(lab.recorder, "end", full)
    assert lab.wait(60)
    assert lab.status().error == "the disk is full" and lab.status().outcome == "failed"
    monkeypatch.undo()
    lab.recorder.close()
    assert summary_of_file(lab.recorder.database.path, run)["state"] == "cut short"


def summary_of_file(path, run):
    Database(path).close()  # the next owner marks what the last one left open
    con = connect_reader(path)
    try:
        return queries.run_summary(con, run)
    finally:
        con.close()


LAB = """
import sys, time, pathlib
from avlab.config import RunConfig
from avlab.lab.supervisor import Supervisor
from avlab.store.recorder import Recorder
path, run, mood, *command = sys.argv[1:]
with Recorder(path) as recorder:
    supervisor = Supervisor(pathlib.Path(path), recorder, worker_commands={"reference": command})
    supervisor.start(RunConfig.make(target=mood), run)
    while supervisor._worker.inbox.committed < 5:
        time.sleep(0.02)
    print("recorded", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("mood", ["child", "orphan"])  # an orphan: its own parent has ended
def test_nothing_outlives_a_killed_lab(tmp_path, mood):
    path, run = tmp_path / "lab.duckdb", new_run_id()
    command = [sys.executable, "-c", LAB, str(path), run, mood, *COMMAND]
    lab = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert lab.stdout.readline() == b"recorded\n"
    trace = Trace.read(tmp_path / "lab.duckdb.worker")
    worker = trace.pid
    child = next(process.pid for process in members(worker))
    assert (child in {each.pid for each in psutil.Process(worker).children()}) == (mood == "child")
    lab.kill()
    lab.wait()
    until(lambda: gone(worker) and gone(child))
    with Recorder(path) as recorder:
        supervisor = Supervisor(path, recorder, worker_commands={"reference": COMMAND})
        with recorder.database.cursor() as con:
            found = queries.run_summary(con, run)
        assert found["state"] == "cut short" and found["steps"] > 0
        assert leftovers(tmp_path) == [] and not supervisor.status().alive
        assert not Path(trace.folder).exists()


@pytest.mark.slow
def test_a_worker_left_by_a_dead_lab_is_ended_at_the_next_start(tmp_path):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "
    code += "time.sleep(1000)"
    left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    left.stdout.readline()
    trace = Trace.of(left.pid, "some run", tmp_path / "elsewhere")
    trace.write(tmp_path / "lab.duckdb.worker")
    with Recorder(tmp_path / "lab.duckdb") as recorder:
        assert Supervisor(tmp_path / "lab.duckdb", recorder).recovered == "some run"
    assert gone(left.pid)
    left.wait()


def test_a_process_that_took_over_the_number_is_left_alone(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    trace = Trace(other.pid, time.time() - 3600, "some run", str(tmp_path))
    trace.write(tmp_path / "lab.duckdb.worker")
    with Recorder(tmp_path / "lab.duckdb") as recorder:
        assert Supervisor(tmp_path / "lab.duckdb", recorder).recovered is None
    assert other.poll() is None
    other.kill()
    other.wait()
    (tmp_path / "lab.duckdb.worker").write_text("{")
    assert Trace.read(tmp_path / "lab.duckdb.worker") is None


def test_threads_and_spinning_are_chosen_before_the_worker_starts(lab):
    begin(lab, tokens=4, threads=3, spin=77)
    assert lab.wait(60)
    machine = next(frame.machine for frame in lab.frames if isinstance(frame, fr.Hello))
    assert machine == {"OMP_NUM_THREADS": "3", "GOMP_SPINCOUNT": "77", "OMP_WAIT_POLICY": None}
    clean = {"OMP_WAIT_POLICY": "ACTIVE"}
    plain = worker_environment(None, SPIN, inherited=clean)
    assert plain["OMP_NUM_THREADS"] == str(usable_cores()) and plain["GOMP_SPINCOUNT"] == str(SPIN)
    assert "OMP_WAIT_POLICY" not in plain
    assert worker_environment(None, 0, inherited=clean)["OMP_WAIT_POLICY"] == "PASSIVE"
    assert worker_environment(None, SPIN, inherited={"OMP_NUM_THREADS": "5"})["OMP_NUM_THREADS"] == "5"


def test_the_supervisor_needs_no_torch():
    code = "import sys, avlab.lab.supervisor; print(json.dumps('torch' in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, check=True)
    assert json.loads(answer.stdout) is False
