"""What the lab makes of vLLM's answers, without vLLM: configuration, records as frames, the serving loop's reporter."""

import math
import time
from types import SimpleNamespace

import pytest
from vllm_records import ABOUT, K, record

from avlab.config import ConfigError
from avlab.engine.request import Finished
from avlab.experiments.plan import make_plan, steps_ahead
from avlab.kinds.registry import command_of, make_config
from avlab.kinds.vllm import VLLM_PYTHON
from avlab.policies.arm import Arm, PolicyError
from avlab.vllm import engine, memory
from avlab.vllm.drained import Drained
from avlab.vllm.engine import Report, VllmEngine, _look_for_folders
from avlab.vllm.instance import EngineError, Instance, Iteration, first_line, start_sentence
from avlab.vllm.reporting import VllmReporter
from avlab.vllm.serving_config import VllmConfig
from avlab.wire import frames as fr
from avlab.workers.experiment import Conductor

FIXED = f"vllm serve m --speculative-config.method ngram --speculative-config.num_speculative_tokens {K}"
ADAPTIVE = f"{FIXED} --speculative-config.enable_adaptive_verification true --max-num-seqs 8"


def test_a_configuration_is_what_the_command_says():
    config = VllmConfig.make(serve=FIXED)
    assert (config.K, str(config.arm), config.max_num_seqs, config.has_drafter) == (K, "fixed:3", 256, True)
    adaptive = make_config({"serve": ADAPTIVE, "policy": "verify:2"}, "vllm")
    assert (adaptive.adaptive, str(adaptive.arm), str(adaptive.own_arm), adaptive.max_num_seqs) == (
        True, "verify:2", "adaptive", 8,
    )  # fmt: skip
    assert str(VllmConfig.make(serve="m").arm) == "none"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"serve": "vllm serve"}, "names no model"),
        ({"serve": "HF_TOKEN=x vllm serve m"}, "would be recorded"),
        ({"serve": "LD_PRELOAD=x vllm serve m"}, "no variable of vLLM's"),
        ({"serve": "m --api-key x"}, "would be recorded"),
        ({"serve": "m --worker-extension-cls a.B"}, "lab's own"),
        ({"serve": "m -dp 2"}, "several engines"),
        ({"serve": "m 'x"}, "check its quotes"),
        ({"serve": FIXED, "policy": "verify:2"}, "needs adaptive verification"),
        ({"serve": FIXED, "policy": "none"}, "--engines"),
        ({"serve": ADAPTIVE, "policy": "fixed:2"}, "verify:k"),
        ({"serve": ADAPTIVE, "policy": "verify:4"}, "K = 3"),
        ({"serve": ADAPTIVE, "policy": "verify:2", "engines": True}, "no engine of this command"),
        ({"serve": FIXED, "workload": "nothing", "arrival": "closed:0"}, "closed"),
    ],
)
def test_what_cannot_be_is_one_sentence(values, said):
    with pytest.raises(ConfigError, match=said) as refused:
        VllmConfig.make(values)
    assert len(refused.value.sentences) == 1


def test_an_engine_for_each_arm_has_a_command_of_its_own():
    config = VllmConfig.make(serve=ADAPTIVE, engines=True, policy="fixed:1")
    one = config.line_of(Arm.parse("fixed:1")).speculative
    assert (one["num_speculative_tokens"], one["enable_adaptive_verification"]) == (1, False)
    assert config.line_of(Arm.parse("none")).speculative == {}
    assert config.line_of(Arm.parse("adaptive")) == config.line
    with pytest.raises(PolicyError):
        config.line_of(Arm.parse("fixed:4"))


def test_an_engine_for_each_block_learns_within_its_wash_out():
    config = VllmConfig.make(serve=ADAPTIVE, engines=True)
    _, plan = make_plan(config, ["adaptive", "none"], concurrency=8, learn=150)
    assert (plan.design, plan.washout, plan.learn) == ("isolated", 150, 0) and plan.length > plan.washout
    assert steps_ahead(plan) == plan.rounds * 2 * (plan.washout + plan.length)
    _, plan = make_plan(config, ["fixed:2", "none"], concurrency=8)
    assert plan.washout == 4
    _, plan = make_plan(config, ["adaptive", "none"], concurrency=8, washout=9, block="20steps")
    assert (plan.washout, plan.length) == (9, 20)


def test_vllms_estimator_learns_before_the_first_round():
    config = VllmConfig.make(serve=ADAPTIVE)
    config, plan = make_plan(config, ["verify:2", "adaptive"], concurrency=2, learn=5, washout=2)
    blocks, nothing = [], lambda *_, **__: None
    server = SimpleNamespace(
        config=config, engine=engine_with(config, ABOUT), report=SimpleNamespace(K=K, block=0),
        order=SimpleNamespace(outbox=SimpleNamespace(put=nothing), clock=lambda: 0.0, event=nothing),
        intake=SimpleNamespace(cancel_all=nothing, serve=nothing, taken=0, first=0),
        begin_block=lambda arm, kind, round, name: blocks.append((name, kind, round)),
    )  # fmt: skip
    conductor = Conductor(plan, server)
    for _ in range(plan.learn - 1):
        conductor.after_step(SimpleNamespace(finished=[], counted=True))
    assert blocks == [("adaptive", "wash-out", None)]
    conductor.after_step(SimpleNamespace(finished=[], counted=True))
    assert blocks[1][1:] == ("wash-out", 0)


def test_vllm_may_live_in_another_environment(monkeypatch):
    monkeypatch.setenv(VLLM_PYTHON, "/somewhere/python")
    assert command_of("vllm") == ("/somewhere/python", "-m", "avlab.workers.vllm")
    assert command_of("reference")[0] != "/somewhere/python"


def test_a_record_is_told_once_and_from_where_reading_began():
    frames = []
    drained = Drained(frames.append, time.monotonic(), temperature=1.0)
    tables = {"cost_tables": [[0.0, 1.0], [0.1, 0.2, 0.3]], "cost_curves": [[[1, 1.0]], [[1, 0.2], [2, 0.3]]]}
    drained.begin(ABOUT, record(range(5), refits=(0, 1), counts=10, **tables), "adaptive", 0)
    costs, cold = frames
    assert costs.draft_table == [[0.0] + [0.0] * K, [0.0] + [1.0] * K] and costs.draft_samples == [
        (1, K, 1.0)
    ]
    assert (cold.refit, cold.step) == (1, 0)
    frames.clear()
    found = record(range(3, 8), refits=(1, 2), counts=16)
    steps = drained.take(found, lambda step: int(step > 1), lambda step: "adaptive", waiting=4)
    assert [step.step for step in steps] == [0, 1, 2]  # five to seven: those before were the engine's warm-up
    assert [step.block for step in steps] == [0, 0, 1] and steps[0].waiting == 4
    assert steps[0].admitted == (2, 1, 0) and steps[0].budget == 3
    refit, calibration = frames
    assert (refit.refit, refit.step, refit.counts) == (2, 2, [5] * K)
    assert (calibration.count, calibration.positives, calibration.sum_p) == ([6], [3], [3.0])
    frames.clear()
    assert drained.take(found, lambda step: 0, lambda step: "adaptive", 0) == [] and frames == []


def test_a_step_s_time_is_its_own_clock_s_less_the_offset_that_the_reader_took():
    began = time.monotonic()
    drained = Drained(lambda _: None, began)
    drained.begin(ABOUT | {"clock": began - 7.0, "offset": 500.0}, record(()), "adaptive", 0)
    found = record(range(1))
    (step,) = drained.take(found, lambda _: 0, lambda _: "adaptive", 0)
    told = found["steps"][0][found["step_fields"].index("time")]
    assert step.time == pytest.approx(told - 500.0 - began)


def engine_with(config, about, begun=None):
    engine = VllmEngine(config)
    engine.instance.about, engine.opened, engine.instance.begun = about, 1, begun
    engine.drain = lambda: None
    engine.instance.cancel = lambda request: None
    return engine


def test_statistics_alone_make_steps_where_verification_is_fixed():
    frames, engine = [], engine_with(VllmConfig.make(serve=FIXED), ABOUT | {"steps": False})
    reporter = VllmReporter(frames.append, lambda: 1.0, engine)
    reporter.begin_block(engine.policy.arm, "serve", 0, "mixed")
    iteration = Iteration(1.0, 2, 1, 2, 5, 0, scheduled=(2, 2, 2), accepted=(2, 1, 0))
    engine.step_number = 1
    reporter.take(Report(iteration), idle_ms=0.5)
    reporter.flush()
    block, steps = frames
    (step,) = steps.steps
    assert (block.arm, step.step, step.tokens, step.waiting) == ("fixed:3", 0, 5, 1)
    assert step.scheduled == step.admitted == (2, 2, 2) and step.labelled == (2, 2, 1)
    assert math.isnan(step.verify_ms) and reporter.tokens == 5


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(engine, "MOMENT", 0.01)


def served_with(engine, *requests):
    """Requests that an engine serves."""
    engine.sequences = [SimpleNamespace(request=SimpleNamespace(id=each)) for each in requests]
    return engine.sequences[:]


def test_a_request_that_ends_behind_the_last_iteration_ends(quick):
    frames, served = [], engine_with(VllmConfig.make(serve=FIXED), ABOUT | {"steps": False})
    reporter = VllmReporter(frames.append, lambda: 1.0, served)
    reporter.begin_block(served.policy.arm, "serve", 0, "mixed")
    (last,) = served_with(served, 0)
    served.instance.iterations.put(Iteration(1.0, 1, 0, 1, 5, 0))
    assert served.step().finished == [] and served.running == 1
    assert served.step() is None
    served.instance.ended.append(Finished(last, "end"))  # vLLM's loop comes to it only now
    served.instance.iterations.put(None)
    report = served.step()
    reporter.take(report, idle_ms=0.0)
    assert [each.reason for each in report.finished] == ["end"] and served.running == 0
    assert (report.iteration, report.tokens, report.counted, served.step_number) == (None, 0, False, 1)
    assert served.step() is None
    reporter.flush()
    assert not any(isinstance(frame, fr.Steps) for frame in frames)


def test_a_request_that_ends_while_it_is_cancelled_ends_once(quick):
    served = engine_with(VllmConfig.make(serve=FIXED), ABOUT | {"steps": False})
    by_itself, late, other = served_with(served, 0, 1, 2)
    served.instance.ended.append(Finished(by_itself, "length"))
    assert served.cancel(0).reason == "length"  # it had ended, and nobody had asked yet
    assert served.cancel(1).reason == "cancelled" and served.cancel(1) is None
    served.instance.ended.append(Finished(late, "end"))  # while the cancellation was on its way
    served.instance.ended.append(Finished(other, "end"))
    served.instance.iterations.put(Iteration(1.0, 1, 0, 1, 5, 0))
    assert [each.sequence for each in served.step().finished] == [other] and served.running == 0


def test_another_engine_cancels_what_the_one_before_served(quick, monkeypatch):
    served = engine_with(VllmConfig.make(serve=ADAPTIVE, engines=True), ABOUT | {"steps": False})
    ended, running = served_with(served, 0, 1)
    served.instance.ended.append(Finished(ended, "end"))
    started = []
    monkeypatch.setattr(served, "_start", started.append)
    monkeypatch.setattr(engine, "end_children", lambda: None)
    served.instance.records.append(record(range(2)))
    served.set_policy(Arm.parse("fixed:1"))
    served.instance = Instance(started[0], served.clock)
    assert len(served.take_drains()) == 1 and served.take_drains() == []  # what the one before had told
    assert [(each.sequence, each.reason) for each in served.step().finished] == [
        (ended, "end"), (running, "cancelled"),
    ]  # fmt: skip
    assert started[0].speculative["num_speculative_tokens"] == 1


def test_what_is_heard_late_is_no_step_of_the_block(quick):
    served = engine_with(VllmConfig.make(serve=ADAPTIVE), ABOUT, record(range(3)))
    base = record(range(3))["next"]
    for number in range(3):
        served.instance.iterations.put(Iteration(number, 1, 0, 1, 5, 0))
    served.step()
    served.instance.drain = lambda: base + 2  # the worker has made two steps; one was heard of
    served.set_policy(Arm.parse("adaptive"))
    assert served.step_number == 2
    assert [served.step().counted, served.step().counted] == [False, True] and served.step_number == 3


def test_vllm_that_dies_while_nothing_runs_is_noticed(quick):
    served = engine_with(VllmConfig.make(serve=FIXED), ABOUT | {"steps": False})
    served.look()
    served.instance._llm = SimpleNamespace(errored=True)
    for ask in (served.look, served.step):
        with pytest.raises(EngineError, match="died"):
            ask()


def test_a_fault_is_said_though_iterations_go_on(quick):
    served = engine_with(VllmConfig.make(serve=FIXED), ABOUT | {"steps": False})
    served.instance.failure = "Steps cannot be seen any more."
    served.instance.iterations.put(Iteration(1.0, 1, 0, 1, 5, 0))
    with pytest.raises(EngineError, match="any more"):
        served.step()


def test_memory_is_waited_for_and_what_stays_is_told(tmp_path, monkeypatch):
    said = tmp_path / "said"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {said}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said.write_text("300\n1000\n")
    before = memory.in_use()
    assert before == [300, 1000]
    said.write_text("300\n41000\n")
    turns = []

    def free():
        turns.append(1)
        if len(turns) == 2:
            said.write_text("290\n1200\n")

    assert memory.wait_free(before, 30.0, free) == 0 and len(turns) == 2
    said.write_text("300\n9000\n")
    assert memory.wait_free(before, 0.0, free) == 8000
    monkeypatch.setenv("PATH", "/nowhere")
    assert memory.in_use() == [] and memory.wait_free([], 30.0, free) == 0


def test_steps_belong_to_the_block_that_they_were_made_in():
    config = VllmConfig.make(serve=ADAPTIVE)
    engine = engine_with(config, ABOUT, record(()))
    frames = []
    reporter = VllmReporter(frames.append, lambda: 1.0, engine)
    reporter.begin_block(Arm.parse("adaptive"), "serve", 0, "mixed")
    engine.instance.records.append(record(range(4)))
    reporter.begin_block(Arm.parse("verify:2"), "serve", 3, "mixed")
    steps = [step for frame in frames if isinstance(frame, fr.Steps) for step in frame.steps]
    assert [step.block for step in steps] == [0, 0, 0, 0]  # the block was not begun when they were read
    engine.instance.records.append(record(range(4, 6)))
    reporter.flush()
    steps = [step for frame in frames if isinstance(frame, fr.Steps) for step in frame.steps]
    assert [(step.step, step.block) for step in steps[4:]] == [(4, 1), (5, 1)]


def test_policies_that_one_engine_serves():
    engine = engine_with(VllmConfig.make(serve=ADAPTIVE), ABOUT)
    assert engine.policy_for(Arm.parse("verify:2")).arm.k == 2
    for refused in ("none", "fixed:2", "adaptive+depth", "adaptive:raw"):
        with pytest.raises(PolicyError):
            engine.policy_for(Arm.parse(refused))
    blind = engine_with(
        VllmConfig.make(serve=ADAPTIVE), ABOUT | {"switch": False, "missing": ["It is hidden."]}
    )
    with pytest.raises(PolicyError, match="hidden"):
        blind.policy_for(Arm.parse("verify:2"))
    fixed = engine_with(VllmConfig.make(serve=FIXED), ABOUT)
    with pytest.raises(PolicyError, match="stays at fixed:3"):
        fixed.policy_for(Arm.parse("verify:2"))


def test_vllm_that_is_not_there_is_said():
    with pytest.raises(Exception, match="not installed"):
        VllmEngine(VllmConfig.make(serve=FIXED)).open()


def test_a_line_of_the_log_says_how_far_a_start_is():
    from avlab.workers.vllm import BEGINNING, Log

    log = SimpleNamespace(phase=BEGINNING, _reasons=[])
    for line, phase in (
        ("INFO 11-30 vLLM API server version 0.32.0", BEGINNING),
        ("(EngineCore pid=1) INFO Starting to load model /x...", "loading weights"),
        ("Capturing CUDA graphs (mixed prefill-decode, FULL): 40%", "capturing graphs and timing steps"),
    ):
        Log._look(log, line)
        assert log.phase == phase
    assert log._reasons == []


def test_a_line_of_the_log_says_why_a_start_failed():
    from avlab.workers.vllm import Log

    log = SimpleNamespace(phase="", _reasons=[], reason=None)
    for line in (
        "ValueError: No available memory for the cache blocks.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "Exception: WorkerProc initialization failed due to an exception in a background process.",
    ):
        Log._look(log, line)
    assert log._reasons == ["No available memory for the cache blocks."]
    for line in (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
        "  Value error, Two vocabularies differ. [type=value_error, input_value=..., input_type=dict]",
    ):
        Log._look(log, line)
    assert log._reasons[-1] == "Two vocabularies differ."
    assert "Two vocabularies" in Log.reason(log, "Engine core initialization failed.")
    assert Log.reason(log, "There is no model.") == "There is no model."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("No memory.\nAsk less.", "No memory."),
        (
            "1 validation error for SpeculativeConfig\n  Value error, Two vocabularies differ. [type=value_error, "
            "input_value=1]\n    For further information visit",
            "Two vocabularies differ.",
        ),
        (
            "2 validation errors for ModelConfig\ndtype\n  Input should be a string [type=string_type]\nseed\n  Is 0",
            "dtype: Input should be a string",
        ),
        ("", "ValueError"),
    ],
)
def test_an_error_is_a_line(error, said):
    assert first_line(ValueError(error)) == said


def test_a_folder_that_is_not_there_is_said_at_once(tmp_path):
    spec = f"--speculative-config.method draft_model --speculative-config.model {tmp_path}/drafter"
    for serve in (f"vllm serve {tmp_path}/target", f"vllm serve {tmp_path} {spec}"):
        with pytest.raises(EngineError, match="no model in"):
            _look_for_folders(VllmConfig.make(serve=serve).line)
    _look_for_folders(VllmConfig.make(serve="vllm serve some/model").line)
    hub = OSError("We couldn't connect to 'https://huggingface.co'.")
    assert "drafty is no folder here" in start_sentence(hub, "drafty")
    assert "folder" not in start_sentence(ValueError("No memory."), "drafty")
