"""The audit runs the engine's own step, and tells sound rules from unsound ones."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import write_block_drafter, write_llama

from avlab.bias.audit import audit as module
from avlab.bias.audit.audit import TOGETHER, Audit
from avlab.bias.audit.ranking import rank
from avlab.bias.audit.rules import AuditError, parse, scores
from avlab.bias.audit.shared_target import SharedTarget
from avlab.config import RunConfig
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.engine import Engine
from avlab.engine.target import Target
from avlab.policies.arm import Arm, PolicyError
from avlab.speculation.calibration import exact_auc
from avlab.speculation.features import DEFAULT_FEATURES
from avlab.speculation.sampling import softmax
from avlab.training.model import DrafterShape

PROMPT = [1, 5, 7, 2, 9, 4]
SERVING = ("none", "fixed:2", "verify:1", "adaptive", "adaptive:raw", "adaptive:head")
SOUND = ("maximum:0.2", "entropy:0.1", "margin:0.05", "head:0.5", "budget:earlier")
UNSOUND = ("drawn:0.15", "budget:same-step", "noise:correction")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    path = write_llama(folder / "target", seed=3, sharpness=2.0)
    shape = DrafterShape(
        K=4, key_layers=(1, 2, 3), state_layers=(1, 2), input_width=24, markov_rank=8, draft_vocabulary=32
    )
    target = Target(path, torch.float32, length=128)
    return target, BlockDrafter(write_block_drafter(folder / "block", path, shape), target, 2)


def audited(models, rule, count=6000, seed=0, **settings):
    audit = Audit(*models, PROMPT, parse(rule), seed=seed, **settings)
    *_, counts = audit.continuations(count)
    return audit, counts, audit.fits(counts, 2)


def rejected(fits):
    return min(fit.corrected for fit in fits) < 0.01


def test_it_runs_the_step_that_serves(models, monkeypatch):
    """The same function object, called once a step with nothing of it replaced, and no other way to a token."""
    audit = Audit(*models, PROMPT, parse("fixed:2"))
    assert type(audit.engine) is Engine and "step" not in vars(audit.engine)
    for name in ("step", "_propose", "_verify", "_sample", "_extend", "_slots"):
        assert getattr(audit.engine, name).__func__ is getattr(Engine, name)
    steps, step = [], Engine.step
    monkeypatch.setattr(Engine, "step", lambda engine: steps.append(engine) or step(engine))
    next(audit.continuations(100))
    assert steps and all(engine is audit.engine for engine in steps)
    source = inspect.getsource(module)
    assert "speculative_sample" not in source and ".draw(" not in source


def test_rows_that_are_shared_are_the_targets_own(models):
    target, drafter = models
    shared = Audit(target, drafter, PROMPT, parse("none")).shared
    texts = [PROMPT, *([*PROMPT, token] for token in (3, 60, 11))]
    for text in texts:
        cache, batch = target.new_cache(1), target.batch([0], [0], [len(text)])
        with torch.inference_mode():
            states, _ = target.forward(torch.tensor(text), batch, cache)
            due = softmax(target.logits(states)[-1].numpy())
        nodes = (
            shared.rows_after(np.array(text[len(PROMPT) :]))
            if len(text) > len(PROMPT)
            else np.zeros(1, np.int64)
        )
        np.testing.assert_allclose(shared.law(nodes, 1.0)[0], due, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_drafts_that_share_rows_are_the_drafters_own(models, temperature):
    """Tokens, rows and features as the plain drafter gives them for the same uniforms."""
    target, plain = models
    audit, B, P = Audit(target, plain, PROMPT, parse("fixed:2"), temperature), 40, len(PROMPT)
    cache = target.new_cache(B)
    with torch.inference_mode():
        batch = target.batch(range(B), [0] * B, [P - 1] * B)
        target.forward(torch.tensor(PROMPT[:-1] * B), batch, cache, plain.state_layers)
    uniforms = np.random.default_rng(5).random((B, 2))
    given = audit._inputs(uniforms)
    found, due = audit.drafter.propose(given, 2), plain.propose(replace(given, cache=cache), 2)
    assert (found.tokens == due.tokens).all()
    rows = found.probs_at(torch.arange(B)[:, None], torch.arange(2))
    np.testing.assert_allclose(rows, due.draft_probs, atol=1e-5)
    assert found.features.names == due.features.names == DEFAULT_FEATURES
    np.testing.assert_allclose(found.features.values, due.features.values, atol=1e-4)


def test_each_prefix_is_computed_once(models, monkeypatch):
    computed, original = [], SharedTarget._compute
    monkeypatch.setattr(
        SharedTarget,
        "_compute",
        lambda self, tokens: computed.extend(tokens.tolist()) or original(self, tokens),
    )
    audited(models, "fixed:2", 2000)
    assert len(computed) == len(set(computed)) <= 64


@pytest.mark.parametrize("rule", [*SERVING, *SOUND])
def test_sound_rules_are_not_rejected(models, rule):
    audit, counts, fits = audited(models, rule)
    assert parse(rule).sound and "UNSOUND" not in parse(rule).label
    assert not rejected(fits), fits
    assert counts.one.sum() == counts.two.sum() == 6000
    assert audit.exact_total_variation() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "rule", ["adaptive", "adaptive:raw", "adaptive:head", "budget:earlier", "budget:same-step"]
)
def test_a_budget_trims_before_the_first_token(models, rule):
    """Else the first token would say nothing about the rule."""
    shares = []

    def look(report, drafts, rows):
        if len(report.slots.request) == TOGETHER:  # first steps; few continuations take a second one
            shares.append(report.slots.admitted.sum() / report.slots.scheduled.sum())

    audit = Audit(*models, PROMPT, parse(rule), observer=look)
    for _ in audit.continuations(4 * TOGETHER):
        pass
    assert len(shares) == 4 and 0.15 < np.mean(shares) < 0.85


@pytest.mark.parametrize("rule", UNSOUND)
def test_unsound_rules_are_rejected_and_marked(models, rule):
    audit, _, fits = audited(models, rule, 12_000)
    assert rejected(fits), (fits, audit.exact_total_variation())
    assert parse(rule).label == f"UNSOUND {rule}"
    assert str(audit.engine.policy.arm) == audit.engine.step().arm == f"UNSOUND {rule}"


@pytest.mark.parametrize("rule", ["drawn:0.15", "budget:same-step", "noise:correction"])
def test_the_exact_total_variation_is_what_is_counted(models, rule):
    audit, counts, _ = audited(models, rule, 15_000)
    exact = audit.exact_total_variation()
    measured = np.abs(counts.one / counts.one.sum() - audit.one).sum() / 2
    assert exact > 0.015
    assert measured == pytest.approx(exact, abs=0.015)


def test_a_budget_of_the_same_step_is_exact_for_two_positions_only(models):
    target, _ = models
    deeper = BlockDrafter(target.folder.parent / "block", target, 3)
    assert Audit(target, deeper, PROMPT, parse("budget:same-step")).exact_total_variation() is None
    assert Audit(target, deeper, PROMPT, parse("drawn:0.15")).exact_total_variation() > 0.01


def test_scores_are_ranked_on_slots_that_none_of_them_chose(models):
    found, slots = rank(*models, [PROMPT, PROMPT[::-1]], count=1500)
    assert set(found) == {"maximum", "entropy", "margin", "head", "drawn"} and slots > 3000
    assert all(0 < auc < 1 for auc in found.values())
    assert parse("adaptive").predictor == parse("budget:earlier").predictor == "maximum"
    assert parse("adaptive:head").predictor == "head" and parse("fixed:2").predictor is None


def test_the_drawn_tokens_score_ranks_first_slots_as_their_rows_say(models):
    """Its AUC there, counted, against the exact one of the draft row and the target's."""
    score, label = [], []

    def look(report, drafts, rows):
        first = report.slots.request[0] % TOGETHER == 0 and len(report.slots.request) == TOGETHER
        if first:  # every continuation's first step
            score.append(scores("drawn", drafts)[:, 0])
            label.append(report.slots.label[:, 0])

    audit = Audit(*models, PROMPT, parse("fixed:2"), observer=look)
    q, p = audit.draft_row(), audit.one
    chance = np.minimum(1, p / np.maximum(q, 1e-30))
    accepted, refused = q * chance, q * (1 - chance)
    above = (q[:, None] > q) + 0.5 * (q[:, None] == q)
    exact = (accepted[:, None] * refused * above).sum() / (accepted.sum() * refused.sum())
    for _ in audit.continuations(8 * TOGETHER):
        pass
    assert len(label) >= 8 and (np.concatenate(label) >= 0).all()
    assert exact_auc(np.concatenate(score), np.concatenate(label)) == pytest.approx(exact, abs=0.03)


def test_other_temperatures_and_seeds(models):
    _, first, fits = audited(models, "fixed:2", 3000, seed=1, temperature=0.7)
    assert not rejected(fits)
    _, again, _ = audited(models, "fixed:2", 3000, seed=1, temperature=0.7)
    _, other, _ = audited(models, "fixed:2", 3000, seed=2, temperature=0.7)
    assert (first.one == again.one).all() and (first.one != other.one).any()


@pytest.mark.parametrize("rule", UNSOUND)
def test_serving_cannot_be_set_to_a_rule_that_is_not_sound(rule):
    with pytest.raises(PolicyError):
        Arm.parse(rule)
    with pytest.raises(Exception, match="policy"):
        RunConfig.make(policy=rule)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("best", "no rule 'best'"),
        ("drawn:2", "from 0 to 1"),
        ("drawn", "from 0 to 1"),
        ("noise:loud", "no rule"),
    ],
)
def test_what_is_no_rule_is_said(rule, sentence):
    with pytest.raises(AuditError, match=sentence):
        parse(rule)


def test_what_cannot_be_audited_is_said(models):
    with pytest.raises(AuditError, match="fewer than two tokens"):
        Audit(*models, [1], parse("none"))
    with pytest.raises(AuditError, match="130 tokens; an audit takes up to 123"):
        Audit(*models, PROMPT[:5] * 26, parse("none"))
    with pytest.raises(AuditError, match="temperature 0"):
        Audit(*models, PROMPT, parse("none"), temperature=0.0)
    with pytest.raises(AuditError, match="asks for 5 drafts"):
        Audit(*models, PROMPT, parse("fixed:5"))
