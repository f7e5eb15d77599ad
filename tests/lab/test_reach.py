"""A database that somebody else holds: its lab is asked, with patience while it starts; others are named."""

import signal
import subprocess
import sys
import threading
import time

import pytest
from command_line import STAND_IN, avlab, one_sentence
from places import ROOT, SUPPORT

from avlab.lab import reach
from avlab.lab.lab import Lab
from avlab.lab.owner import Owner, ask
from avlab.lab.reach import open_or_ask
from avlab.store.database import Database
from avlab.store.errors import DatabaseHeld

WORKER = (sys.executable, str(SUPPORT / "stand_in_worker.py"))
HOLDER = (
    "import duckdb, sys, time; con = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "lab.duckdb"


def held():
    raise DatabaseHeld("It is held by another process (PID 12): close it, or choose another file.")


def test_a_lab_that_is_starting_is_waited_for(path):
    owners = []
    with Database(path):
        later = threading.Timer(
            1.0, lambda: owners.append(Owner(path, {"double": lambda number: 2 * number}))
        )
        later.start()
        assert open_or_ask(path, held, lambda: ask(path, "double", number=21)) == 42
        later.join()
        owners[0].close()


def test_a_lab_that_ended_meanwhile_leaves_the_file_to_us(path):
    answers = [held, lambda: "opened"]
    with Database(path):
        assert open_or_ask(path, lambda: answers.pop(0)(), lambda: ask(path, "runs")) == "opened"


def test_a_lab_that_never_answers_is_named_and_nobody_is_told_to_end_it_while_it_starts(path, monkeypatch):
    monkeypatch.setattr(reach, "STARTING_SECONDS", 0.5)
    with Database(path), pytest.raises(DatabaseHeld, match=r"PID 12.* if it is still starting, wait\.$"):
        open_or_ask(path, held, lambda: ask(path, "runs"))


@pytest.mark.parametrize("command", [("runs",), ("show", "last"), ("window",), ("run", "--tokens", "4")])
def test_a_process_that_is_no_lab_is_named(path, command):
    other = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        result = avlab(*command)
        assert result.returncode == 1 and f"(PID {other.pid})" in one_sentence(result)
    finally:
        other.kill()
        other.wait()


def test_two_runs_at_once_do_not_end_each_other(path):
    command = [*STAND_IN, "run", "--tokens", "1000000"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not path.with_name("lab.duckdb.lock").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    second = avlab("run", "--tokens", "4")
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=120)
    assert first.returncode == 130 and "stopped" in out, err
    assert f"(PID {first.pid}) that serves one run and ends" in one_sentence(second)


def test_a_guest_can_stop_a_worker_at_once(path):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        lab.run({"target": "deaf"})
        while lab.progress()["status"]["state"] != "serving":
            time.sleep(0.05)
        began = time.monotonic()
        ask(path, "stop")
        ask(path, "stop", at_once=True)
        assert lab.supervisor.wait(12), "it waited as long as for a worker that is given time"
        assert time.monotonic() - began < 12 and "was ended" in lab.supervisor.status().error
