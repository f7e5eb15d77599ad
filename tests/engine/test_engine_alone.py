"""A request served alone, and a window: neither changes what the others are given, and every number shown is right."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import LLAMA, make_engine, outputs, serve, write_block_drafter, write_llama

from avlab.engine.request import Request, RequestError
from avlab.engine.solo import Solo
from avlab.engine.target import Target
from avlab.policies.arm import Arm, PolicyError
from avlab.policies.fixed import NONE
from avlab.policies.wrappers import Frozen, FullVerification
from avlab.workers.slots import tokens_frame

V, K = LLAMA["vocab_size"], 4
SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.8},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 0.0},
]
TEXT = SimpleNamespace(piece=lambda token: f"<{token}>")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    target = write_llama(folder / "target", seed=1)
    return {
        "target": Target(target, torch.float32),
        "block": write_block_drafter(folder / "block", target),
        "llama": write_llama(folder / "llama", seed=2, num_hidden_layers=1),
    }


def asked():
    return [Request(i, [i + 1, i + 2, 7], 20 + i, temperature=1.0, seed=i) for i in range(6)]


def alone(**settings):
    return Request(-1, [3, 9, 27, 5], 24, seed=11, **settings)


def generate(engine, request, arm):
    """Serve a request alone to its end: what its observer was handed, (report, drafts, logits) a step."""
    seen = []
    solo = Solo(engine, request, Arm.parse(arm), lambda *step: seen.append(step))
    while not seen or not seen[-1][0].finished:
        assert solo.step() is seen[-1][0]
    solo.close()
    assert engine.observer is None
    return seen


@pytest.mark.parametrize("drafter", ["block", "llama"])
@pytest.mark.parametrize("slots", [3, 8])
def test_the_others_get_what_they_would_have_got(models, drafter, slots):
    """With every slot taken, or room left; the tokens of all, and what their arm has learnt, to the last bit."""
    made = [
        make_engine(models["target"], drafter, models[drafter], "adaptive", slots, refit_interval=5)
        for _ in "ab"
    ]
    ends, taught = [], []
    for engine, disturbed in zip(made, (False, True), strict=True):
        for request in asked():
            engine.add(request)
        finished = {}
        for step in range(200):
            if disturbed and step in (3, 4, 9):
                for arm in ("adaptive", "fixed:2", "none"):
                    generate(engine, alone(), arm)
                Solo(engine, alone(), Arm.parse("verify:1")).close()
            finished |= {f.sequence.request.id: f for f in engine.step().finished}
        ends.append(outputs(finished))
        taught.append(engine.policies["adaptive"].estimator)
    assert ends[0] == ends[1] and len(ends[0]) == 6
    assert taught[0].steps == taught[1].steps and taught[0].coefficients.slope == taught[1].coefficients.slope
    np.testing.assert_array_equal(*(engine.policies["adaptive"].mean_estimate for engine in made))
    assert made[0].cache.free_rows == made[1].cache.free_rows


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("arm", ["adaptive", "adaptive:head", "adaptive:raw", "fixed:3", "verify:2", "none"])
def test_it_gets_what_it_would_get_on_an_engine_of_its_own_and_what_is_shown_adds_up(models, arm, settings):
    busy = make_engine(models["target"], "block", models["block"], "adaptive")
    for request in asked():
        busy.add(request)
    for _ in range(6):
        busy.step()
    observed = generate(busy, alone(**settings), arm)
    own = make_engine(models["target"], "block", models["block"], arm)
    finished, _ = serve(own, [alone(**settings)])
    emitted = [token for report, *_ in observed for _, tokens in report.emitted for token in tokens]
    assert emitted == outputs(finished)[-1]

    seen = set()
    for step in observed:
        frame = tokens_frame(*step, alone(**settings), TEXT, SimpleNamespace(add=lambda token: ""))
        seen |= {slot.fate for slot in frame.draft} | set(frame.fates)
        assert frame.tokens == [slot.token for slot in frame.draft if slot.fate == "accepted"] + [
            frame.own.token
        ]
        for slot in [*frame.draft, frame.own]:
            for top in (slot.draft_top, slot.target_top, slot.residual_top):
                chances = [choice.probability for choice in top]
                assert chances == sorted(chances, reverse=True) and sum(chances) < 1 + 1e-9
            for chance, top in ((slot.q, slot.draft_top), (slot.p, slot.target_top)):
                shown = {choice.token: choice.probability for choice in top}
                assert shown.get(slot.token, chance) == chance
        for slot in frame.draft:
            assert slot.q > 0 and (slot.fate != "accepted" or slot.p > 0)
            assert slot.fate != "rejected" or slot.p < slot.q
            assert (slot.survival is None) == (slot.estimate is None) == (not arm.startswith("adaptive"))
        if frame.own.fate == "recovered":
            assert (
                frame.own.token != next(s.token for s in frame.draft if s.fate == "rejected")
                or settings == SETTINGS[0]
            )
            chance = {c.token: c.probability for c in frame.own.residual_top}.get(frame.own.token, 1.0)
            assert chance > 0 and frame.own.p > 0
    assert ("accepted" in seen) == (arm != "none") and ("trimmed" in seen or not arm.startswith("verify"))


def test_one_that_cannot_be_served_leaves_the_engine_as_it_was(models):
    engine = make_engine(models["target"], "block", models["block"], "adaptive")
    for request in asked():
        engine.add(request)
    engine.step()
    for request, arm, error in (
        (Request(-1, [], 5), "none", RequestError),
        (alone(), "fixed:9", PolicyError),
    ):
        with pytest.raises(error):
            Solo(engine, request, Arm.parse(arm))
        assert engine.running == 6 and str(engine.policy.arm) == "adaptive" and engine.observer is None
    with pytest.raises(RequestError, match="The playground asks for 0 new tokens"):
        Solo(engine, Request(-1, [1], 0), NONE)


def test_a_window_keeps_the_target_distribution_and_the_estimator_as_it_was(models):
    """Full verification of a policy's drafts is `verify:K`: the same tokens, whoever predicts meanwhile."""
    tokens = []
    for wrapped in (True, False):
        engine = make_engine(
            models["target"], "block", models["block"], "adaptive" if wrapped else f"verify:{K}"
        )
        inner = engine.policy
        if wrapped:
            engine.policy = FullVerification(Frozen(inner), K)
        finished, reports = serve(engine, asked())
        tokens.append(outputs(finished))
        for report in reports:
            if report.slots is not None and wrapped:
                np.testing.assert_array_equal(report.slots.admitted, report.slots.scheduled)
                np.testing.assert_allclose(
                    report.slots.estimates.log_odds, inner.estimator.predict(report.slots.features)
                )
        if wrapped:
            assert inner.estimator.steps == 0 and inner.estimator.statistics.observations.sum() == 0
    assert tokens[0] == tokens[1]
