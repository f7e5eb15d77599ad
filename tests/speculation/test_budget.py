import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from avlab.speculation.budget import (
    choose_budget,
    choose_depth_and_budget,
    expected_tokens,
    first_peak,
    objective,
    offered,
    peak,
    survival,
)


def test_survival_is_the_running_product_in_float64():
    result = survival(np.array([[0.5, 0.5, 1.0], [1.0, 0.0, 0.9]], dtype=np.float32))
    assert result.dtype == np.float64
    assert result.tolist() == [[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]


@given(arrays.arrays(np.float64, (3, 7), elements=st.floats(0, 1)))
def test_survival_never_rises(estimate):
    assert (np.diff(survival(estimate), axis=1) <= 0).all()


def test_only_scheduled_slots_are_offered():
    grid = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
    assert offered(grid, [1, 3]).tolist() == [0.9, 0.6, 0.5, 0.4]
    assert offered(grid, [0, 0]).size == 0


def test_the_objective_is_expected_tokens_over_time():
    draft, verify = [0.0, 1.0, 2.0], [10.0, 10.0, 11.0, 12.0, 14.0, 17.0]
    curve = objective([0.5, 0.9, 0.1], draft, verify, requests=2, emitting=2, other_tokens=2)
    np.testing.assert_allclose(curve, [2 / 13, 2.9 / 14, 3.4 / 16, 3.5 / 19])
    assert peak(curve) == 2


def test_free_verification_admits_everything_and_dear_verification_nothing():
    some = [0.9, 0.2, 0.01]
    assert choose_budget(some, [0, 1], np.full(9, 5.0), 1, 1, 1) == 3
    assert choose_budget(some, [0, 1], np.arange(9) * 1000.0 + 1, 1, 1, 1) == 0


def test_ties_take_the_smaller_budget():
    """Survivals of 0 add nothing and cost nothing; then half a token for half the time."""
    assert choose_budget([0.5, 0.0, 0.0], [0, 1], [4.0] * 9, 1, 1, 1) == 1
    assert choose_budget([0.5], [0, 0], [0.0, 2.0, 3.0], 1, 1, 1) == 0


def test_a_budget_never_leaves_the_verify_table():
    curve = objective(np.full(10, 0.9), [0, 1], [1.0] * 5, 1, 1, other_tokens=2)
    assert len(curve) == 3
    with pytest.raises(ValueError, match="profile larger sizes"):
        objective([0.9], [0, 1], [1.0] * 5, 1, 1, other_tokens=5)
    with pytest.raises(ValueError, match="2 requests"):
        objective([0.9], [0, 1], [1.0] * 5, 2, 1, other_tokens=1)


def test_a_step_without_drafts_has_budget_zero():
    assert choose_budget([], [0, 1], [1.0, 1.0], 1, 1, 1) == 0


def test_early_stopping_does_not_look_past_the_first_dip():
    """Captured sizes: the second token is dear, the third is free. The peak is behind the dip."""
    curve = objective([1.0, 0.9, 0.9], [0, 0], [0.0, 1.0, 1.9, 4.0, 4.0], 1, 1, 1)
    assert first_peak(curve) == 1
    assert first_peak([1.0, 1.0, 2.0]) == 0
    assert first_peak([1.0, 2.0, 3.0]) == 2 == peak([1.0, 2.0, 3.0])
    assert choose_budget([0.5, 0.5], [0, 1], [9.0] * 4, 1, 1, 1, rule=first_peak) == 2


@given(
    arrays.arrays(np.float64, st.integers(0, 30), elements=st.floats(0, 1)),
    arrays.arrays(np.float64, 40, elements=st.floats(0.01, 10)),
)
def test_the_choice_is_the_best_of_all_budgets(survivals, increments):
    verify = 1.0 + np.cumsum(increments)
    budget = choose_budget(survivals, [0.0, 0.5], verify, 1, 1, 3)
    best = sorted(survivals, reverse=True)
    rates = [(1 + sum(best[:B])) / (0.5 + verify[3 + B]) for B in range(len(best) + 1)]
    assert rates[budget] == pytest.approx(max(rates), rel=1e-12)


@given(
    arrays.arrays(np.float64, st.integers(0, 30), elements=st.floats(0, 1)),
    arrays.arrays(np.float64, 40, elements=st.floats(0.01, 10)),
)
def test_with_convex_cost_both_rules_agree(survivals, increments):
    verify = 1.0 + np.cumsum(np.sort(increments))
    curve = objective(survivals, [0.0, 0.5], verify, 1, 1, 3)
    assert curve[first_peak(curve)] == pytest.approx(curve[peak(curve)], rel=1e-12)


def test_expected_tokens_by_budget():
    np.testing.assert_allclose(expected_tokens([0.2, 0.7], 3), [3, 3.7, 3.9])


def test_depth_and_budget_are_chosen_together():
    survivals = np.array([[0.9, 0.8, 0.1], [0.9, 0.7, 0.1]])
    verify = 10.0 + np.arange(20) * 0.1
    by_depth = np.array([[0.0] * 4, [0.0] * 4, [0.0, 1.0, 2.0, 8.0]])
    assert choose_depth_and_budget(survivals, [3, 3], by_depth, verify, 2, 2, 2)[:2] == (2, 4)
    dear = by_depth * 1000
    assert choose_depth_and_budget(survivals, [3, 3], dear, verify, 2, 2, 2) == (0, 0, 2.0)
    free = by_depth * 0
    assert choose_depth_and_budget(survivals, [3, 3], free, verify, 2, 2, 2) == (
        3,
        6,
        pytest.approx(2 + survivals.sum()),
    )
    # the third slot adds nothing: of two depths as good, the smaller
    survivals[:, 2] = 0.0
    assert choose_depth_and_budget(survivals, [3, 3], free, verify, 2, 2, 2)[:2] == (2, 4)


@given(
    arrays.arrays(np.float64, (3, 4), elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))),
    arrays.arrays(np.int64, 3, elements=st.integers(0, 4)),
    arrays.arrays(np.float64, 5, elements=st.one_of(st.just(0.0), st.floats(0, 5))),
    arrays.arrays(np.float64, 12, elements=st.floats(0.01, 3)),
)
def test_depth_and_budget_are_the_best_of_all_pairs(estimates, scheduled, deeper, increments):
    """Against the objective of each depth by itself, among them depths that cost the same; the verify table ends before
    every slot could be verified."""
    survivals, verify = survival(estimates), np.cumsum(increments)
    draft = np.tile(np.cumsum(deeper), (4, 1))
    curves = [
        objective(offered(survivals[:, :depth], scheduled), draft[:, depth], verify, 3, 3, 3)
        for depth in range(5)
    ]
    depth = int(np.argmax([curve.max() for curve in curves]))
    budget = peak(curves[depth])
    tokens = expected_tokens(offered(survivals[:, :depth], scheduled), 3)[budget]
    found = choose_depth_and_budget(survivals, scheduled, draft, verify, 3, 3, 3)
    assert found == (depth, budget, pytest.approx(tokens))


@given(
    arrays.arrays(np.float64, (3, 4), elements=st.floats(0, 1)),
    arrays.arrays(np.float64, 5, elements=st.floats(0, 5)),
    st.floats(0.01, 3),
    st.integers(1, 20),
)
def test_where_every_token_costs_the_same_a_prompt_changes_no_choice(estimates, deeper, slope, prompt):
    verify, draft = 1.0 + slope * np.arange(40), np.tile(np.cumsum(deeper), (4, 1))
    step = survival(estimates), [4, 4, 4], draft, verify, 3
    depth, budget, tokens = choose_depth_and_budget(*step, 3, 3)
    rate = tokens / (draft[3, depth] + verify[3 + budget])
    depth, budget, tokens = choose_depth_and_budget(
        *step, 4, 3 + prompt
    )  # a prompt that ends emits a token, too
    without = (tokens - 1) / (draft[3, depth] + verify[3 + budget])
    assert without == pytest.approx(rate, rel=1e-9)


def test_beside_a_prompt_drafts_are_taken_up_to_their_own_price():
    """Tokens less milliseconds at the rate of the step without the prompt, over a cost table with a knee."""
    verify = np.concatenate([10.0 + 0.1 * np.arange(8), 20.0 + 2.0 * np.arange(20)])  # dear from 8 tokens on
    draft = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    survivals = np.array([[0.9, 0.8], [0.9, 0.8]])
    assert choose_depth_and_budget(survivals, [2, 2], draft, verify, 2, 2, 2)[:2] == (2, 4)
    # 0.9 of a token for 2 ms is more than a step beside ten prompt tokens makes without drafts, 2 for 28, but ..
    assert objective(survivals, draft[:, 2], verify, 2, 2, 12).argmax() == 4
    # .. a plain step makes 5.4 for 12.6
    assert choose_depth_and_budget(survivals, [2, 2], draft, verify, 2, 2, 12) == (0, 0, 2.0)


def test_depth_and_budget_need_tables_that_fit_the_step():
    for requests, other in ((2, 1), (1, 5)):
        with pytest.raises(ValueError, match="profile larger sizes"):
            choose_depth_and_budget([[0.9]], [1], np.zeros((2, 2)), [1.0] * 5, requests, 1, other)
