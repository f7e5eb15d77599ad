"""`+depth` and `+explore` in the engine's policy: what is decided, from what, and what it costs."""

import numpy as np
import pytest
from draft_features import features_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from avlab.bias.exact import Step
from avlab.bias.trimming import adaptive, maximum_probability
from avlab.policies.arm import Arm
from avlab.policies.base import PolicyContext, make_policy
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import FORGOTTEN, LEARNT, Offer, running_mean
from avlab.speculation.features import log_odds, probability
from avlab.speculation.labels import labels
from avlab.speculation.regression import Coefficients

UNKNOWN = float("nan")


def offer(earlier, coins=None, scheduled=None, **changes):
    earlier = np.array(earlier, dtype=float)
    B, K = earlier.shape
    scheduled = np.full(B, K) if scheduled is None else np.array(scheduled)
    coins = np.full(B, 0.999) if coins is None else np.array(coins)
    return Offer(scheduled, earlier, coins, **({"requests": B, "emitting": B, "other_tokens": B} | changes))


def costs(draft, verify, requests=8):
    """Draft cost by depth, the same for any number of requests, and verify cost by tokens."""
    return CostTable(np.tile(np.asarray(draft, float), (requests + 1, 1)), np.asarray(verify, float))


FLAT = 10 + 0.01 * np.arange(100)  # verification nearly free


def policy(text, table, K=3, **settings):
    return make_policy(Arm.parse(text), PolicyContext(K, table, **settings))


def step(policy, offered, feature):
    """One step of the protocol: decide, draft to that depth, estimate, admit."""
    decision = policy.decide(offered)
    offered.scheduled = np.minimum(offered.scheduled, decision.drafted)
    feature = np.where(np.arange(feature.shape[1]) < decision.drafted, feature, np.nan)
    estimates = policy.estimate(features_of(feature)) if decision.drafted else None
    return decision, estimates, policy.admit(decision, estimates, offered)


# ---- the engine's policy is the rule that was enumerated --------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(
    arrays.arrays(np.float64, (3, 2, 3), elements=st.one_of(st.just(0.75), st.floats(0.5, 0.99))),
    arrays.arrays(np.float64, (3, 2), elements=st.floats(0, 0.99)),
    arrays.arrays(np.float64, 4, elements=st.floats(0, 2)),
    arrays.arrays(np.float64, 9, elements=st.floats(0, 1)),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(["one", "running-mean"]),
)
def test_the_policy_decides_as_the_enumerated_rule(tops, coins, deeper, more, depth, explore, new_request):
    """Three steps of two requests whose rows have any maximum, with the coins given to both."""
    table = CostTable(np.tile(np.cumsum(deeper), (3, 1)), 0.1 + np.cumsum(more))
    served = policy(
        f"adaptive:raw{'+depth' if depth else ''}+explore={explore}", table, new_request=new_request
    )
    unknown = None if depth or new_request == "running-mean" else 1.0
    rule = adaptive(maximum_probability, table, depth, explore, unknown)
    earlier, memory = np.full((2, 3), np.nan), None
    for top, coin in zip(tops, coins, strict=True):
        rows = tuple(tuple(np.array([p, 1 - p]) for p in request) for request in top)
        told = Step(((0,), (0,)), ((0, 0, 0), (0, 0, 0)), rows, memory, tuple((coin < explore).tolist()))
        [(_, lengths)], memory = rule.admit(told), rule.remember(told)
        _, estimates, admission = step(served, offer(earlier, coin), log_odds(top))
        assert tuple(admission.admitted.tolist()) == lengths
        earlier = np.full((2, 3), np.nan) if estimates is None else estimates.probability
        np.testing.assert_allclose(earlier, np.array(memory[0], dtype=float), rtol=1e-12)
        np.testing.assert_allclose(served.mean_estimate, memory[1], rtol=1e-12)


# ---- what an earlier estimate is --------------------------------------------------------------------------------


def test_the_running_mean_learns_what_was_estimated_and_forgets_what_was_not():
    mean = running_mean(np.array([0.5, 0.5, 0.5]), np.array([[0.9, 0.1, UNKNOWN], [0.7, UNKNOWN, UNKNOWN]]))
    two = 1 - (1 - LEARNT) ** 2
    np.testing.assert_allclose(mean, [0.5 + two * 0.3, 0.5 - LEARNT * 0.4, 0.5 + FORGOTTEN * 0.5])
    many = running_mean(np.ones(1), np.full((64, 1), 0.4))
    assert many[0] == pytest.approx(0.4, abs=0.03)  # one step of 64 requests has told


def test_a_position_that_was_not_drafted_counts_as_its_mean_and_nothing_older():
    """The first step sees sure drafts; then nothing is known of the last position but the mean."""
    table = costs([0, 0.1, 0.2, 0.3], FLAT)
    served = policy("adaptive:raw+depth", table)
    served.decide(offer([[0.99, 0.99, 0.99]] * 2))
    mean = served.mean_estimate.copy()
    served.decide(offer([[0.2, 0.2, UNKNOWN]] * 2))
    assert served.mean_estimate[2] == pytest.approx(mean[2] + FORGOTTEN * (1 - mean[2]))
    expected = served.decide(offer([[0.2, 0.2, UNKNOWN]] * 2)).expected_tokens
    assert expected == pytest.approx(2 + 2 * (0.2 + 0.04 + 0.04 * served.mean_estimate[2]))


def test_new_requests_count_as_certain_only_where_depth_is_given():
    table = costs([0, 5, 5, 5], FLAT)
    hopeless = np.full((1, 3), 0.01)
    for text, expected in (("adaptive:raw", 4.0), ("adaptive:raw+depth", None)):
        served = policy(text, table)
        for _ in range(400):
            served.decide(offer(hopeless))
        tokens = served.decide(offer(np.full((1, 3), UNKNOWN))).expected_tokens
        assert tokens == expected if expected else tokens < 1.5


# ---- depth ------------------------------------------------------------------------------------------------------


def test_depth_follows_what_earlier_drafts_were_worth():
    table = costs([0, 1, 2, 3], FLAT)
    for estimates, depth in (
        ((0.9, 0.9, 0.9), 3),
        ((0.9, 0.9, 0.01), 2),
        ((0.9, 0.01, 0.01), 1),
        ((0.01,) * 3, 0),
    ):
        decision = policy("adaptive:raw+depth", table).decide(offer([estimates] * 2))
        assert (decision.depth, decision.drafted) == (depth, depth)
        assert policy("adaptive:raw", table).decide(offer([estimates] * 2)).drafted == 3


def test_without_a_draft_nothing_is_admitted_and_the_step_costs_the_target_alone():
    served = policy("adaptive:raw+depth", costs([0, 50, 50, 50], FLAT))
    decision, estimates, admission = step(served, offer([[0.3] * 3] * 2), np.zeros((2, 3)))
    assert (decision.drafted, estimates, admission.budget, admission.admitted.tolist()) == (
        0,
        None,
        0,
        [0, 0],
    )
    assert (admission.expected_tokens, admission.expected_ms) == (2.0, FLAT[2])


def test_a_policy_that_stopped_drafting_tries_again():
    """Drafts that were worthless for long: the mean of what is not drafted rises until a draft is worth a try."""
    served, drafted, earlier = (
        policy("adaptive:raw+depth", costs([0, 2, 4, 6], FLAT)),
        [],
        np.full((4, 3), UNKNOWN),
    )
    for _ in range(2000):
        decision, estimates, _ = step(served, offer(earlier), np.full((4, 3), log_odds(0.05)))
        drafted.append(decision.drafted)
        earlier = np.full((4, 3), UNKNOWN) if estimates is None else estimates.probability
    tries = np.flatnonzero(drafted[-1000:])
    assert 0 < len(tries) < 50, "it must try, and seldom"
    for _ in range(300):  # drafts have become good
        decision, estimates, _ = step(served, offer(earlier), np.full((4, 3), log_odds(0.95)))
        earlier = np.full((4, 3), UNKNOWN) if estimates is None else estimates.probability
    assert decision.drafted == 3


def test_costs_that_know_no_depth_are_paid_in_full_by_any_draft():
    table = CostTable(np.full(9, 5.0), FLAT)
    assert policy("adaptive:raw+depth", table).decide(offer([[0.9, 0.9, 0.1]] * 2)).depth == 3
    assert policy("adaptive:raw+depth", table).decide(offer([[0.01] * 3] * 2)).depth == 0


# ---- exploration ------------------------------------------------------------------------------------------------


def test_a_coin_verifies_a_request_in_full_on_top_of_the_budget():
    dear = 1 + 10.0 * np.arange(40)
    served = policy("adaptive:raw+explore=0.1", costs([0, 1, 2, 3], dear))
    given = offer([[0.5, 0.5, 0.5]] * 3, coins=[0.5, 0.05, 0.0999], scheduled=[3, 3, 2])
    decision, _, admission = step(served, given, np.zeros((3, 3)))
    assert decision.budget == 0 and admission.admitted.tolist() == [0, 3, 2]
    assert (admission.explored, admission.explored_ms) == (5, pytest.approx(50.0))
    assert admission.expected_ms == pytest.approx(3 + dear[3 + 5])


def test_exploration_takes_nothing_from_the_ranking():
    table = costs([0, 1, 2, 3], 10 + np.maximum(0, np.arange(40.0) - 7))
    feature = log_odds(np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.95, 0.2, 0.1]]))
    given = {"earlier": [[0.9, 0.7, 0.5]] * 3}
    plain = step(policy("adaptive:raw", table), offer(**given), feature)[2]
    coins = [0.9, 0.001, 0.9]
    explored = step(policy("adaptive:raw+explore=0.02", table), offer(**given, coins=coins), feature)[2]
    assert explored.budget == plain.budget and 0 < plain.admitted[1] < 3
    assert explored.admitted.tolist() == [plain.admitted[0], 3, plain.admitted[2]]
    assert explored.explored == 3 - plain.admitted[1]


def test_under_depth_the_first_requests_coin_is_everybodys_and_asks_for_full_drafts():
    table = costs([0, 50, 50, 60], FLAT)
    served = policy("adaptive:raw+depth+explore=0.02", table)
    for coins, drafted in (([0.5, 0.01, 0.01], 0), ([0.01, 0.5, 0.5], 3)):
        decision, _, admission = step(served, offer([[0.1] * 3] * 3, coins=coins), np.zeros((3, 3)))
        assert (decision.depth, decision.drafted) == (0, drafted)
        assert admission.admitted.tolist() == [drafted] * 3 and admission.explored == 3 * drafted
        assert admission.explored_ms == pytest.approx(60 + FLAT[12] - FLAT[3] if drafted else 0.0)


def learn(text, steps=3000, B=16, K=3, truth=0.9):
    """Drafts that are mostly right, and an estimator that begins too low for any to be verified at this price.

    Returns its last coefficients, and how many draft tokens were admitted in each step.
    """
    random = np.random.default_rng(5)
    served = policy(text, costs([0, 0.5, 1, 1.5], 20 + 1.1 * np.arange(100), B), new_request="running-mean")
    served.estimator.coefficients = Coefficients(0.5, np.full(K, -2.0))
    served.mean_estimate[:] = 0.2
    earlier, admitted = np.full((B, K), UNKNOWN), []
    for _ in range(steps):
        feature = random.normal(2.0, 0.3, (B, K))
        decision, estimates, admission = step(served, offer(earlier, random.random(B)), feature)
        earlier = np.full((B, K), UNKNOWN) if estimates is None else estimates.probability
        if decision.drafted:
            kept = (random.random((B, K)) < truth) & (np.arange(K) < admission.admitted[:, None])
            served.observe(
                features_of(feature),
                estimates,
                labels(np.cumprod(kept, axis=1).sum(1), admission.admitted, K),
            )
        served.end_step()
        admitted.append(int(admission.admitted.sum()))
    return served.estimator.coefficients, admitted


def test_a_starved_estimator_stays_stuck_without_exploration():
    coefficients, admitted = learn("adaptive")
    assert sum(admitted) == 0 and (coefficients.intercepts == -2.0).all()


@pytest.mark.parametrize("text", ["adaptive+explore=0.02", "adaptive+depth+explore=0.02"])
def test_exploration_ends_starvation_at_every_position(text):
    coefficients, admitted = learn(text)
    estimates = probability(coefficients.predict_log_odds(np.full(3, 2.0)))
    np.testing.assert_allclose(estimates, 0.9, atol=0.06)
    assert np.mean(admitted[-500:]) > 0.9 * 16 * 3
