"""Changes of a run that is served: what a worker does not do is said where it was asked for."""

import subprocess
import sys

import pytest
from dashboard import opened, page, said, steps_of, until
from places import ROOT, SUPPORT

from avlab.config import RunConfig
from avlab.experiments.plan import make_plan
from avlab.lab.supervisor import WorkerError
from avlab.wire.commands import Generate, SetPolicy, SetWorkload

CLI = (sys.executable, str(SUPPORT / "stand_in_cli.py"))
PLAN = "An A/B or a frontier is running, and its plan decides what is served: stop it first."


def buttons(app):
    return [button.label for button in app.button]


def test_an_ab_is_not_disturbed_and_says_so_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "lab.duckdb"
    with opened(path) as lab:
        config = RunConfig.make(policy="none", max_num_seqs=16, workload="verse")
        lab.run(*make_plan(config, ["fixed:2", "none"], concurrency=4, rounds=500, block="6steps", washout=1))
        until(lambda: steps_of(lab) > 20)
        for command in (SetPolicy("none"), SetWorkload("code", "closed:4")):
            with pytest.raises(WorkerError) as refused:
                lab.change(command)
            assert str(refused.value) == PLAN
        with pytest.raises(WorkerError, match="its plan decides"):
            lab.generate(Generate([{"role": "user", "content": "Hello"}], 4))
        asked = subprocess.run(
            [*CLI, "window", "--steps", "50", "--database", str(path)],
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        assert (asked.returncode, asked.stdout, asked.stderr) == (1, "", PLAN + "\n")
        app = page("live")
        assert "An experiment decides policy and workload: stop it to change them." in said(app)
        assert "Switch policy" not in buttons(app)
        lab.stop()


def test_what_a_worker_refuses_is_said_where_it_was_asked_for(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        lab.run({"workload": "code", "K": 4, "max_new_tokens": 40, "arrival": "closed:4"})
        until(lambda: steps_of(lab) > 20)
        app = page("live")
        assert app.selectbox(key="change-arrival").value == "closed:4"
        assert app.selectbox(key="change-workload").value == "code"
        with pytest.raises(WorkerError, match=r"The policy stays as it was: .* K = 4\."):
            lab.change(SetPolicy("fixed:9"))
        lab.change(SetPolicy("fixed:2"))
        lab.window(100_000)
        with pytest.raises(WorkerError, match="A window of full verification is running"):
            lab.window(5)
        lab.change(SetWorkload("verse", "closed:2"))
        assert lab.traffic == ("verse", "closed:2")
        app = page("live")
        app.selectbox(key="change-policy").set_value("fixed:7")
        next(button for button in app.button if button.label == "Switch policy").click().run()
        assert "The policy stays as it was" in app.session_state["refused"]  # which the sidebar shows
        lab.traffic = "file:own.jsonl", ""  # with the file's own arrival times
        assert page("live").selectbox(key="change-arrival").value is None
        lab.stop()


def test_a_change_of_a_run_that_ends_meanwhile_is_not_taken_for_done(tmp_path, monkeypatch):
    with opened(tmp_path / "lab.duckdb") as lab:
        lab.run({"workload": "code", "K": 4, "max_new_tokens": 40, "arrival": "closed:4"})
        until(lambda: steps_of(lab) > 20)
        monkeypatch.setattr(lab.supervisor, "send", lambda command: lab.stop())
        with pytest.raises(WorkerError, match="The run ended before its worker could do that"):
            lab.change(SetWorkload("verse", "closed:2"))
        assert lab.traffic == ("code", "closed:4")
