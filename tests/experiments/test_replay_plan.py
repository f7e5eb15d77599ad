"""A plan names the simplest of arms that are equal, says what it is worth, and what vLLM can do of it."""

import json

import numpy as np
import pytest
from test_replay_sweep import made_cell

from avlab.experiments.replay_flags import by_load, served, vllm_serves, why_not
from avlab.experiments.replay_plan import choices, sentence, whole
from avlab.policies.arm import arm_of
from avlab.vllm.serve_line import ServeLine

OWN = ServeLine.parse(
    'vllm serve a/model --max-num-seqs 64 --speculative-config \'{"method": "eagle3", "model": "a/head"}\''
)


def cells(**gains):
    """By load and arm, percent over none; a text's noise is common, each arm's own is small."""
    rng, found = np.random.default_rng(0), []
    for load, arms in gains.items():
        common = rng.normal(0, 0.05, 10)
        for arm, percent in {"none": 0.0, **arms}.items():
            noise = common + rng.normal(0, 0.004, 10) + np.log1p(percent / 100)
            found.append(made_cell(arm, 1000 * np.exp(-noise), load=int(load[1:])))
    return found


def test_equals_are_called_equal_and_the_simplest_is_recommended():
    plan = choices(
        cells(
            _1={"fixed:3": 40, "adaptive": 40.1, "adaptive+depth": 40.2}, _16={"fixed:3": 20, "adaptive": 30}
        )
    )
    assert [(c.arm, c.first, c.last) for c in plan] == [("fixed:3", 1, 1), ("adaptive", 16, 16)]
    assert plan[0].equal == ["adaptive", "adaptive+depth"] and plan[0].over_fixed == []
    assert plan[1].equal == [] and plan[1].over_fixed[0].over == "fixed:3"
    said = [sentence(each, 7) for each in plan]
    assert (
        said[0].startswith("With 1 request: K = 3, policy fixed:3; worth 40.")
        and "over no speculation" in said[0]
    )
    assert "Equal as far as this replay can tell: adaptive, adaptive+depth." in said[0]
    assert said[1].startswith("With 16 requests: K = 7, policy adaptive; worth 8.") and "[" in said[1]


def test_a_fixed_length_stays_as_long_as_it_is_equal():
    plan = choices(
        cells(
            _1={"fixed:3": 40, "fixed:5": 40},
            _2={"fixed:3": 30, "fixed:5": 40},
            _4={"fixed:3": -9, "fixed:5": -9},
        )
    )
    assert [(c.arm, c.first, c.last) for c in plan] == [("fixed:5", 1, 2), ("none", 4, 4)]
    assert sentence(plan[1], 7).startswith("With 4 requests: no speculation")


def test_one_setting_is_the_one_that_loses_least():
    found = whole(cells(_1={"fixed:3": 40, "adaptive": 38}, _64={"fixed:3": -20, "adaptive": 1}))
    assert found.arm == "adaptive" and found.worst == pytest.approx(1.38 / 1.4, abs=0.01) and found.load == 1


def test_what_vllm_cannot_do_is_said():
    assert [vllm_serves(arm_of(arm)) for arm in ("none", "fixed:3", "adaptive", "adaptive:head")] == [
        True
    ] * 4
    assert not any(
        vllm_serves(arm_of(arm))
        for arm in ("adaptive+depth", "adaptive:raw", "verify:2", "adaptive+explore=0.1")
    )
    assert "cannot choose the depth" in why_not(arm_of("adaptive+depth"))


def test_the_flags_change_the_readers_own_command():
    spec = served("adaptive", 7, OWN).line.speculative
    assert spec == {
        "method": "eagle3",
        "model": "a/head",
        "num_speculative_tokens": 7,
        "enable_adaptive_verification": True,
    }
    fixed = served("fixed:3", 7, OWN).line
    assert (
        fixed.speculative["num_speculative_tokens"] == 3
        and not fixed.speculative["enable_adaptive_verification"]
    )
    assert fixed.arguments["max-num-seqs"] == 64
    none = served("none", 7, OWN).line
    assert none.words() == ["vllm", "serve", "a/model", "--max-num-seqs", "64"]
    words = served("fixed:3", 7).line.words()
    assert words[:3] == ["vllm", "serve", "MODEL"] and json.loads(words[4])["num_speculative_tokens"] == 3


def test_a_plan_of_lengths_is_one_command():
    plan = choices(
        cells(_1={"fixed:5": 40}, _8={"fixed:5": 30, "fixed:2": 40}, _64={"fixed:2": -9, "fixed:5": -20})
    )
    table = by_load(plan, OWN)
    assert table.line.speculative["num_speculative_tokens_per_batch_size"] == [
        [1, 7, 5],
        [8, 63, 2],
        [64, 64, 0],
    ]
    assert table.line.speculative["num_speculative_tokens"] == 5
    assert by_load(choices(cells(_1={"adaptive": 40}, _8={"fixed:2": 30}))) is None
