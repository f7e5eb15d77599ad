"""A run that a lab serves for another process: what that process says where the lab ends before the run does."""

import json
import signal
import subprocess
import sys
import time

import pytest
from dashboard import until
from places import ROOT, SUPPORT

from avlab.config import RunConfig
from avlab.lab import remote as lab_remote
from avlab.lab.lab import Lab
from avlab.lab.owner import OwnerClosed, OwnerSilent, ask
from avlab.store import queries

WORKER = (sys.executable, str(SUPPORT / "stand_in_serving.py"))
CLI = (sys.executable, str(SUPPORT / "stand_in_cli.py"))
QUICK = (
    "--arms",
    "fixed:5,none",
    "--block",
    "6steps",
    "--washout",
    "1",
    "--max-num-seqs",
    "16",
    "--concurrency",
    "4",
)
LAB = (
    "import sys, time; from avlab.lab.lab import Lab; "
    "lab = Lab(sys.argv[1], worker_commands={'reference': sys.argv[2:]}); "
    "print('open', flush=True); time.sleep(600)"
)
SLEEPER = (
    "import sys, time; from avlab.lab.owner import Owner; "
    "owner = Owner(sys.argv[1], {'slow': lambda: print('asked', flush=True) or time.sleep(600)}); "
    "print('open', flush=True); time.sleep(600)"
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("AVLAB_STAND_IN", "serving")
    return tmp_path / "lab.duckdb"


def started(*command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rounds(lab):
    with lab.database.cursor() as con:
        run = lab.supervisor.status().run
        return len(queries.rounds(con, run)) if run else 0


def sentences(stderr):
    return [line for line in stderr.splitlines() if "has ended" in line]


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (("ab", "--rounds", "500", *QUICK), "none"),
        (("frontier", "--repeats", "100", *QUICK), "on the frontier"),
    ],
)
def test_a_lab_that_ends_leaves_its_guest_the_result_so_far(path, options, answer):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        command = started(*CLI, *options)
        until(lambda: rounds(lab) >= 2)
        run = lab.supervisor.status().run
    out, err = command.communicate(timeout=120)
    assert command.returncode == 1 and answer in out and "Traceback" not in err
    assert sentences(err) == [
        f"The lab that served run {run} has ended, and the run is stopped: `avlab show {run}` has it."
    ]
    assert ("the same command goes on from here" in err) == (options[0] == "frontier")


def test_json_and_a_run_without_an_experiment(path):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        command = started(*CLI, "run", "--duration", "forever", "--json", "--database", str(path))
        until(lambda: lab.tally.snapshot()["steps"] > 20)
    out, err = command.communicate(timeout=120)
    summary = json.loads(out)
    assert command.returncode == 1 and summary["state"] == "stopped" and summary["tokens"] > 0
    assert len(sentences(err)) == 1 and f"`avlab show {summary['run_id']}` has it." in err


def test_a_lab_that_is_killed_leaves_its_guest_what_was_recorded(path):
    lab = started(sys.executable, "-c", LAB, str(path), *WORKER)
    assert lab.stdout.readline() == "open\n"
    command = started(*CLI, "ab", "--rounds", "500", *QUICK)
    try:
        until(lambda: ask(path, "progress")["tally"]["steps"] > 100)
    finally:
        lab.send_signal(signal.SIGKILL)
        lab.wait()
    out, err = command.communicate(timeout=120)
    assert command.returncode == 1 and "none" in out
    assert len(sentences(err)) == 1 and "and the run is cut short: `avlab show " in err


def test_a_run_that_had_not_begun_is_none(path):
    with Lab(
        path, worker_commands={"reference": (sys.executable, str(SUPPORT / "stand_in_worker.py"))}
    ) as lab:
        command = started(*CLI, "run", "--target", "slow to start")
        until(lambda: lab.supervisor.status().alive)
        time.sleep(1.0)
    out, err = command.communicate(timeout=120)
    assert command.returncode == 1 and out == ""
    assert len(sentences(err)) == 1 and "nothing of the run can be found" in err


def test_a_lab_that_was_only_silent_for_a_while_is_followed_on(path, monkeypatch):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        run = lab.run(RunConfig.make(max_num_seqs=16))
        until(lambda: lab.supervisor.status().state == "serving")
        remote = object.__new__(lab_remote.Remote)
        remote.database, remote.run, remote._end, remote._tally = str(path), run, None, {"policy": "adaptive"}
        asked, said, real = [], [], ask
        remote._say = said.append

        def silent_at_first(database, what, **more):
            asked.append(what)
            if len(asked) == 1:
                raise OwnerSilent("No lab answers.")
            return real(database, what, **more)

        monkeypatch.setattr(lab_remote.owner, "ask", silent_at_first)
        assert remote.progress()["status"]["state"] == "serving"
        assert said == ["The lab that serves this run does not answer: looking for what it has recorded."]
        lab.stop()


def test_an_owner_that_is_killed_is_not_waited_for(path):
    owner = started(sys.executable, "-c", SLEEPER, str(path))
    assert owner.stdout.readline() == "open\n"
    killer = started(
        sys.executable,
        "-c",
        "import os, sys, time; time.sleep(2); os.kill(int(sys.argv[1]), 9)",
        str(owner.pid),
    )
    began = time.monotonic()
    with pytest.raises(OwnerClosed, match="closed before it could answer"):
        ask(path, "slow")
    assert time.monotonic() - began < 60
    assert owner.stdout.readline() == "asked\n" and killer.wait(30) == 0 and owner.wait(30) == -9
