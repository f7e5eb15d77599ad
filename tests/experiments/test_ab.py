"""An A/B end to end, with a worker that needs no model: the command line, the verdict, what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from answers import recorded_plan
from places import ROOT, SUPPORT

from avlab.commands.ab import Watch
from avlab.config import ConfigError, RunConfig
from avlab.experiments.analysis import NoExperiment, analyse
from avlab.experiments.answers import Comparison
from avlab.experiments.plan import make_plan, notes
from avlab.experiments.progress import Pace, progress
from avlab.experiments.values import from_values, to_values
from avlab.experiments.words import RATIO, verdict
from avlab.lab.lab import Lab
from avlab.store.experiment_rows import Round

WORKER = (sys.executable, str(SUPPORT / "stand_in_serving.py"))
CLI = (sys.executable, str(SUPPORT / "stand_in_cli.py"))
ROUNDS = 20
QUICK = {"rounds": ROUNDS, "block": "6steps", "washout": 1, "learn": 30, "concurrency": 16, "order_seed": 7}


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("AVLAB_STAND_IN", "serving")
    return tmp_path / "lab.duckdb"


@pytest.fixture
def simulated(monkeypatch):
    """Time passes on the workers' clocks alone."""
    monkeypatch.setenv("AVLAB_SIMULATED_TIME", "1")


def plan(arms="adaptive,fixed:5,none", config=None, **changes):
    return make_plan(
        RunConfig.make(policy="none", max_num_seqs=16, **(config or {})), arms.split(","), **(QUICK | changes)
    )


def conduct(path, arms="adaptive,fixed:5,none", **changes):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        run = lab.run(*plan(arms, {"workload": "verse"}, **changes))
        assert lab.supervisor.wait(120), lab.supervisor.log_tail()
        assert not lab.supervisor.status().error, lab.supervisor.status().error
        return run, lab.ab(run, ("p95_tpot_ms", 1000.0)), lab.show(run)


@pytest.mark.parametrize("design", ["switchback", "isolated"])
def test_an_ab_from_plan_to_verdict(path, simulated, design):
    run, answer, summary = conduct(path, design=design)
    assert (answer.run_id, answer.state, answer.rounds, answer.dropped) == (
        run,
        "finished",
        ROUNDS,
        [],
    )
    assert (answer.plan.baseline, answer.plan.seed) == ("fixed:5", 7)
    assert answer.seconds_a_round > 0
    by_arm = {result.arm: result for result in answer.results}
    assert set(by_arm) == {"adaptive", "none"}
    # five drafts of verse for each of sixteen requests cost this worker twice what they bring
    for result in by_arm.values():
        assert result.declared and result.rounds == ROUNDS and 1 < result.low < result.ratio < result.high
        assert "faster than fixed:5 at 16 requests." in verdict(result, answer.plan)
    ledger = {arm: seen.ledger for arm, seen in answer.arms.items()}
    assert ledger["none"].draft_ms == ledger["none"].scheduled == ledger["fixed:5"].saved_ms == 0
    assert ledger["adaptive"].saved_ms > 0
    for arm, entry in ledger.items():
        assert entry.scheduled == pytest.approx(entry.accepted + entry.rejected + entry.trimmed), arm
        parts = ("prompt_ms", "draft_ms", "verify_ms", "sample_ms", "decide_ms", "other_ms")
        assert sum(entry.line(part) for part in parts) == pytest.approx(entry.total_ms)
        assert entry.total_ms == pytest.approx(1e6 / answer.arms[arm].tokens_per_s)
        seen = answer.arms[arm]
        assert 0 < seen.p50_tpot_ms <= seen.p95_tpot_ms
        assert seen.interactivity == pytest.approx(1e3 / seen.p50_tpot_ms, rel=0.5)
    assert answer.slo.arm == max(answer.arms, key=lambda arm: answer.arms[arm].tokens_per_s)
    assert summary["state"] == "finished"


def test_the_command_line_prints_the_verdict(path, simulated):
    options = [
        "ab",
        "--arms",
        "fixed:5,none",
        "--concurrency",
        "16",
        "--rounds",
        str(ROUNDS),
        "--block",
        "6steps",
    ]
    options += ["--max-num-seqs", "16", "--workload", "verse"]
    ran = subprocess.run([*CLI, *options, "--json"], capture_output=True, text=True, check=False, timeout=180)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    (result,) = answer["results"]
    assert {"arm", "ratio", "low", "high", "rounds", "declared"} <= set(result)
    assert (result["arm"], result["rounds"], result["declared"]) == ("none", ROUNDS, True)
    assert answer["arms"]["none"]["ledger"]["verify_ms"] > 0
    shown = subprocess.run([*CLI, *options], capture_output=True, text=True, check=False, timeout=180)
    assert "faster than fixed:5 at 16 requests." in shown.stdout and "verification, ms" in shown.stdout
    assert f"{ROUNDS} of {ROUNDS} rounds" in shown.stdout
    verdict, ledger = shown.stdout.partition("\n\n")[0], shown.stdout.partition("per 1,000 output tokens")[2]
    later = subprocess.run([*CLI, "show", "last"], capture_output=True, text=True, check=False, timeout=60)
    assert later.returncode == 0 and "A/B of fixed:5, none, all arms together" in later.stdout, later.stderr
    assert verdict in later.stdout and ledger in later.stdout
    plain = subprocess.run(
        [*CLI, "show", "last", "--json"], capture_output=True, text=True, check=False, timeout=60
    )
    again = json.loads(plain.stdout)
    assert again["ab"]["results"][0]["declared"] and again["frontier"] is None


def test_the_command_line_says_before_and_after_that_rounds_are_too_few(path, simulated):
    options = [
        "--arms",
        "fixed:5,none",
        "--rounds",
        "2",
        "--block",
        "6steps",
        "--washout",
        "1",
        "--max-num-seqs",
        "16",
    ]
    ran = subprocess.run([*CLI, "ab", *options], capture_output=True, text=True, check=False, timeout=180)
    assert ran.returncode == 0, ran.stderr
    assert "With 2 rounds there is no interval and no verdict: at least 7 are needed." in ran.stderr
    assert "too few rounds for an interval (2 of at least 7)" in ran.stdout
    assert RATIO in ran.stdout and "2 of 2 rounds of blocks of 6 steps" in ran.stdout


def test_identical_arms_are_compared_and_not_declared(path, simulated):
    _, answer, _ = conduct(path, "fixed:2,fixed:2")
    (result,) = answer.results
    assert (result.arm, result.declared) == ("fixed:2#2", False)
    assert not any("best fixed length" in sentence for sentence in answer.verdicts)


def test_a_worker_that_dies_leaves_the_rounds_before(path):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        run = lab.run(*plan(rounds=500))
        deadline = time.monotonic() + 60
        while lab.tally.snapshot()["steps"] < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
        worker = psutil.Process(lab.supervisor.status().pid)
        os.kill(worker.pid, signal.SIGKILL)
        assert lab.supervisor.wait(60)
        answer = lab.ab(run)
    assert answer.state == "cut short" and 0 < answer.rounds < 500
    (dropped,) = answer.dropped
    assert dropped.reason == "the worker went away in the middle of it"
    assert answer.verdicts[-2] == f"The A/B was cut short after {answer.rounds} of 500 rounds."
    assert answer.verdicts[-1] == f"Left out: round {dropped.round + 1} ({dropped.reason})."
    assert all(result.rounds == answer.rounds for result in answer.results)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_the_command_line_says_what_it_knew_when_a_worker_died(path):
    options = ["ab", "--arms", "fixed:5,none", "--rounds", "500", "--block", "6steps", "--max-num-seqs", "16"]
    command = subprocess.Popen([*CLI, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = ""
    while " of 500 rounds" not in said:
        line = command.stderr.readline()
        assert line, said
        said += line
    for worker in psutil.Process(command.pid).children():
        worker.kill()
    answer, rest = command.communicate(timeout=120)
    assert command.returncode == 1 and "was killed by signal 9" in rest and "cut short" in rest
    assert "none against fixed:5" in answer or "none is " in answer
    assert "The A/B was cut short after" in answer and "(the worker went away in the middle of it)" in answer


def test_a_second_experiment_is_refused_while_one_runs(path):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        lab.run(*plan(rounds=500))
        with pytest.raises(Exception, match=r"A worker is busy with run .*: stop that one first"):
            lab.run(*plan())
        ran = subprocess.run([*CLI, "ab"], capture_output=True, text=True, check=False, timeout=180)
        assert ran.returncode == 1 and "A worker is busy" in ran.stderr and not ran.stdout
        lab.stop()


def test_a_run_without_an_ab_says_so(path):
    with Lab(path, worker_commands={"reference": WORKER}) as lab:
        run = lab.run({"tokens": 100, "max_num_seqs": 16, "arrival": "closed:4"})
        assert lab.supervisor.wait(60)
        with pytest.raises(NoExperiment, match="has no A/B in it"), lab.database.cursor() as con:
            analyse(con, run)


@pytest.mark.parametrize(
    ("arms", "changes", "sentence"),
    [
        ("adaptive", {}, "needs two arms or more, and there is only adaptive"),
        ("", {}, "needs arms: name two or more"),
        ("adaptive,fixed:9", {}, "'fixed:9' asks for 9 draft tokens; the drafter makes K = 7"),
        ("adaptive,best", {}, "there is no policy 'best'"),
        ("adaptive,none", {"block": "4steps", "washout": 4}, "no longer than its wash-out of 4 steps"),
        ("adaptive,none", {"block": "0.1s", "washout": 4}, "no longer than its wash-out"),
        (
            "adaptive,none",
            {"block": "1steps", "washout": 1},
            "of 1 step is no longer than its wash-out of 1 step:",
        ),
        ("adaptive,none", {"block": "soon"}, "'soon' is no length"),
        ("adaptive,none", {"baseline": "fixed:3"}, "fixed:3 is not among the arms"),
        ("adaptive,none", {"concurrency": 99}, "at most max_num_seqs, 16: lower it, or raise max_num_seqs"),
        ("adaptive,none", {"concurrency": 0}, r"concurrency is 0; it must be 1 request or more\.$"),
        ("adaptive,none", {"rounds": 0}, "rounds is 0"),
        ("adaptive,none", {"washout": 0}, "washout is below 1"),
        ("adaptive,none", {"order_seed": -1}, "order-seed is -1"),
        (
            "adaptive:head,none",
            {"config": {"head": False}},
            "adaptive:head needs the drafter's confidence head",
        ),
        ("adaptive,none", {"design": "latin"}, "choose switchback or isolated"),
        ("adaptive,none", {"config": {"drafter": "none"}}, "needs a drafter"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_a_sentence(arms, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        plan(arms, **changes)


def test_what_a_plan_cannot_do_is_said_before_it_is_served():
    assert notes(plan(rounds=7)[1]) == []
    assert notes(plan(rounds=2)[1]) == [
        "With 2 rounds there is no interval and no verdict: at least 7 are needed."
    ]
    assert "With 1 round there is no interval" in notes(plan(rounds=1)[1])[0]
    with pytest.raises(
        ConfigError, match=r"50 steps, some 2\.5 s at 50 ms a step \(a guess\): .* give it in steps"
    ):
        plan(block="2s", washout=50)
    assert notes(plan(block="3s", washout=50)[1]) == []


def test_every_ab_draws_an_order_of_its_own_unless_one_is_asked_for():
    assert len({plan(order_seed=None)[1].seed for _ in range(5)}) == 5
    assert plan(order_seed=11)[1].seed == plan(config={"seed": 5}, order_seed=11)[1].seed == 11


def test_the_baseline_is_the_first_fixed_length_unless_named():
    assert plan("none,adaptive,fixed:3,fixed:5")[1].baseline == "fixed:3"
    assert plan("adaptive,none")[1].baseline == "none"
    assert plan("adaptive,adaptive:raw")[1].baseline == "adaptive"
    assert plan("adaptive,none", baseline="adaptive:online")[1].baseline == "adaptive"
    assert plan("fixed:2,fixed:2", baseline="fixed:2#2")[1].arms == ["fixed:2", "fixed:2#2"]


def test_verdicts_say_the_unit_and_what_is_not_known():
    terms = recorded_plan(concurrency=32)
    result = Comparison(arm="adaptive", ratio=1.12, low=1.08, high=1.16, rounds=30)
    result = replace(result, rounds_to_2_percent=80, minutes_to_2_percent=12.3)
    assert verdict(result, terms) == "adaptive is 12 % [8.0, 16] faster than fixed:5 at 32 requests."
    slower = replace(result, ratio=0.9, low=0.8, high=0.95)
    assert verdict(slower, terms) == "adaptive is 10 % [5.0, 20] slower than fixed:5 at 32 requests."
    open_ = replace(result, ratio=1.01, low=0.98, high=1.04)
    assert (
        "no difference declared after 30 rounds: it is between −2.0 and +4.0 %; ± 2 % needs about 80 "
        "rounds, 12 min in all." in verdict(open_, terms)
    )
    assert "too few rounds" in verdict(replace(result, low=None, high=None), terms)
    assert "the ratio changed" in verdict(replace(result, moved=True), terms)
    assert from_values(Comparison, to_values(result)) == result


def test_watching_an_experiment_takes_little_of_its_time():
    now, asked = [100.0], []

    def ask():
        asked.append(now[0])
        now[0] += 0.3  # a long experiment takes long to analyse
        return {"rounds": len(asked)}

    watch = Watch(ask, lambda: now[0])
    while now[0] < 200.0:
        assert watch()["rounds"] == len(asked)
        now[0] += 0.5
    assert len(asked) == 7 and 0.3 * len(asked) < 0.025 * 100.0


def test_how_long_it_takes_is_told_from_the_parts_that_are_done():
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace(0, 30) == ""
    now[0] = 50.0  # learning came first, and does not count
    assert pace(1, 30) == ""
    now[0] = 60.0
    assert pace(2, 30) == ", about 5 min to go"
    now[0] = 160.0
    assert pace(2, 30) == ", about 3 min to go"
    now[0] = 290.0
    assert pace(26, 30) == ", about 38 s to go"
    assert pace(30, 30) == ""


def test_progress_counts_steps_from_the_first_one_of_learning():
    plan = recorded_plan(
        ["adaptive", "fixed:5"], rounds=10, learn=100, length=20.0, washout=5, design="switchback"
    )
    learning = progress(plan, [], 39)
    assert learning.text == "Learning, before the first round: 40 of 100 steps"
    assert (learning.done, learning.total) == (40, 100 + 10 * 50)
    first = progress(plan, [], 119)
    assert first.text == "0 of 10 rounds" and first.done == 120
    over = [Round(0, True, "", 5.0, 149), Round(1, False, "paused", 9.0, 170)]
    later = progress(plan, over, 180)
    assert later.text == "1 of 10 rounds, 1 dropped" and later.done == 160
    seconds = progress(recorded_plan(["adaptive", "fixed:5"], rounds=10, unit="seconds"), over, 180)
    assert (seconds.done, seconds.total) == (1, 10)


@pytest.mark.model
@pytest.mark.slow
def test_an_ab_with_the_real_engine(tmp_path):
    config = RunConfig.make(
        policy="none",
        max_num_seqs=4,
        max_model_len=512,
        threads=1,
        workload="code",
        database=str(tmp_path / "a"),
    )
    small = {"concurrency": 2, "rounds": 2, "block": "5steps", "washout": 2, "learn": 5}
    with Lab(tmp_path / "lab.duckdb") as lab:
        run = lab.run(*make_plan(config, ["adaptive", "fixed:2", "none"], **small))
        assert lab.supervisor.wait(300), lab.supervisor.log_tail()
        assert not lab.supervisor.status().error, lab.supervisor.status().error
        answer = lab.ab(run)
    assert answer.rounds == 2 and all(result.rounds == 2 for result in answer.results)
    assert answer.arms["fixed:2"].ledger.draft_ms > 0
