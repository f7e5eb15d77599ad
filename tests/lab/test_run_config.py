"""A run's configuration: sane defaults, and one clear sentence for every field that is wrong."""

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from avlab.config import ConfigError, RunConfig
from avlab.policies.arm import DEFAULT_ARM


def test_defaults_are_a_run():
    config = RunConfig.make()
    assert (config.policy, config.K, config.arrival_pattern, config.temperature) == (
        DEFAULT_ARM,
        7,
        "closed:16",
        0.6,
    )
    assert config.arm.learns


@pytest.mark.parametrize(
    ("costs", "depth_costs", "measured"),
    [(None, "auto", True), ("a.json", "auto", False), ("a.json", "measured", True), (None, "table", False)],
)
def test_depth_is_chosen_by_measured_costs_unless_a_file_is_to_decide(costs, depth_costs, measured):
    assert RunConfig.make(costs=costs, depth_costs=depth_costs).measures_costs is measured


def test_it_survives_json_and_is_frozen():
    config = RunConfig.make(policy="fixed:3", duration=2.5, top_p=0.95)
    assert RunConfig.make(json.loads(config.model_dump_json())) == config
    with pytest.raises(ValidationError):
        config.seed = 3
    assert config.changed(seed=4).seed == 4


def test_policies_are_kept_in_their_shortest_form():
    assert RunConfig.make(policy="adaptive:online").policy == "adaptive"
    assert RunConfig.make(policy="fixed:0").policy == "none"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"polcy": "none"}, "no setting 'polcy'"),
        ({"policy": "adaptve"}, "no policy 'adaptve'"),
        ({"policy": "fixed:9"}, "K = 7"),
        ({"policy": "adaptive", "drafter": "none"}, "needs a drafter"),
        ({"arrival": "closed:0"}, "closed:0"),
        ({"arrival": "closed:2.5"}, "closed:2.5"),
        ({"arrival": "poisson:-1"}, "poisson:-1"),
        ({"arrival": "poisson:inf"}, "poisson:inf"),
        ({"arrival": "sometimes"}, "no arrival pattern 'sometimes'"),
        ({"arrival": "replay"}, "file:PATH"),
        ({"temperature": -0.1}, "temperature is -0.1; it must be at least 0"),
        ({"temperature": float("nan")}, "finite number"),
        ({"temperature": 1e9}, "at most 10"),
        ({"top_p": 0}, "top_p is 0; it must be above 0"),
        ({"top_p": 1.5}, "at most 1"),
        ({"top_k": -1}, "at least 0"),
        ({"max_new_tokens": 0}, "at least 1"),
        ({"max_new_tokens": 4096}, "lower it or raise max_model_len"),
        ({"seed": -1}, "at least 0"),
        ({"seed": "x"}, "whole number"),
        ({"duration": 0}, "above 0"),
        ({"tokens": -5}, "at least 1"),
        ({"requests": 1.5}, "whole number"),
        ({"K": 0}, "at least 1"),
        ({"K": "1_0"}, "K is '1_0'; it must be a whole number"),
        ({"temperature": "1_0"}, "temperature is '1_0'; it must be a number"),
        ({"duration": 1e9}, "at most 2592000."),
        ({"top_p": 1.01}, "at most 1."),
        ({"max_num_seqs": 10**9}, "at most 4096"),
        ({"max_num_batched_tokens": 0}, "at least 1"),
        ({"max_num_batched_tokens": 512}, "is 512, and decoding alone may take 512"),
        ({"max_num_batched_tokens": 64, "drafter": "none", "policy": "none"}, "give at least 65"),
        ({"threads": 0}, "at least 1"),
        ({"spin": -1}, "at least 0"),
        ({"device": "tpu"}, "cuda:N"),
        ({"dtype": "float8"}, "'bfloat16' or 'float32'"),
        ({"drafts": "some"}, "'sampled'"),
        ({"new_request": "two"}, "'running-mean'"),
        ({"database": ""}, "empty"),
        ({"target": "a\0b"}, "NUL"),
    ],
)
def test_a_wrong_value_is_one_sentence(values, word):
    with pytest.raises(ConfigError) as error:
        RunConfig.make(values)
    (sentence,) = error.value.sentences
    assert word in sentence and sentence.endswith(".") and "\n" not in sentence


def test_every_wrong_field_has_its_own_sentence():
    with pytest.raises(ConfigError) as error:
        RunConfig.make(seed=-1, top_p=7, policy="x")
    assert len(error.value.sentences) == 3


def test_torch_is_not_needed_to_read_a_configuration():
    code = "import sys, avlab.config, avlab.policies; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
