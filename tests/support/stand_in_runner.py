"""A made-up runner, as the worker extension finds Model Runner V2: loaded, served and warmed up by a test."""

from types import SimpleNamespace

import torch

from avlab.vllm.extension import Switch

K, REQUESTS, INTERVAL = 3, 4, 10
DRAFTS = {f"r{i}": [0] * K for i in range(REQUESTS)}


class Estimator:
    """As vLLM's: state by request, a refit every INTERVAL steps."""

    REFIT_INTERVAL = INTERVAL

    def __init__(self):
        self.features = torch.linspace(-3, 3, REQUESTS * K).view(REQUESTS, K)
        self.slope, self.intercepts = torch.full((1,), 0.5), torch.full((K,), -0.2)
        self._refits = self._steps = 0

    def step(self, idx_mapping, num_sampled, num_rejected):
        self._steps += 1
        self._refits += self._steps % INTERVAL == 0


class Speculator:
    enable_adaptive_verification = True

    def __init__(self):
        self.acceptance_estimator = None  # till the drafter is loaded

    def observe_verification(self, idx_mapping, num_sampled, num_rejected):
        self.acceptance_estimator.step(idx_mapping, num_sampled, num_rejected)


class Runner:
    """As Model Runner V2 when an extension is hooked in by vLLM 0.33: nothing is loaded."""

    num_speculative_steps, max_num_reqs, device = K, REQUESTS, torch.device("cpu")

    def __init__(self):
        self.req_states, self.speculator, self.adaptive_verification = object(), Speculator(), None

    def execute_model(self, scheduler_output, intermediate_tensors=None, dummy_run=False):
        return None

    def sample_tokens(self, grammar_output):
        rows = torch.arange(REQUESTS)
        sampled = torch.full((REQUESTS,), 2)  # one draft of K accepted, and the target's own token
        self.speculator.observe_verification(rows, sampled, torch.full((REQUESTS,), K - 1))


class Worker(Switch):
    rank = 0

    def __init__(self):
        self.model_runner = Runner()
        self.model_config = SimpleNamespace(served_model_name="some/model")
        self.parallel_config = SimpleNamespace(data_parallel_index=0)


def load(runner):
    runner.speculator.acceptance_estimator = Estimator()


def manage(runner):
    """The budget manager is there from now on."""
    probabilities = torch.full((REQUESTS, K), 0.7)
    runner.adaptive_verification = SimpleNamespace(
        _confidence_probs=probabilities,
        cost_tables=None,
        _batch_budget=None,
        _max_total_logits=99,
        num_bonus_tokens=1,
    )


def serve(runner, steps):
    batch = SimpleNamespace(
        total_num_scheduled_tokens=REQUESTS * (K + 1),
        num_scheduled_tokens=dict.fromkeys(DRAFTS, K + 1),
        scheduled_spec_decode_tokens=DRAFTS,
    )
    for _ in range(steps):
        runner.execute_model(batch)
        with torch.inference_mode():
            runner.sample_tokens(None)
