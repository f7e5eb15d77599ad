"""The sampling a checkpoint recommends: read from its folder, checked by value, and what a run begins with."""

import json

import pytest

from avlab.config import RunConfig, sampled
from avlab.engine.fetch import DEFAULT_TARGET
from avlab.engine.recommended import LARGEST_FILE, recommended
from avlab.speculation.sampling import MODELS_OWN, USUAL, Sampling
from avlab.vllm.serving_config import VllmConfig


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"temperature": 0.7, "top_p": 0.8, "top_k": 20}, Sampling(0.7, 20, 0.8)),
        ({"temperature": 0.2}, Sampling(0.2, 0, 1.0)),  # what it leaves open cuts nothing, as in vLLM
        ({"top_p": 0.9, "do_sample": True}, Sampling(1.0, 0, 0.9)),
        ({"eos_token_id": 2}, USUAL),
        ({"temperature": "0.2"}, USUAL),
        ({"temperature": 0.4, "top_p": 7, "top_k": -1}, Sampling(0.4, 0, 1.0)),
        ({"temperature": True, "top_k": 1.5}, USUAL),
        ([1, 2], USUAL),
    ],
)
def test_a_checkpoint_recommends(tmp_path, said, expected):
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    assert recommended(str(tmp_path)) == expected
    assert RunConfig.make(target=str(tmp_path)).sampling == expected
    assert VllmConfig.make(serve=f"{tmp_path} --max-num-seqs 8").sampling == expected


@pytest.mark.parametrize("text", ["{", "[" * 10_000, '{"temperature": NaN}', '{"top_k": 1e999}'])
def test_a_damaged_file_recommends_nothing(tmp_path, text):
    (tmp_path / "generation_config.json").write_text(text)
    assert recommended(str(tmp_path)) == USUAL


def test_a_huge_file_is_not_read(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.2}' + " " * LARGEST_FILE)
    assert recommended(str(tmp_path)) == USUAL


def test_models_elsewhere_and_the_shipped_target_are_sampled_as_usual():
    assert recommended(DEFAULT_TARGET) == recommended("org/model") == USUAL
    assert RunConfig.make().sampling == USUAL


def test_what_is_given_holds_and_the_rest_is_recommended():
    assert RunConfig.make(temperature=0).sampling == Sampling(0, 0, 0.95)
    again = RunConfig.make(top_k=5).changed(seed=3)
    assert again.sampling == Sampling(0.6, 5, 0.95)
    assert RunConfig.make(again.model_dump()) == again


def test_an_older_record_cut_nothing():
    assert sampled({"temperature": 0.2}) == Sampling(0.2, 0, 1.0)
    assert sampled({}) == MODELS_OWN


def test_samplings_in_words():
    assert [each.words() for each in (USUAL, MODELS_OWN, Sampling(0, 0, 0.9), Sampling(0.5, 20, 1))] == [
        "temperature 0.6, top-p 0.95", "temperature 1", "greedy", "temperature 0.5, top-k 20",
    ]  # fmt: skip
