import numpy as np
import pytest
from draft_features import features_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_vectors import oracle

from avlab.speculation.estimators.online import OnlineEstimator
from avlab.speculation.features import probability
from avlab.speculation.labels import labels
from avlab.speculation.regression import Coefficients, RoundStatistics, refit


def observe(estimator, feature, accepted, admitted):
    """One verification, told as the engine tells it."""
    told = features_of(feature)
    estimator.observe(told, probability(estimator.predict(told)), labels(accepted, admitted, estimator.K))


@pytest.mark.parametrize("K", [3, 7])
def test_every_refit_agrees_with_vllm(K):
    reference = oracle(f"estimator_k{K}")
    estimator, fitted = OnlineEstimator(K), []
    for feature, sampled, rejected in zip(
        reference["feature"], reference["num_sampled"], reference["num_rejected"], strict=True
    ):
        accepted = sampled - 1
        observe(estimator, feature, accepted, accepted + rejected)
        if done := estimator.end_step():
            fitted.append([done.after.slope, *done.after.intercepts])
    np.testing.assert_allclose(fitted, reference["coefficients"], atol=1e-4)


def test_it_starts_cold():
    estimator = OnlineEstimator(3)
    np.testing.assert_allclose(estimator.predict(features_of(np.zeros((1, 3)))), -0.2)
    np.testing.assert_allclose(estimator.predict(features_of(np.full((1, 3), 2.0))), 0.8)


def test_labels_end_at_the_first_rejection_and_at_the_trim():
    label, labelled = labels(accepted=[2, 2, 0, 0, 3], admitted=[4, 2, 1, 0, 3], K=4)
    assert label.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0] * 4, [0] * 4, [1, 1, 1, 0]]
    assert labelled.astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0] * 4, [1, 1, 1, 0]]


def test_slots_behind_the_end_of_text_have_no_label():
    """Slot 1 is an accepted end-of-text: slot 2 was admitted but is neither accepted nor refused."""
    _, labelled = labels(accepted=[2], admitted=[4], K=4, limit=[2])
    assert labelled.tolist() == [[True, True, False, False]]


def test_it_refits_every_hundred_steps_and_starts_a_new_round():
    estimator, feature = OnlineEstimator(2), np.array([[1.0, 0.5]])
    for step in range(1, 251):
        if step % 2:
            observe(estimator, feature, [1], [2])
        done = estimator.end_step()
        assert (done is not None) == (step in (100, 200))
        if done:
            assert (done.number, done.step) == (step // 100, step)
            assert done.statistics.observations.tolist() == [50, 50]
            assert done.after is estimator.coefficients
    assert estimator.statistics.observations.tolist() == [25, 25]


def test_steps_without_labels_count_and_change_nothing():
    estimator = OnlineEstimator(2)
    for _ in range(100):
        observe(estimator, np.zeros((1, 2)), [0], [0])
        done = estimator.end_step()
    assert done.after.slope == done.before.slope
    np.testing.assert_array_equal(done.after.intercepts, done.before.intercepts)


def test_a_position_never_admitted_keeps_its_intercept():
    rng = np.random.default_rng(4)
    statistics = _statistics(rng.normal(size=(500, 3)), rng.integers(0, 2, 500), np.full(500, 2))
    after = refit(Coefficients.cold_start(3), statistics)
    assert after.intercepts[2] == -0.2
    assert (after.intercepts[:2] != -0.2).all()


def test_a_step_to_a_negative_slope_is_dropped():
    """Low features accepted, high ones refused: the slope would have to turn over, so it stays."""
    feature = np.array([[-3.0], [3.0]] * 200)
    after = refit(Coefficients.cold_start(1), _statistics(feature, [1, 0] * 200, [1] * 400))
    assert after.slope == 0.5
    assert np.isfinite(after.intercepts).all()


def test_statistics_that_overflowed_change_nothing():
    after = refit(Coefficients.cold_start(2), RoundStatistics(np.full((6, 2), np.inf)))
    assert after.slope == 0.5 and after.intercepts.tolist() == [-0.2, -0.2]


def test_a_handful_of_observations_moves_little():
    few = refit(Coefficients.cold_start(1), _statistics(np.ones((5, 1)), [1] * 5, [1] * 5))
    many = refit(Coefficients.cold_start(1), _statistics(np.ones((5000, 1)), [1] * 5000, [1] * 5000))
    assert 0 < few.intercepts[0] + 0.2 < 0.2 * (many.intercepts[0] + 0.2)


def test_it_finds_the_coefficients_that_made_the_data():
    truth, rng = Coefficients(0.9, np.array([0.4, -0.6])), np.random.default_rng(5)
    estimator = OnlineEstimator(2)
    for _ in range(3000):
        feature = rng.normal(1, 2, size=(64, 2))
        hit = rng.random((64, 2)) < truth.predict(feature)
        observe(estimator, feature, np.cumprod(hit, axis=1).sum(1), np.full(64, 2))
        estimator.end_step()
    assert estimator.coefficients.slope == pytest.approx(0.9, abs=0.1)
    np.testing.assert_allclose(estimator.coefficients.intercepts, truth.intercepts, atol=0.15)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 60), max_size=5))
def test_a_round_may_be_added_up_in_any_split(seed, cuts):
    rng = np.random.default_rng(seed)
    feature = rng.normal(scale=4, size=(60, 5))
    admitted = rng.integers(0, 6, 60)
    accepted = rng.integers(0, admitted + 1)
    whole = refit(Coefficients.cold_start(5), _statistics(feature, accepted, admitted))
    merged = RoundStatistics.zero(5)
    for part in np.split(rng.permutation(60), sorted(cuts)):
        merged = merged + _statistics(feature[part], accepted[part], admitted[part])
    parts = refit(Coefficients.cold_start(5), merged)
    assert parts.slope == pytest.approx(whole.slope, abs=1e-10)
    np.testing.assert_allclose(parts.intercepts, whole.intercepts, atol=1e-10)


def _statistics(feature, accepted, admitted):
    K = np.shape(feature)[1]
    return RoundStatistics.of(
        feature, Coefficients.cold_start(K).predict(feature), *labels(accepted, admitted, K)
    )
