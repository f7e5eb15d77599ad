import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracle_vectors import oracle

from avlab.speculation.allocation import allocate
from avlab.speculation.budget import survival


def test_allocation_agrees_with_vllm():
    reference = oracle("allocation")
    for estimate, scheduled, budget, admitted in zip(
        reference["estimate"],
        reference["scheduled"],
        reference["budget"],
        reference["admitted"],
        strict=True,
    ):
        assert allocate(survival(estimate), scheduled, budget).tolist() == admitted.tolist()


@st.composite
def situations(draw):
    """Survivals with many ties: saturated, all equal, or on a coarse grid."""
    B, K = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    grid = draw(st.sampled_from([[1.0], [0.0], [0.5, 1.0], [0.0, 0.3, 0.6, 0.9, 1.0]]))
    estimate = draw(st.lists(st.lists(st.sampled_from(grid), min_size=K, max_size=K), min_size=B, max_size=B))
    scheduled = draw(st.lists(st.integers(0, K), min_size=B, max_size=B))
    return survival(estimate), np.array(scheduled), draw(st.integers(0, B * K + 3))


@given(situations())
def test_it_spends_the_budget_on_the_first_slots_of_the_total_order(situation):
    survivals, scheduled, budget = situation
    admitted = allocate(survivals, scheduled, budget)
    assert (admitted >= 0).all() and (admitted <= scheduled).all()
    assert admitted.sum() == min(budget, scheduled.sum())
    slots = [(-survivals[r, k], k, r) for r in range(len(scheduled)) for k in range(scheduled[r])]
    chosen = {(r, k) for _, k, r in sorted(slots)[:budget]}
    assert chosen == {(r, k) for r in range(len(scheduled)) for k in range(admitted[r])}


def test_equal_survivals_go_by_depth_then_by_request():
    ones = np.ones((3, 4))
    assert allocate(ones, [4, 4, 4], 7).tolist() == [3, 2, 2]
    assert allocate(ones, [4, 0, 1], 4).tolist() == [3, 0, 1]


def test_a_larger_survival_comes_before_a_shallower_slot():
    assert allocate(survival([[0.9, 0.9], [0.5, 0.5]]), [2, 2], 2).tolist() == [2, 0]


def test_nothing_is_given_for_nothing():
    assert allocate(np.ones((2, 3)), [3, 3], 0).tolist() == [0, 0]
    assert allocate(np.ones((2, 3)), [0, 0], 5).tolist() == [0, 0]
    assert allocate(np.ones((0, 3)), np.zeros(0, int), 5).tolist() == []


def test_an_estimate_that_is_not_a_number_is_not_admitted():
    survivals = survival([[0.5, np.nan, 0.5], [0.5, 0.5, 0.5]])
    assert allocate(survivals, [3, 3], 6).tolist() == [1, 3]


def test_many_ties_keep_the_order_too():
    """Large arrays of equals are where a sort that is not stable starts to shuffle."""
    ones = np.ones((64, 7))
    admitted = allocate(ones, np.full(64, 7), 200)
    assert admitted.tolist() == [4] * 8 + [3] * 56
    two_levels = survival(np.where(np.arange(7) < 3, 1.0, 0.5) * np.ones((64, 1)))
    assert allocate(two_levels, np.full(64, 7), 3 * 64 + 5).tolist() == [4] * 5 + [3] * 59
