import numpy as np
import pytest

from avlab.speculation.sampling import draft_distribution, softmax, target_distribution

QUARTERS = np.log([0.4, 0.3, 0.2, 0.1])


def test_plain_temperature():
    np.testing.assert_allclose(target_distribution(QUARTERS, 1.0), [0.4, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(target_distribution(QUARTERS, 0.5), np.array([0.16, 0.09, 0.04, 0.01]) / 0.3)


def test_greedy_is_certain_of_the_lowest_id_among_equals():
    assert target_distribution(np.array([1.0, 3.0, 3.0]), 0.0).tolist() == [0, 1, 0]
    assert draft_distribution(np.array([1.0, 3.0, 3.0]), 0.0).tolist() == [0, 1, 0]
    assert draft_distribution(np.array([1.0, 3.0, 3.0]), 0.8, greedy=True).tolist() == [0, 1, 0]


def test_top_k_breaks_ties_by_token_id():
    np.testing.assert_allclose(target_distribution(np.zeros(4), 1.0, top_k=3), [1 / 3, 1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(target_distribution(np.array([0.0, 1, 1, 1]), 1.0, top_k=2), [0, 0.5, 0.5, 0])


def test_many_ties_keep_the_order_too():
    logits = np.tile([1.0, 0.0, 1.0], 200)
    kept = target_distribution(logits, 1.0, top_k=150) > 0
    assert np.flatnonzero(kept).tolist() == np.flatnonzero(logits)[:150].tolist()


def test_top_p_keeps_the_token_that_crosses():
    np.testing.assert_allclose(target_distribution(QUARTERS, 1.0, top_p=0.5), [4 / 7, 3 / 7, 0, 0])
    np.testing.assert_allclose(target_distribution(QUARTERS, 1.0, top_p=0.71), [4 / 9, 3 / 9, 2 / 9, 0])


def test_top_p_reached_exactly_takes_no_more():
    halves = np.log([0.5, 0.25, 0.25])
    assert target_distribution(halves, 1.0, top_p=0.5).tolist() == [1, 0, 0]
    np.testing.assert_allclose(target_distribution(halves, 1.0, top_p=0.75), [2 / 3, 1 / 3, 0])


def test_top_p_keeps_at_least_one_token_and_1_keeps_all():
    assert target_distribution(QUARTERS, 1.0, top_p=0.0).tolist() == [1, 0, 0, 0]
    spread = np.linspace(0, -60, 100)
    assert (target_distribution(spread, 1.0, top_p=1.0) > 0).all()


def test_top_p_looks_at_what_top_k_left():
    """0.4 of 0.7 is 0.57: with k = 2 a top-p of 0.5 ends at the first token, alone it would take two."""
    assert target_distribution(QUARTERS, 1.0, top_k=2, top_p=0.5).tolist() == [1, 0, 0, 0]


def test_top_p_comes_after_temperature():
    assert target_distribution(QUARTERS, 0.5, top_p=0.5).tolist() == [1, 0, 0, 0]


def test_rows_have_their_own_settings():
    logits = np.stack([QUARTERS] * 4)
    rows = target_distribution(logits, [0.0, 1.0, 1.0, 0.5], [0, 2, 0, 0], [1.0, 1.0, 0.5, 1.0])
    for row, alone in zip(rows, [(0.0,), (1.0, 2), (1.0, 0, 0.5), (0.5,)], strict=True):
        np.testing.assert_array_equal(row, target_distribution(QUARTERS, *alone))


def test_masked_tokens_have_no_mass():
    p = target_distribution(np.array([[-np.inf, 1.0, 0.0, -np.inf]]), 1.0, top_k=3, top_p=0.99)
    assert p[0, 0] == p[0, 3] == 0 and p.sum() == pytest.approx(1)


def test_the_draft_knows_temperature_only():
    np.testing.assert_allclose(draft_distribution(QUARTERS, 2.0), softmax(QUARTERS / 2))
