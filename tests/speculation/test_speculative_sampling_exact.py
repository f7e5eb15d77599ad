"""Speculative sampling keeps the target's distribution under any sound admission rule, by enumeration."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from avlab.bias.exact import Pair, Rule, output_distribution, target_law, token_distribution, total_variation
from avlab.bias.sampled import sample_outputs
from avlab.bias.trimming import (
    SCORES,
    adaptive,
    by_cost,
    by_prefix,
    drawn_token_probability,
    fixed,
    ranked,
    threshold,
    with_exploration,
)
from avlab.speculation.budget import first_peak
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer, admit, decide
from avlab.speculation.sampling import acceptance_probability, draw, residual, speculative_sample

SOUND_SCORES = [score for name, score in SCORES.items() if score is not drawn_token_probability]


def tables(*shape):
    """Tables of distributions over the last axis, with zeros, certainties and equal rows among them."""
    weights = arrays.arrays(np.int64, shape, elements=st.integers(0, 4))
    certain = arrays.arrays(np.int64, shape[:-1], elements=st.integers(0, shape[-1] - 1))

    def normalised(pair):
        weight, token = pair[0].astype(float), pair[1]
        empty = weight.sum(axis=-1) == 0
        weight[empty] = (np.arange(shape[-1]) == token[..., None])[empty]
        return weight / weight.sum(axis=-1, keepdims=True)

    return st.tuples(weights, certain).map(normalised)


@st.composite
def pairs(draw_from, largest_V=6, largest_K=3):
    V, K = draw_from(st.integers(2, largest_V)), draw_from(st.integers(1, largest_K))
    target = draw_from(tables(V, V))
    if draw_from(st.booleans()):
        return Pair.markov(target, draw_from(tables(V, V)), K)
    return Pair.parallel(target, draw_from(tables(V, K, V)))


def any_sound_rule(seed: int):
    """Slot by slot a chance that is any function of history, prefix, request and the step before."""

    def chance(history, prefix, earlier, request):
        choice = random.Random(str((seed, history, prefix, earlier, request)))
        return choice.choice([0.0, 1.0, 1.0, choice.random()])

    return by_prefix(chance, remember=lambda step: sum(map(sum, step.tokens)) % 3)


def bend(pair, rule, starts=(0,), length=3, **how):
    """Total variation between what comes out and what is due."""
    return total_variation(
        output_distribution(pair, rule, starts, length, **how), target_law(pair, starts, length)
    )


@settings(deadline=None, max_examples=150)
@given(pairs(), st.integers(0, 2**32))
def test_any_sound_rule_over_two_steps_keeps_the_target(pair, seed):
    assert bend(pair, any_sound_rule(seed)) < 1e-12


@settings(deadline=None, max_examples=20)
@given(pairs(3, 2), st.integers(0, 2**32))
def test_two_requests_at_once(pair, seed):
    assert bend(pair, any_sound_rule(seed), starts=(0, 1), length=2) < 1e-12


@settings(deadline=None, max_examples=80)
@given(
    pairs(3, 2),
    st.sampled_from(SOUND_SCORES),
    arrays.arrays(np.float64, 5, elements=st.floats(0.1, 3)),
    st.integers(1, 2),
)
def test_survival_ranking_with_an_earlier_budget_keeps_the_target(pair, score, increments, B):
    rule = ranked(score, by_cost(np.cumsum(increments)))
    assert bend(pair, rule, starts=(0, 1)[:B], length=2) < 1e-12


@settings(deadline=None, max_examples=80)
@given(
    pairs(3, 2),
    st.sampled_from(SOUND_SCORES),
    arrays.arrays(np.float64, 5, elements=st.floats(0.1, 3)),
    st.integers(1, 2),
)
def test_early_stopping_keeps_the_target_with_this_steps_estimates(pair, score, increments, B):
    rule = ranked(score, by_cost(np.cumsum(increments), first_peak), earlier_budget=False)
    assert bend(pair, rule, starts=(0, 1)[:B], length=2) < 1e-12


@settings(deadline=None, max_examples=80)
@given(pairs(4, 3), st.sampled_from(SOUND_SCORES), st.floats(0, 1), st.floats(0, 1))
def test_thresholds_on_the_row_and_a_blind_coin_keep_the_target(pair, score, cut, share):
    assert bend(pair, with_exploration(threshold(score, cut), share)) < 1e-12


def step_costs(deeper, increments) -> CostTable:
    """Any costs of a draft by depth, and of the target's pass by tokens, neither convex."""
    return CostTable(np.tile(np.cumsum(deeper), (3, 1)), 0.1 + np.cumsum(increments))


SWITCHES = st.tuples(
    st.booleans(), st.sampled_from([0.0, 0.02, 0.3, 1.0]), st.sampled_from([1.0, None])
)  # depth, explore, what an unknown slot counts as


@settings(deadline=None, max_examples=200)
@given(
    pairs(3, 3),
    st.sampled_from(SOUND_SCORES),
    arrays.arrays(np.float64, 4, elements=st.floats(0, 2)),
    arrays.arrays(np.float64, 9, elements=st.floats(0, 1)),
    SWITCHES,
)
def test_adaptive_depth_and_exploration_keep_the_target(pair, score, deeper, increments, switches):
    rule = adaptive(score, step_costs(deeper, increments), *switches)
    assert bend(pair, rule, length=3) < 1e-12


@settings(deadline=None, max_examples=60)
@given(
    pairs(2, 2),
    st.sampled_from(SOUND_SCORES),
    arrays.arrays(np.float64, 4, elements=st.floats(0, 2)),
    arrays.arrays(np.float64, 9, elements=st.floats(0, 1)),
    SWITCHES,
)
def test_adaptive_depth_and_exploration_with_two_requests(pair, score, deeper, increments, switches):
    rule = adaptive(score, step_costs(deeper, increments), *switches)
    assert bend(pair, rule, starts=(0, 1), length=2) < 1e-12


@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize("choose_depth", [False, True])
@pytest.mark.parametrize("price", [0.0, 0.4, 0.9, 1.1])
def test_all_equal_survivals_keep_the_target_under_both_switches(choose_depth, explore, price):
    """Certain rows: every survival is 1; the price of a token moves depth and budget through all their values."""
    pair = Pair.markov([[0.3, 0.7], [0.6, 0.4]], [[1.0, 0.0], [0.0, 1.0]], 2)
    costs = step_costs([0.0, 0.1, 0.3, 0.1], 1.0 + price * np.arange(9))
    rule = adaptive(SCORES["maximum probability"], costs, choose_depth, explore)
    assert bend(pair, rule, starts=(0, 1), length=3) < 1e-12


def test_depth_from_this_steps_estimates_bends_the_output(knee):
    """The same functions, told this step's estimates as though they were the earlier ones."""
    pair, cost = knee
    costs = CostTable(np.tile([0.0, 0.05, 0.05], (2, 1)), np.array([0.0, *cost]))

    def admitted(step):
        now = np.array([[row.max() for row in step.rows[0]]])
        offer = Offer(np.array([2]), now, np.zeros(1), 1, 1, 1)
        decision = decide(offer, np.ones(2), costs, True, np.array([False]))
        return [(1.0, tuple(admit(decision, now, offer.scheduled)[0].tolist()))]

    assert bend(pair, Rule(admitted), starts=(1,), length=1, steps=1) > 0.1
    sound = adaptive(SCORES["maximum probability"], costs, choose_depth=True)
    assert bend(pair, sound, starts=(1,)) < 1e-12


def test_a_coin_that_knows_the_draft_bends_the_output():
    """What the coin must not be: one and the same as the draft's noise."""
    pair = Pair.parallel([[0.5, 0.5]] * 2, [[[0.2, 0.8]]] * 2)
    rule = Rule(lambda step: [(1.0, (int(step.tokens[0][0] == 0),))])
    np.testing.assert_allclose(output_distribution(pair, rule, steps=1), [0.6, 0.4], atol=1e-12)


@pytest.mark.parametrize("budget", range(5))
def test_all_equal_survivals_keep_the_target(budget):
    """Certain rows: every survival is 1, and the order alone decides."""
    pair = Pair.markov([[0.3, 0.7], [0.6, 0.4]], [[1.0, 0.0], [0.0, 1.0]], 2)
    for earlier in (True, False):
        rule = ranked(SCORES["maximum probability"], lambda _: budget, earlier)
        assert bend(pair, rule, starts=(0, 1), length=3) < 1e-12


def test_the_drawn_tokens_own_probability_bends_the_output():
    """The article's example: target (.5, .5), draft (.2, .8), verification cancelled below one half."""
    pair = Pair.parallel([[0.5, 0.5]] * 2, [[[0.2, 0.8]]] * 2)
    output = output_distribution(pair, threshold(drawn_token_probability, 0.5), steps=1)
    np.testing.assert_allclose(output, [0.4, 0.6], rtol=0, atol=1e-12)
    for score in SOUND_SCORES:
        np.testing.assert_allclose(
            output_distribution(pair, threshold(score, 0.5), steps=1), [0.5, 0.5], rtol=0, atol=1e-12
        )


@pytest.fixture
def knee():
    """After token 0 the second draft row is nearly certain, after token 1 flat; only two drafts pay."""
    return Pair.markov([[0.5, 0.5]] * 2, [[0.99, 0.01], [0.5, 0.5]], 2), [1.0, 1.9, 1.9]


def test_a_budget_from_this_steps_estimates_bends_the_output(knee):
    pair, cost = knee
    maximum = SCORES["maximum probability"]
    output = output_distribution(pair, ranked(maximum, by_cost(cost), earlier_budget=False), starts=(1,))
    np.testing.assert_allclose(output, [0.75, 0.25], rtol=0, atol=1e-12)


def test_earlier_estimates_and_early_stopping_both_repair_it(knee):
    pair, cost = knee
    maximum = SCORES["maximum probability"]
    assert bend(pair, ranked(maximum, by_cost(cost)), starts=(1,)) < 1e-12
    assert bend(pair, ranked(maximum, by_cost(cost, first_peak), earlier_budget=False), starts=(1,)) < 1e-12


def test_ties_by_chance_bend_the_output():
    """After token 0 both slots of a request survive alike, so it holds more lots for the one place."""
    pair = Pair.markov([[0.5, 0.5]] * 2, [[1.0, 0.0], [0.5, 0.5]], 2)
    maximum = SCORES["maximum probability"]
    in_order, by_chance = (
        output_distribution(pair, ranked(maximum, lambda _: 1, chance_ties=chance), starts=(1, 1), steps=1)
        for chance in (False, True)
    )
    np.testing.assert_allclose(in_order, 0.25, atol=1e-12)
    np.testing.assert_allclose(by_chance, [[7 / 24, 6 / 24], [6 / 24, 5 / 24]], atol=1e-12)


def test_draft_noise_used_again_lets_an_earlier_estimate_know_the_coming_draw():
    """All or nothing, by the step before's certainty at the last slot."""
    pair = Pair.markov([[0.5, 0.5]] * 2, [[0.9, 0.1], [0.5, 0.5]], 3)
    rule = Rule(
        admit=lambda step: [(1.0, (3 if step.earlier is None or step.earlier > 0.7 else 0,))],
        remember=lambda step: float(step.rows[0][-1].max()),
    )
    fresh, again = (
        output_distribution(pair, rule, (1,), length=8, steps=8, draft_noise_again=mode)
        for mode in (False, True)
    )
    assert total_variation(fresh, target_law(pair, (1,), 8)) < 1e-12
    share = [token_distribution(again, 2, position=position)[0] for position in range(8)]
    assert share[5] == pytest.approx(0.526, abs=1e-9)


def test_the_drawn_token_rule_one_step_late_with_noise_used_again():
    """The drawn token's q is remembered by place in the text, and asked when the place is drafted again."""

    def places(step):
        return range(len(step.histories[0]), len(step.histories[0]) + 2)

    def remember(step):
        drawn = [float(row[token]) for row, token in zip(step.rows[0], step.tokens[0], strict=True)]
        return tuple(zip(places(step), drawn, strict=True))

    def admit(step):
        known = dict(step.earlier or ())
        low = [k for k, place in enumerate(places(step)) if known.get(place, 0.0) < 0.5]
        return [(1.0, (low[0] if low else 2,))]

    pair = Pair.markov([[0.5, 0.5]] * 2, [[0.2, 0.8]] * 2, 2)
    rule = Rule(admit, remember)
    assert bend(pair, rule, length=2) < 1e-12
    again = output_distribution(pair, rule, length=2, draft_noise_again=True)
    np.testing.assert_allclose(token_distribution(again, 2, position=1), [0.4, 0.6], atol=1e-12)


def test_a_correction_from_the_drafts_own_noise_bends_the_output():
    pair = Pair.parallel([[0.6, 0.3, 0.1]] * 3, [[[0.2, 0.2, 0.6]]] * 3)
    assert bend(pair, fixed(1), length=1) < 1e-12
    assert bend(pair, fixed(1), length=1, target_shares_noise=True) > 0.01


def test_the_sampler_agrees_with_the_enumeration():
    """Drawn by the reference sampler, with a rule that bends the output: both must show the same bend."""
    scipy_stats = pytest.importorskip("scipy.stats")
    pair = Pair.markov(
        [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]],
        [[0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [0.8, 0.1, 0.1]],
        2,
    )
    rule = threshold(drawn_token_probability, 0.35)
    exact = output_distribution(pair, rule, length=2)
    counts = sample_outputs(pair, rule, 4000, np.random.default_rng(3), length=2)
    assert scipy_stats.chisquare(counts, exact * 4000).pvalue > 1e-3
    assert scipy_stats.chisquare(counts, target_law(pair, length=2) * 4000).pvalue < 1e-6


def test_the_sampler_is_exact_over_a_grid_of_uniforms():
    """p and q in sixths: with uniforms on a fine grid, counting every draw gives the target to rounding."""
    p, q = np.array([[[1, 3, 2]] * 2]) / 6, np.array([[[3, 1, 2]]]) / 6
    grid = (np.arange(6) + 0.5) / 6
    tokens, accepting, choosing = (a.ravel() for a in np.meshgrid(range(3), grid, grid, indexing="ij"))
    B = len(tokens)
    drafts = tokens[:, None].astype(int)
    target, draft = np.repeat(p, B, 0), np.repeat(q, B, 0)
    outcome = speculative_sample(target, draft, drafts, np.ones(B, int), accepting[:, None], choosing)
    first = np.where(outcome.accepted == 1, tokens, outcome.token).astype(int)
    law = np.bincount(first, weights=q[0, 0][tokens.astype(int)] / 36, minlength=3)
    np.testing.assert_allclose(law, [1 / 6, 3 / 6, 2 / 6], atol=1e-12)
    assert (outcome.rejected == (outcome.accepted == 0)).all()


def test_a_trimmed_draft_is_not_looked_at():
    p = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    q, drafts = np.array([[[1.0, 0.0]]]), [[0]]
    trimmed = speculative_sample(p, q, drafts, [0], [[0.0]], [0.5])
    assert (trimmed.accepted[0], trimmed.token[0], trimmed.rejected[0]) == (0, 1, False)
    refused = speculative_sample(p, q, drafts, [1], [[0.0]], [0.5])
    assert (refused.accepted[0], refused.token[0], refused.rejected[0]) == (0, 1, True)


def test_acceptance_and_residual_at_the_edges():
    assert acceptance_probability([0.5, 0.0, 0.5], [0.25, 0.75, 0.0]).tolist() == [1.0, 0.0, 1.0]
    assert residual([0.5, 0.5], [0.5, 0.5]).tolist() == [0.5, 0.5]
    assert residual([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]).tolist() == [1.0, 0.0, 0.0]
    assert draw([0.0, 0.5, 0.5, 0.0], [0.0, 0.49, 0.5, 1.0 - 1e-16]).tolist() == [1, 1, 2, 2]
