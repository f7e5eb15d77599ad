"""A replay is a worker like the others: recorded by a lab, on the emulated machine's clock, without torch."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replay_runs import replayed, serve, serving, small_trace
from serving_loop import Wire, until

from avlab.config import ConfigError
from avlab.kinds.registry import make_config
from avlab.kinds.replay import ReplayConfig
from avlab.policies.arm import DEFAULT_ARM
from avlab.wire import commands, frames


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return small_trace(tmp_path_factory.mktemp("trace"))


def test_a_lab_records_a_replay_and_shows_it(tmp_path, trace):
    _, show = replayed(tmp_path / "lab.duckdb", trace, duration=3.0)
    assert (show["kind"], show["state"], show["policy"]) == ("replay", "finished", DEFAULT_ARM)
    assert show["duration_s"] == pytest.approx(3.0, abs=0.1) and show["steps"] > 100
    assert show["ledger_ms"]["report"] == show["ledger_ms"]["idle"] == 0
    assert show["tokens_per_s"] == pytest.approx(show["tokens"] / show["duration_s"], rel=0.05)
    assert show["refits"] and show["auc"] is not None and show["positions"][0]["labelled"]


def test_the_worker_does_not_import_torch():
    code = "import sys, avlab.workers.replay; print(sorted(m for m in sys.modules if m.split('.')[0] == 'torch'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_seed_gives_one_row_for_row_same_run(trace):
    def rows(seed):
        wire, reason = serve(trace, duration=1.0, seed=seed)
        assert reason == "done"
        told = (frames.Block, frames.Refit, frames.Calibration, frames.RequestDone, frames.Drafts)
        return repr(wire.steps), repr([frame for frame in wire.frames if isinstance(frame, told)])

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_latencies_and_ends_are_on_the_machines_clock(trace):
    wire, _ = serve(trace, duration=2.0, arrival="poisson:40")
    done = [request for request in wire.of(frames.RequestDone) if request.finish != "cancelled"]
    assert len(done) > 20
    for request in done:
        assert request.arrival <= request.admitted < request.first_token <= request.last_token <= 2.2
        assert request.output_tokens == request.steps + request.drafts_accepted or request.finish == "end"
    assert {step.time for step in wire.steps} >= {request.last_token for request in done}


def test_policy_and_workload_change_and_an_ab_runs(trace):
    wire = Wire()
    wire.orders += [
        (0, commands.SetPolicy("fixed:2")),
        (0, commands.SetWorkload("nonsense", "closed:2")),
        (0, commands.SetWorkload("code", "closed:2")),
        (0, commands.Window(10)),
        (0, commands.Generate([{"role": "user", "content": "hello"}], 5)),
        (
            0,
            commands.Experiment(
                ["adaptive", "fixed:1"], "fixed:1", 4, 3, length=0.2, unit="seconds", learn=5
            ),
        ),
    ]
    wire, reason = serve(trace, wire, duration=None)
    assert reason == "done"
    refused = {event.kind: event.text for event in wire.of(frames.Event) if event.level == "warning"}
    assert "there is no workload named 'nonsense'" in refused["workload"] and "code" in refused["workload"]
    assert (
        "need the lab's own engine" in refused["window"]
        and "need the lab's own engine" in refused["playground"]
    )
    assert sum(done.kept for done in wire.of(frames.RoundDone)) == 4
    for block in [each for each in wire.of(frames.Block) if each.round is not None and each.kind == "serve"]:
        times = [step.time for step in wire.steps if step.block == block.block]
        assert 0.2 <= times[-1] - block.time < 0.2 + 0.05  # a step more at most


def test_a_pause_holds_the_machines_clock(trace):
    wire = Wire()
    wire.orders += [(0, commands.Pause())]
    with serving(trace, wire, duration=5.0) as order:
        until(lambda: order.state == "paused")
        before = order.clock()
        time.sleep(0.2)
        assert order.clock() == before
        wire.orders += [(0, commands.Resume())]
    assert before < 5.0 <= order.clock() < 5.1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"machine": "b400"}, "There is no machine 'b400'"),
        ({"trace": "mine"}, "There is no trace 'mine'"),
        ({"trace": "/nowhere.parquet"}, "cannot be read"),
        ({"pace": "soon"}, "it must be machine, fast, or a factor"),
        ({"pace": "nan"}, "it must be machine, fast, or a factor"),
        ({"policy": "fixed:30"}, "fixed:30"),
        ({"workload": "file:mine.jsonl"}, "a replay serves the texts of its trace"),
        ({"requests_at_once": 1024}, "serves 256 at most"),
        ({"temperature": 1.0}, "there is no setting 'temperature'"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_a_sentence(values, said):
    with pytest.raises(ConfigError) as refused:
        make_config(values, "replay")
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_paces():
    assert ReplayConfig.make(pace="machine").speed == 1.0
    assert ReplayConfig.make(pace="fast").speed is None
    assert ReplayConfig.make(pace="10x").speed == 10.0 and ReplayConfig.make(pace="10x").pace == "10"


def test_a_run_says_what_of_it_is_emulated(trace):
    wire, _ = serve(trace, duration=3.0)
    (hello,) = wire.of(frames.Hello)
    assert hello.machine["emulated"].startswith(
        "emulated: B300 × 4, DeepSeek-V4-Flash's costs, made up's text at"
    )
    recorded = hello.machine["trace"]
    assert recorded["target"] == "made up" and recorded["K"] == 3
    assert recorded["sha256"] == hashlib.sha256(Path(recorded["name"]).read_bytes()).hexdigest()
    assert (hello.config["temperature"], hello.config["policy"], hello.target) == (
        1.0,
        DEFAULT_ARM,
        "made up",
    )
    assert any("times on average" in event.text for event in wire.of(frames.Event))
