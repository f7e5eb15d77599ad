"""What a step reports and teaches: labels through the first rejection, not past what was admitted or emitted."""

import itertools

import numpy as np
import pytest
import torch
from tiny_models import LLAMA, make_engine, serve, write_block_drafter, write_llama

from avlab.engine.drafts import Drafts
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.plan import plan_step
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.policies.arm import Arm, PolicyError
from avlab.speculation.costs import CostTable
from avlab.speculation.features import Features, max_log_odds
from avlab.speculation.regression import Coefficients, RoundStatistics, refit

V, K = LLAMA["vocab_size"], 4
DEPTH = "adaptive+depth+explore=0.2"
FEATURE = "max_log_odds"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    target = write_llama(folder / "target", seed=1)
    return {
        "target": Target(target, torch.float32),
        "block": write_block_drafter(folder / "block", target),
        "llama": write_llama(folder / "llama", seed=2, num_hidden_layers=1),
        "end": write_llama(folder / "end", seed=1, eos_token_id=[5, 9, 11, 30, 31, 40, 52]),
    }


def asked(n=20, temperature=1.0):
    return [
        Request(i, [i + 1, i + 2, 7], 3 + i, temperature=temperature, seed=i, kind=f"k{i % 3}")
        for i in range(n)
    ]


@pytest.mark.parametrize("target", ["target", "end"])
@pytest.mark.parametrize("arm", ["adaptive", "adaptive:raw", "fixed:2", "fixed:4", "verify:2", DEPTH])
@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_every_slot_of_a_step_is_accounted_for(models, target, drafter, arm):
    engine = make_engine(
        models[target] if target == "target" else models["end"], drafter, models[drafter], arm
    )
    end, length = engine.target.config.end_tokens, {r.id: r.max_new_tokens for r in asked()}
    said = dict.fromkeys(length, 0)
    ended = rejected = 0
    _, reports = serve(engine, asked())
    for report in reports:
        new = {request.id: tokens for request, tokens in report.emitted}
        assert report.emitting == len(new) and report.tokens == sum(map(len, new.values()))
        s = report.slots
        admitted_sum = 0 if s is None else s.admitted.sum()
        decoding = 0 if s is None else len(s.request)
        if report.drafted or not report.admission:
            assert report.target_tokens == report.prompt_tokens + decoding + admitted_sum
        for row, i in enumerate(() if s is None else s.request):
            scheduled, admitted, accepted = s.scheduled[row], s.admitted[row], s.accepted[row]
            assert 0 <= accepted <= admitted <= scheduled <= min(report.drafted, length[i] - said[i] - 1)
            assert new[i][:accepted] == s.tokens[row, :accepted].tolist()
            behind_end = next((k + 1 for k in range(accepted) if s.tokens[row, k] in end), K + 1)
            expected = np.full(K, -1)
            expected[:accepted] = 1
            if accepted < min(admitted, behind_end):
                expected[accepted] = 0
                rejected += 1
                assert new[i][-1] != s.tokens[row, accepted]  # a recovered token is never the refused draft
            np.testing.assert_array_equal(s.label[row], expected)
            ended += behind_end < admitted
            assert len(new[i]) == (accepted if behind_end <= accepted else accepted + 1)
        for i, tokens in new.items():
            said[i] += len(tokens)
    assert rejected > 20
    assert ended > 0 or target == "target"


def test_depth_moves_and_what_is_not_drafted_is_not_known_later(models):
    """Estimates of the next decision are those of the positions that this step drafted."""
    engine = make_engine(models["target"], "block", models["block"], "adaptive+depth", max_num_seqs=6)
    _, reports = serve(engine, asked(40))
    drafted = [r.drafted for r in reports if r.admission]
    assert len(set(drafted)) > 1
    for r in reports:
        if r.slots is not None:
            assert r.drafted and r.slots.tokens.shape[1] == r.drafted
            assert np.isfinite(r.slots.estimates.probability[:, : r.drafted]).all()
            assert np.isnan(r.slots.estimates.probability[:, r.drafted :]).all()


def test_a_fixed_arm_leaves_no_old_estimates_behind(models):
    engine = make_engine(models["target"], "block", models["block"], "adaptive")
    for request in asked(8):
        request.max_new_tokens = 40
        engine.add(request)
    for arm, known in (("adaptive", True), ("fixed:2", False), ("adaptive", True), ("none", False)):
        engine.set_policy(Arm.parse(arm))
        engine.step()
        engine.step()
        assert all(np.isfinite(s.earlier).all() == known for s in engine.sequences)


def test_what_is_explored_is_what_the_ranking_would_not_have_admitted(models):
    """Two engines with the same coins, told the same: with a chance of one, everything beyond the ranking."""
    reports = {}
    for arm in ("adaptive:raw", "adaptive:raw+explore=1"):
        engine = make_engine(models["target"], "block", models["block"], arm, bump=1.0)
        reports[arm] = next(r for r in serve(engine, asked(8))[1] if r.slots is not None and r.running == 8)
    plain, explored = reports.values()
    assert explored.slots.admitted.tolist() == explored.slots.scheduled.tolist()
    assert explored.admission.budget == plain.admission.budget
    assert explored.admission.explored == (plain.slots.scheduled - plain.slots.admitted).sum() >= 0


def test_the_same_seeds_give_the_same_tokens_under_both_switches(models):
    said = [
        [
            r.emitted
            for r in serve(make_engine(models["target"], "block", models["block"], DEPTH), asked(12))[1]
        ]
        for _ in range(2)
    ]
    assert said[0] == said[1]


def test_fixed_arms_differ_in_what_they_draft(models):
    scheduled = {}
    for arm in ("fixed:2", "verify:2"):
        engine = make_engine(models["target"], "block", models["block"], arm)
        report = next(r for r in serve(engine, [Request(0, [1, 2], 30)])[1] if r.slots is not None)
        scheduled[arm] = (report.drafted, int(report.slots.scheduled[0]), int(report.slots.admitted[0]))
    assert scheduled == {"fixed:2": (2, 2, 2), "verify:2": (4, 4, 2)}


@pytest.mark.parametrize("target", ["target", "end"])
def test_the_estimator_learns_exactly_the_reported_labels(models, target):
    """Sums and coefficients recomputed from the reports alone equal the engine's own, refit after refit."""
    engine = make_engine(models[target], "block", models["block"], "adaptive", refit_interval=6)
    _, reports = serve(engine, asked(40))
    coefficients, statistics, refits = Coefficients.cold_start(K), RoundStatistics.zero(K), 0
    for report in reports:
        s = report.slots
        if s is not None:
            np.testing.assert_allclose(
                s.estimates.probability, coefficients.predict(s.features[FEATURE]), rtol=1e-12
            )
            statistics += RoundStatistics.of(
                s.features[FEATURE], s.estimates.probability, s.label.astype(float), s.label >= 0
            )
        if report.refit is not None:
            refits += 1
            assert (report.refit.number, report.refit.step) == (refits, 6 * refits)
            np.testing.assert_allclose(report.refit.statistics.sums, statistics.sums, rtol=1e-12)
            after = refit(coefficients, statistics)
            assert report.refit.after.slope == pytest.approx(after.slope, rel=1e-12)
            np.testing.assert_allclose(report.refit.after.intercepts, after.intercepts, rtol=1e-12)
            coefficients, statistics = report.refit.after, RoundStatistics.zero(K)
    assert refits == len(reports) // 6 > 3
    assert coefficients.slope != 0.5


def test_an_estimator_learns_in_its_own_blocks_only(models):
    engine = make_engine(models["target"], "block", models["block"], "adaptive", refit_interval=1000)
    for request in asked(40):
        engine.add(request)
    for arm, steps in (("adaptive", 5), ("fixed:2", 4), ("none", 3), ("adaptive:raw", 3), ("adaptive", 2)):
        engine.set_policy(Arm.parse(arm))
        estimator = engine.policies["adaptive"].estimator
        before = estimator.steps, estimator.statistics.sums.copy()
        for _ in range(steps):
            engine.step()
        learnt = arm == "adaptive"
        assert estimator.steps == before[0] + (steps if learnt else 0)
        assert (estimator.statistics.sums != before[1]).any() == learnt
    assert estimator.steps == 7


def test_features_are_those_of_the_drafts_rows(models):
    """Log-odds of each row's maximum, greedy rows unscaled: recomputed from the distributions themselves."""
    engine = make_engine(models["target"], "block", models["block"], "adaptive")
    drafted, propose = [], engine.drafter.propose
    engine.drafter.propose = lambda *given: drafted.append(propose(*given)) or drafted[-1]
    _, reports = serve(engine, asked(8, temperature=0.8))
    for drafts, report in zip(drafted, [r for r in reports if r.slots is not None], strict=True):
        feature = max_log_odds(np.log(drafts.draft_probs.double().numpy()))
        np.testing.assert_allclose(np.exp(-report.slots.features[FEATURE]), np.exp(-feature), rtol=1e-4)


def test_a_request_carries_its_estimates_to_the_next_budget(models):
    engine = make_engine(models["target"], "block", models["block"], "adaptive", max_num_seqs=3)
    offers, policy = [], engine.policy
    decide = policy.decide
    policy.decide = lambda offer: offers.append(offer) or decide(offer)
    _, reports = serve(engine, asked(9))
    last = {}
    for offer, report in zip(offers, [r for r in reports if r.slots is not None], strict=True):
        for i, earlier, estimate in zip(
            report.slots.request, offer.earlier, report.slots.estimates.probability, strict=True
        ):
            np.testing.assert_array_equal(earlier, last.get(i, np.full(K, np.nan)))
            last[i] = estimate


def test_a_new_request_may_start_from_the_running_mean(models):
    engine = make_engine(
        models["target"], "block", models["block"], "adaptive", max_num_seqs=2, new_request="running-mean"
    )
    serve(engine, asked(8))
    assert (engine.policy.mean_estimate < 1).all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_model_that_is_the_target_is_always_right(models, temperature):
    """Also after refusals by trimming, policies that do not draft, and a slot's former request."""
    engine = make_engine(models["target"], "llama", models["target"].folder, "fixed:4", max_num_seqs=5)
    arms, seen = itertools.cycle(["fixed:4", "verify:2", "none", "fixed:3"]), 0
    for request in asked(14, temperature):
        engine.add(request)
    while engine.running or engine.waiting:
        engine.set_policy(Arm.parse(next(arms)))
        slots = engine.step().slots
        if slots is not None:
            np.testing.assert_array_equal(slots.accepted, slots.admitted)
            seen += slots.accepted.sum()
    assert seen > 50


@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_a_shallow_draft_is_the_head_of_a_deep_one(models, drafter):
    engine = make_engine(models["target"], drafter, models[drafter], "none", max_num_seqs=5)
    for i, request in enumerate(asked(5)):
        request.temperature, request.max_new_tokens = [0.0, 0.5, 1.0, 1.0, 2.0][i], 20
        engine.add(request)
    for _ in range(3):
        engine.step()
    plan = plan_step(engine.sequences, K, engine.room, 1, engine.target.device)
    assert len(plan.ready) == 5

    def propose(depth):
        for slot in range(5):
            engine.drafter.forget(slot)  # a draft model reads the text again
        return engine._propose(engine.drafter, plan, depth)

    deep = propose(K)
    for depth in range(1, K + 1):
        shallow = propose(depth)
        assert shallow.tokens.tolist() == deep.tokens[:, :depth].tolist()
        np.testing.assert_allclose(shallow.draft_probs, deep.draft_probs[:, :depth], atol=1e-6)
        assert shallow.features.names == deep.features.names
        known, whole = shallow.features.values, deep.features.values
        np.testing.assert_allclose(known[:, :depth], whole[:, :depth], atol=1e-4)
        assert np.isnan(known[:, depth:]).all() and np.isfinite(whole).all()


class Parrot:
    """A drafter without logits: it proposes the last tokens of the request again."""

    name, K, state_layers, features = "parrot", K, (), (FEATURE,)

    def propose(self, inputs, depth):
        tokens = [(history * depth)[-depth:] for history in inputs.history]
        nothing = Features(self.features, np.full((len(tokens), depth, 1), np.nan))
        return Drafts(torch.tensor(tokens), draft_probs=None, vocabulary=None, features=nothing)

    def assume_read(self, cache_row, tokens):
        pass

    def forget(self, cache_row):
        pass


@pytest.mark.parametrize("arm", ["fixed:4", "adaptive"])
def test_a_drafter_without_logits_is_served(models, arm):
    verify, draft = [(1, 1.0), (64, 1.5)], [(1, 1, 0.0), (1, K, 0.0)]
    table = CostTable.linear(draft, verify, 4, 1000, K=K)
    engine = Engine(models["target"], Parrot(), table, EngineConfig(max_num_seqs=4), Arm.parse(arm))
    plain, _ = serve(make_engine(models["target"], max_num_seqs=4), asked(8, temperature=0.0))
    finished, reports = serve(engine, asked(8, temperature=0.0))
    assert {i: f.sequence.tokens for i, f in finished.items()} == {
        i: f.sequence.tokens for i, f in plain.items()
    }
    if arm == "fixed:4":
        assert sum(r.slots.accepted.sum() for r in reports if r.slots is not None) > 0


def test_an_arm_of_a_head_that_the_drafter_lacks_is_refused(models):
    with pytest.raises(PolicyError, match="adaptive:head does not exist for this drafter"):
        make_engine(models["target"], "llama", models["llama"], "adaptive:head")
    engine = make_engine(models["target"], "block", models["block"], "adaptive:head")
    assert str(engine.policy.arm) == "adaptive:head"
