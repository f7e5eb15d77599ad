"""The command line: answers on standard output, one sentence and a code for what goes wrong, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
import typer.main
from command_line import STAND_IN, avlab, one_sentence
from places import ROOT, SUPPORT

from avlab.commands.cli import app
from avlab.commands.following import began
from avlab.config import RunConfig
from avlab.kinds.replay import ReplayConfig
from avlab.lab.lab import Lab
from avlab.lab.owner import OwnerError, ask

REAL = (sys.executable, "-m", "avlab")
SHOWN = {
    "run_id", "policy", "tokens_per_s", "tokens_per_s_per_user", "tokens_per_step", "slope", "intercepts", "refits",
    "positions", "ece", "log_loss", "brier", "auc", "raw_ece", "ledger_ms",
}  # fmt: skip


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "lab.duckdb"


COMMANDS = typer.main.get_command(app).commands


def test_run_has_an_option_for_every_setting():
    names = {parameter.name for parameter in COMMANDS["run"].params}
    assert names == {*RunConfig.model_fields, *ReplayConfig.model_fields, "prompts", "concurrency", "as_json"}


def test_the_command_line_needs_no_torch():
    code = "import sys, avlab.commands.cli; sys.exit('torch' in sys.modules or 'duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_run_then_ask(path, tmp_path):
    ran = avlab("run", "--tokens", "40", "--policy", "fixed:2", "--json")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert set(summary) >= SHOWN
    assert (summary["policy"], summary["state"], summary["tokens"]) == ("fixed:2", "finished", 40)
    assert {"scheduled", "admitted", "accepted", "labelled", "conditional_acceptance"} <= set(
        summary["positions"][0]
    )
    assert {"ece", "log_loss", "brier", "auc"} <= set(summary["positions"][0])
    run = summary["run_id"]

    listed = json.loads(avlab("runs", "--json").stdout)
    assert [each["run_id"] for each in listed["runs"]] == [run] and listed["database"] == str(path)
    assert avlab("runs").stderr == f"Read from {path}.\n"
    shown = json.loads(avlab("show", "last", "--json").stdout)
    assert shown.pop("ledger_ms") == pytest.approx(summary.pop("ledger_ms")) and shown == summary
    assert json.loads(avlab("show", run[:12], "--json").stdout)["run_id"] == run
    assert run in avlab("show", "last").stdout and "tokens/s" in avlab("show", run).stdout
    assert run in avlab("runs").stdout

    exported = avlab("export", "last", str(tmp_path / "out"), "--json")
    assert json.loads(exported.stdout)["folder"] == str(tmp_path / "out")
    assert (tmp_path / "out" / "steps.parquet").is_file()
    assert "is there already" in one_sentence(avlab("export", "last", str(tmp_path / "out")))
    assert "No run answers to 'f00'" in one_sentence(avlab("show", "f00"))
    assert "parquet or csv" in one_sentence(avlab("export", "last", str(tmp_path / "b"), "--form", "xls"))


def test_concurrency_is_the_same_word_in_run_and_ab(path):
    ran = avlab("run", "--tokens", "40", "--concurrency", "3", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["arrival"] == "closed:3"
    told = {name: {each.name for each in COMMANDS[name].params} for name in ("run", "ab", "frontier")}
    assert all("concurrency" in names and "max_num_seqs" in names for names in told.values())


def test_without_json_it_is_for_people(path):
    ran = avlab("run", "--tokens", "40")
    assert ran.returncode == 0 and "throughput" in ran.stdout and "run 0" in ran.stderr


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--policy", "adaptve"], "no policy 'adaptve'"),
        (["--temperature", "-1"], "at least 0"),
        (["--temperature", "hot"], "a number"),
        (["--top-p", "2"], "--top-p is '2'; it must be at most 1."),
        (["--max-new-tokens", "0"], "--max-new-tokens is '0'; it must be at least 1."),
        (["--duration", "-5"], "above 0"),
        (["--arrival", "closed:-3"], "closed:-3"),
        (["--seed", "1.5"], "whole number"),
        (["--workload", "code", "--prompts", "x"], "give one of them"),
        (["--K", "1000"], "at most 32"),
        (["--concurrency", "8", "--arrival", "closed:8"], "--concurrency and --arrival both say"),
        (["--concurrency", "0"], "--concurrency is 0; it must be 1 request or more."),
    ],
)
def test_a_wrong_setting_is_a_sentence_and_code_2(path, options, word):
    result = avlab("run", *options, "--json")
    assert result.returncode == 2 and word in one_sentence(result)
    assert not path.exists()


@pytest.mark.parametrize("command", ["run", "ab", "frontier"])
@pytest.mark.parametrize(
    ("option", "content", "word"),
    [
        ("--workload", "painting", "no workload named 'painting'"),
        ("--workload", "file:", "file: needs a path"),
        ("--prompts", b'{"prompt": 7}\n', "line 1 of given"),
        ("--costs", b"{", "given is not a cost file"),
        ("--costs", b'{"draft": [], "verify": [[1, 1e308]]}', "a cost is 1e+308 ms"),
    ],
)
def test_what_can_be_known_is_found_before_a_worker_or_a_database_is_there(
    path, tmp_path, command, option, content, word
):
    value = content
    if isinstance(content, bytes):
        (tmp_path / "given").write_bytes(content)
        value = str(tmp_path / "given")
    result = avlab(command, option, value)
    assert result.returncode == 2 and word in one_sentence(result)
    assert not path.exists() and "run 0" not in result.stderr


def test_an_unknown_option_or_command_is_code_2(path):
    assert avlab("run", "--colour", "red").returncode == 2
    assert avlab("paint").returncode == 2
    assert avlab("show").returncode == 2


@pytest.mark.slow
def test_what_the_real_command_finds_before_it_starts_a_worker(path, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": 7}\n')
    result = avlab("run", "--prompts", str(bad), program=REAL)
    assert result.returncode == 2 and "line 1 of bad.jsonl" in one_sentence(result)
    result = avlab("run", "--target", str(tmp_path / "nowhere"), "--json", program=REAL)
    assert result.returncode == 2 and "no model folder" in one_sentence(result)
    assert not path.exists()


@pytest.mark.slow
def test_a_file_that_is_no_database_is_a_sentence(path, tmp_path):
    assert "no database" in one_sentence(avlab("runs"))
    (tmp_path / "text").write_text("hello" * 1000)
    for command in (["runs"], ["run", "--tokens", "4"], ["show", "last"]):
        result = avlab(*command, "--database", str(tmp_path / "text"))
        assert result.returncode == 1 and "not a DuckDB file" in one_sentence(result)
    result = avlab("run", "--database", "/proc/nowhere/lab.duckdb")
    assert result.returncode == 1 and one_sentence(result)


def test_a_worker_that_fails_gives_its_sentence_and_code_1(path):
    result = avlab("run", "--target", "missing", "--json")
    assert result.returncode == 1 and one_sentence(result) == "The target 'missing' is not here: fetch it."
    result = avlab("run", "--target", "failing", "--json")
    assert result.returncode == 1 and json.loads(result.stdout)["state"] == "failed"
    assert "The engine failed: a fault in step 3." in result.stderr and "Traceback" not in result.stderr


def steps_so_far(path):
    try:
        return ask(path, "progress")["tally"]["steps"]
    except OwnerError:
        return 0


def start(path, *options):
    process = subprocess.Popen(
        [*STAND_IN, "run", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    trace = path.with_name(path.name + ".worker")
    end = time.monotonic() + 60
    while not steps_so_far(path) > 5:
        assert time.monotonic() < end
        time.sleep(0.1)
    return process, json.loads(trace.read_text())["pid"]


def test_a_run_stopped_before_its_greeting_is_none(capsys):
    served = SimpleNamespace(run="mine")
    progress = {"status": {"run": "mine", "error": None}, "tally": {"policy": None}}
    assert not began(served, progress) and "nothing is recorded" in capsys.readouterr().err
    assert not began(served, progress | {"status": {"run": "mine", "error": "It failed."}})
    assert began(served, progress | {"tally": {"policy": "none"}})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_in_good_order(path, number):
    process, worker = start(path, "--json")
    process.send_signal(number)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 130 and "Traceback" not in err
    assert json.loads(out)["state"] == "stopped" and json.loads(out)["steps"] > 3
    assert not psutil.pid_exists(worker)
    assert sorted(each.name for each in path.parent.iterdir()) == ["lab.duckdb", "lab.duckdb.lock"]


def test_a_worker_killed_mid_run_is_a_sentence_and_loses_nothing(path):
    process, worker = start(path, "--json")
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1 and "signal 9" in err
    assert json.loads(out)["state"] == "cut short" and json.loads(out)["steps"] > 3


def test_a_reason_is_said_once_and_a_run_is_named_only_where_there_is_one(path):
    process, worker = start(path)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=90)
    assert (out + err).count("signal 9") == 1 and "cut short" in out
    run = json.loads(avlab("runs", "--json").stdout)["runs"][0]["run_id"]
    assert f"run {run}" in err
    assert "run 0" not in avlab("run", "--target", "missing").stderr


@pytest.mark.parametrize("command", [("run",), ("ab",), ("frontier",)])
def test_an_empty_database_name_is_no_default(path, command):
    result = avlab(*command, "--database", "")
    assert result.returncode == 2 and one_sentence(result) == "--database is empty; give a value."
    assert not path.exists()


@pytest.mark.slow
def test_a_held_database_is_asked(path, tmp_path):
    with Lab(
        path, worker_commands={"reference": (sys.executable, str(SUPPORT / "stand_in_worker.py"))}
    ) as lab:
        ran = avlab("run", "--tokens", "40", "--json")
        assert ran.returncode == 0, ran.stderr
        summary = json.loads(ran.stdout)
        assert summary["tokens"] == 40 and "holds" in ran.stderr
        assert json.loads(avlab("show", "last", "--json").stdout)["run_id"] == summary["run_id"]
        assert summary["run_id"] in avlab("runs").stdout
        assert avlab("export", "last", str(tmp_path / "out")).returncode == 0
        assert "No run answers" in one_sentence(avlab("show", "f00"))
        lab.run(RunConfig.make(target="plain"))
        assert "busy with run" in one_sentence(avlab("run", "--tokens", "4"))


def test_fetching_without_a_network_is_a_sentence(path, tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_CACHE", str(tmp_path / "cache"))
    for name, value in (("INDEX_URL", "http://127.0.0.1:9/simple"), ("RETRIES", "0"), ("NO_CACHE_DIR", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    result = avlab("fetch", "--json", program=REAL)
    assert result.returncode == 1 and "could not be downloaded" in result.stderr and result.stdout == ""
