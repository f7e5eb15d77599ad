"""The worker extension's record on a made-up runner: what a CPU's real engine cannot show of a GPU, or of vLLM 0.33.

`test_vllm_extension.py` has the same record on vLLM's real adaptive loop.
"""

from types import SimpleNamespace

import pytest
import torch
from stand_in_runner import INTERVAL, REQUESTS, K, Worker, load, manage, serve
from torch.overrides import TorchFunctionMode

from avlab.vllm.extension import BUFFER, NO_STEPS

WAITS = {"tensor", "as_tensor", "from_numpy", "tolist", "item", "cpu", "numpy", "nonzero", "to", "cuda",
         "__bool__", "__int__", "__float__", "synchronize"}  # fmt: skip


class NothingWaits(TorchFunctionMode):
    """Refuses what waits for a GPU, and what is copied to it from memory that is not pinned."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert getattr(function, "__name__", "") not in WAITS, f"{function.__name__} waits for the device"
        return function(*args, **(kwargs or {}))


@pytest.fixture
def worker():
    made = Worker()
    made.init_worker_extension()
    load(made.model_runner)
    return made


def test_no_step_waits_for_the_device(worker):
    manage(worker.model_runner)
    worker.avlab_begin()
    steps = 3 * BUFFER + 5  # the buffer is folded when it is full, and at refits
    with NothingWaits():
        serve(worker.model_runner, steps)
    found = worker.avlab_drain()
    assert len(found["steps"]) == steps and found["refits_made"][-1][0] == steps // INTERVAL
    with pytest.raises(AssertionError, match="waits"), NothingWaits():
        torch.tensor([1])


def test_kernels_that_are_warmed_up_before_there_is_a_manager_are_no_steps(worker):
    serve(worker.model_runner, 5)
    manage(worker.model_runner)
    found = worker.avlab_drain()
    assert found["steps"] == [] and found["next"] == 0
    serve(worker.model_runner, BUFFER + 2)
    found = worker.avlab_drain()
    calibration = found["calibration"]
    assert len(found["steps"]) == BUFFER + 2 and set(calibration) == {"online", "raw"}
    labelled = (BUFFER + 2) * REQUESTS * 2  # the accepted draft, and the rejected one behind it
    assert sum(cell[2] for cell in calibration["online"]) == labelled


def test_a_record_without_its_steps(worker):
    manage(worker.model_runner)
    worker.avlab_begin()
    serve(worker.model_runner, INTERVAL + 2)
    found = worker.avlab_drain(NO_STEPS, -1)
    assert (found["steps"], found["dropped"], found["next"]) == ([], 0, INTERVAL + 2)
    assert found["refits_made"] and found["calibration"]["online"]
    later = worker.avlab_drain(INTERVAL - 1)
    assert [row[0] for row in later["steps"]] == [INTERVAL, INTERVAL + 1] and later["dropped"] == 0


def test_drafts_by_position_are_what_was_scheduled(worker):
    manage(worker.model_runner)
    worker.avlab_begin()
    lengths = [K, 1, 0, 2]
    drafts = {f"r{i}": [0] * n for i, n in enumerate(lengths) if n}
    tokens = {f"r{i}": n + 1 for i, n in enumerate(lengths)}
    batch = SimpleNamespace(num_scheduled_tokens=tokens, scheduled_spec_decode_tokens=drafts)
    worker.model_runner.execute_model(batch)
    step = worker.avlab_record.step
    assert step["scheduled"] == [sum(n > k for n in lengths) for k in range(K)]
    assert (step["budget"], step["target_tokens"], step["prompt_tokens"]) == (
        sum(lengths),
        sum(lengths) + 4,
        0,
    )


def test_workers_beside_the_first_keep_no_record(worker):
    other = Worker()
    other.rank = 1
    other.init_worker_extension()
    load(other.model_runner)
    manage(other.model_runner)
    other.avlab_begin()
    serve(other.model_runner, 5)
    found = other.avlab_drain()
    assert (found["rank"], found["steps"], found["refits_made"]) == (1, [], [])


@pytest.mark.parametrize("where", ["budget manager", "estimator"])
def test_what_another_vllm_does_not_have_is_said(worker, where):
    runner = worker.model_runner
    manage(runner)
    owner, name = (
        (runner.adaptive_verification, "_confidence_probs")
        if where == "budget manager"
        else (runner.speculator.acceptance_estimator, "features")
    )
    delattr(owner, name)
    about = worker.avlab_begin()
    assert not about["steps"] and f"{where} has no {name}" in about["missing"][-1]
    serve(runner, 3)
    assert worker.avlab_drain()["steps"] == []


def test_a_fault_of_the_record_ends_the_record_alone(worker):
    manage(worker.model_runner)
    worker.avlab_begin()
    serve(worker.model_runner, 2)
    worker.model_runner.adaptive_verification._confidence_probs = "something else"
    serve(worker.model_runner, INTERVAL)  # serves on, and the estimator learns
    assert worker.model_runner.speculator.acceptance_estimator._refits == 1
    assert "cannot be seen any more" in worker.avlab_policy(2)
    found = worker.avlab_drain()
    assert "cannot be seen any more (TypeError" in found["failure"] and found["failure"] in found["missing"]
    assert [row[0] for row in found["steps"]] == [0, 1]


def test_a_length_that_cannot_be_held_is_answered_with_a_sentence(worker):
    assert "is off" in worker.avlab_policy(2)
    manage(worker.model_runner)
    worker.avlab_record._hooked.add("_assign_draft_token_budget_compiled")
    assert worker.avlab_policy(2) == 0 and worker.avlab_record.verify == 2
    assert "must be 0 to 3" in worker.avlab_policy(4) and worker.avlab_record.verify == 2
