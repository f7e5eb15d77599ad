import numpy as np
import pytest
from oracle_vectors import oracle

from avlab.speculation.features import (
    DEFAULT_FEATURES,
    FEATURES,
    Features,
    known_features,
    log_odds,
    max_log_odds,
    probability,
)
from avlab.speculation.regression import Coefficients


def test_features_and_cold_start_predictions_agree_with_vllm():
    reference = oracle("features")
    feature = max_log_odds(reference["logits"].astype(np.float64), reference["temperature"])
    np.testing.assert_allclose(np.exp(-feature), np.exp(-reference["feature"]), rtol=2e-6, atol=2e-6)
    prediction = Coefficients.cold_start(1).predict(feature[:, None])[:, 0]
    np.testing.assert_allclose(prediction, reference["prediction"], atol=1e-4)


def test_greedy_rows_stay_unscaled():
    logits = np.array([[2.0, 0.0, -1.0]] * 3)
    greedy, unit, cold = max_log_odds(logits, np.array([0.0, 1.0, 0.5]))
    assert greedy == unit == max_log_odds(logits)[0]
    assert cold == pytest.approx(-np.log(np.exp(-4.0) + np.exp(-6.0)))


def test_no_digit_is_lost_near_certainty():
    """At 20 a float32 sum that includes the top token is exactly 1: the others must be summed alone."""
    logits = np.zeros((1, 1001), dtype=np.float32)
    logits[0, 7] = 20 + np.log(1000)
    assert max_log_odds(logits)[0] == pytest.approx(20.0, abs=1e-5)


def test_it_is_clamped_at_both_ends():
    assert max_log_odds(np.array([[0.0, -100.0], [0.0, -np.inf]])).tolist() == [40.0, 40.0]
    assert log_odds(np.array([0.0, 0.5, 1.0])).tolist() == [-40.0, 0.0, 40.0]


def test_tied_maxima_count_as_others():
    assert max_log_odds(np.array([[3.0, 3.0], [3.0, -np.inf]])).tolist() == [0.0, 40.0]


def test_it_is_the_log_odds_of_the_maximum_probability():
    logits = np.random.default_rng(1).normal(size=(4, 3, 50))
    weights = np.exp(logits)
    maximum = weights.max(-1) / weights.sum(-1)
    np.testing.assert_allclose(max_log_odds(logits), log_odds(maximum), atol=1e-12)
    np.testing.assert_allclose(probability(max_log_odds(logits)), maximum, atol=1e-14)


def test_equal_maxima_count_among_the_others():
    logits = np.array([[2.0, 2.0, -50.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(max_log_odds(logits), [0.0, -np.log(2.0)], atol=1e-12)


def test_numpy_and_torch_agree():
    torch = pytest.importorskip("torch")
    logits = np.random.default_rng(3).normal(size=(4, 3, 50), scale=5)
    temperature = np.array([0.0, 0.7, 1.0, 2.0])[:, None]
    ours = max_log_odds(logits, temperature)
    theirs = max_log_odds(torch.tensor(logits), torch.tensor(temperature), torch)
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-12)
    np.testing.assert_allclose(probability(theirs, torch).numpy(), probability(ours), rtol=1e-12)
    np.testing.assert_allclose(log_odds(probability(theirs, torch), torch).numpy(), ours, atol=1e-4)


def test_the_logistic_function_neither_overflows_nor_vanishes():
    with np.errstate(all="raise"):
        p = probability(np.array([-1e4, -40.0, 0.0, 40.0, 1e4], dtype=np.float32))
    assert p[0] > 0 and p[2] == 0.5 and p[4] == 1.0
    assert p[1] == pytest.approx(np.exp(-40.0), rel=1e-5)


def test_the_registry_says_what_each_feature_is():
    for name, feature in FEATURES.items():
        assert feature.name == name and feature.title and feature.definition
        assert feature.sound == (name != "drawn_log_odds"), "only the drawn token's own feature is unsound"
    assert set(DEFAULT_FEATURES) <= set(FEATURES)
    own = [name for name in FEATURES if FEATURES[name].of_row is None]
    assert own == ["head_log_odds", "match_length", "match_source"]
    assert known_features(["max_log_odds", "max_log_odds"]) == ("max_log_odds",)
    with pytest.raises(ValueError, match="no feature 'mood'; known are max_log_odds, negative_entropy, "):
        known_features(["max_log_odds", "mood"])


ROW, DRAWN = np.array([0.5, 0.25, 0.125, 0.125, 0.0]), 2
BY_HAND = {
    "max_log_odds": 0.0,
    "negative_entropy": -1.75 * np.log(2),
    "top_two_margin": np.log(2),
    "drawn_log_odds": np.log(0.125 / 0.875),
}


@pytest.mark.parametrize("name", [name for name in FEATURES if FEATURES[name].of_row])
def test_each_formula_by_hand_whatever_the_scale_and_on_torch(name):
    torch, formula = pytest.importorskip("torch"), FEATURES[name].of_row
    for scale in (1.0, 8.0):
        weights = np.stack([ROW, ROW[::-1]]) * scale
        drawn = np.full(2, ROW[DRAWN] * scale)
        np.testing.assert_allclose(formula(weights, drawn), BY_HAND[name], rtol=1e-12)
        theirs = formula(torch.tensor(weights), torch.tensor(drawn), torch)
        np.testing.assert_allclose(theirs.numpy(), BY_HAND[name], rtol=1e-12)
    certain, even = np.array([1.0, 0.0, 0.0]), np.ones(4)
    assert np.isfinite(formula(certain, np.array(1.0))) and np.isfinite(formula(even, np.array(1.0)))


def test_ties_and_certainty_of_the_others():
    entropy, margin = FEATURES["negative_entropy"].of_row, FEATURES["top_two_margin"].of_row
    certain, even = np.array([1.0, 0.0, 0.0]), np.ones(4)
    assert (entropy(certain, 1.0), margin(certain, 1.0)) == (0.0, 40.0)
    assert entropy(even, 1.0) == pytest.approx(-np.log(4)) and margin(even, 1.0) == 0.0


def test_columns_go_by_name_and_are_nan_behind_the_draft():
    features = Features.of({"a": np.ones((2, 3)), "b": np.zeros((2, 3))}).widen(5)
    assert features.values.shape == (2, 5, 2) and features.names == ("a", "b")
    np.testing.assert_array_equal(features["b"], [[0, 0, 0, np.nan, np.nan]] * 2)
    with pytest.raises(KeyError, match="'c' is not among the recorded features: a, b"):
        features["c"]
