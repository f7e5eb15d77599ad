"""The worker extension on shapes that vLLM's open pull requests would bring: the unknown is said, and vLLM serves on.

Stand-ins after those requests' own code: suffix statistics on Model Runner V2 (a drafter that observes nothing and is
told the outcome with its next draft), n-grams trimmed on the device (#40704), cost tables of two dimensions (#52057).
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stand_in_runner import DRAFTS, REQUESTS, K, Worker, load, manage, serve

COSTS = np.linspace(0.0, 1.0, REQUESTS + 1), np.linspace(0.0, 9.0, 65)


class Suffix:
    """As the suffix drafter of vLLM's main branch: no estimator and no `observe_verification`, but counts."""

    enable_adaptive_verification = True

    def __init__(self):
        self.accept_stats = torch.zeros(18, K, 2, dtype=torch.int64)
        self.proposed = 0

    def propose(
        self, input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
        num_rejected, last_sampled, dummy_run=False,
    ):  # fmt: skip
        self.proposed += 1
        return torch.zeros(REQUESTS, K)


class Ngram(Suffix):
    """Drafts without a match are trimmed on the device: rejected counts what was left of them."""

    enable_adaptive_verification = False

    def __init__(self):
        super().__init__()
        del self.accept_stats


def propose_with(runner, rejected):
    """The runner tells its drafter of the outcome as Model Runner V2 tells one that is no draft model."""

    def sample_tokens(grammar_output):
        batch = SimpleNamespace(idx_mapping=torch.arange(REQUESTS))
        sampled = torch.full((REQUESTS,), 2)
        runner.speculator.propose(
            batch, None, None, None, None, sampled, torch.full((REQUESTS,), rejected), None
        )

    runner.sample_tokens = sample_tokens


def columns(found):
    return {name: [row[i] for row in found["steps"]] for i, name in enumerate(found["step_fields"])}


def test_suffix_statistics_are_seen_with_the_next_draft():
    worker = Worker()
    runner = worker.model_runner
    runner.speculator = Suffix()
    propose_with(runner, K - 1)
    worker.init_worker_extension()
    manage(runner)
    about = worker.avlab_begin()
    assert about["steps"] and about["source"] == "counts"
    assert any("counted by length of match" in each for each in about["missing"])
    serve(runner, 70)
    found = worker.avlab_drain()
    told = columns(found)
    assert runner.speculator.proposed == len(found["steps"]) == 70 and not found["failure"]
    assert told["admitted"][0] == [REQUESTS] * K and told["accepted"][0] == [REQUESTS] + [0] * (K - 1)
    assert set(found["calibration"]) == {"counts"} and found["refits_made"] == []
    runner.speculator.propose(
        None, None, None, None, None, None, None, None, dummy_run=True
    )  # between two steps
    assert len(worker.avlab_drain()["steps"]) == 70


def test_drafts_that_are_trimmed_on_the_device_are_not_taken_for_verified():
    worker = Worker()
    runner = worker.model_runner
    runner.speculator = Ngram()
    propose_with(runner, 0)  # of K scheduled drafts one was left, and accepted
    worker.init_worker_extension()
    serve(runner, 3)
    found = worker.avlab_drain()
    told = columns(found)
    assert told["scheduled"][0] == [REQUESTS] * K and told["admitted"][0] == [REQUESTS] + [0] * (K - 1)
    assert told["budget"] == [REQUESTS] * 3 and told["target_tokens"] == [2 * REQUESTS] * 3
    assert any("trims them on the device" in each for each in worker.avlab_begin()["missing"])
    assert sum("trims" in each for each in worker.avlab_begin()["missing"]) == 1


@pytest.mark.parametrize(
    "tables",
    [
        (COSTS[0], np.zeros((65, 4))),  # tokens by context length
        (COSTS[0], COSTS[1], COSTS[1]),
        {"draft": COSTS[0], "verify": COSTS[1]},
        lambda requests, tokens: 1.0,
    ],
)
def test_costs_of_another_shape_are_not_known_and_steps_are(tables):
    worker = Worker()
    worker.init_worker_extension()
    runner = worker.model_runner
    load(runner)
    manage(runner)
    manager = runner.adaptive_verification
    manager.cost_tables, manager._batch_budget = (
        tables,
        (dict.fromkeys(DRAFTS, K), dict.fromkeys(DRAFTS, 1), 5),
    )
    worker.avlab_begin()
    record = worker.avlab_record

    def execute_model(batch):  # as within Model Runner V2
        assert record._get_num_tokens(manager, lambda *_: REQUESTS + 5, {}, {}) == REQUESTS + 5

    runner.execute_model = lambda batch: record._execute(execute_model, batch)
    serve(runner, 3)
    found = worker.avlab_drain()
    assert [np.isnan(ms) for ms in columns(found)["expected_ms"]] == [True] * 3
    assert columns(found)["budget"] == [5] * 3 and not found["failure"]
    assert "cost_tables" not in found
    assert sum("cost tables are not by requests" in each for each in worker.avlab_begin()["missing"]) == 1


def test_a_manager_without_cost_tables_is_seen_without_them():
    worker = Worker()
    worker.init_worker_extension()
    load(worker.model_runner)
    manage(worker.model_runner)
    del worker.model_runner.adaptive_verification.cost_tables
    about = worker.avlab_begin()
    assert about["steps"] and any("cost tables are not" in each for each in about["missing"])
    serve(worker.model_runner, 3)
    assert len(worker.avlab_drain()["steps"]) == 3


@pytest.mark.parametrize("budget", [("one thing",), 7, (None, None, 3)])
def test_a_budget_of_another_shape_ends_the_record_and_not_the_server(budget):
    worker = Worker()
    worker.init_worker_extension()
    load(worker.model_runner)
    manage(worker.model_runner)
    manager = worker.model_runner.adaptive_verification
    manager.cost_tables, manager._batch_budget = COSTS, budget
    worker.avlab_begin()
    record = worker.avlab_record
    record.step = {"decide_ms": 0.0}
    for verify in (-1, 2):  # also while a length is held
        record.verify = verify
        assert record._get_num_tokens(manager, lambda *_: 7, {}, {}) == 7
    assert "cannot be seen any more" in record.failure
    serve(worker.model_runner, 2)


def test_an_observation_with_more_or_other_arguments_reaches_vllm():
    worker = Worker()
    worker.init_worker_extension()
    load(worker.model_runner)
    manage(worker.model_runner)
    worker.avlab_begin()
    seen = []
    record, rows = worker.avlab_record, torch.arange(REQUESTS)
    outcome = rows, torch.full((REQUESTS,), 2), torch.full((REQUESTS,), K - 1)

    def begin():
        record.step = record._begun(
            SimpleNamespace(num_scheduled_tokens={"a": 4}, scheduled_spec_decode_tokens={})
        )

    begin()
    record._observe(lambda *given, **named: seen.append((given, named)), *outcome, mask="of rows")  # #57533
    begin()
    named = dict(zip(("idx_mapping", "num_sampled", "num_rejected"), outcome, strict=True))
    record._observe(lambda *given, **named: seen.append((given, named)), **named)
    assert record.number == 2 and not record.failure and seen[0][1] == {"mask": "of rows"}
    begin()
    record._observe(lambda *given, **named: seen.append((given, named)), "an outcome")
    assert seen[-1] == (("an outcome",), {}) and "cannot be seen any more" in record.failure


def test_a_drafter_whose_draft_is_told_in_another_order_is_not_guessed_at():
    worker = Worker()
    worker.model_runner.speculator = SimpleNamespace(propose=lambda batch, rejected, sampled: None)
    about = worker.avlab_begin()
    assert not about["steps"] and "is not told what was verified" in about["missing"][0]
