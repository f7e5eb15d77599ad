import numpy as np
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

from avlab.speculation import calibration
from avlab.speculation.calibration import (
    BINS,
    COUNT,
    POSITIVES,
    bin_edges,
    bin_of,
    bin_sums,
    ece_noise_floor,
    exact_auc,
    exact_ece,
    exact_scores,
    merge,
    reliability,
    scores,
)
from avlab.speculation.features import log_odds, probability


@pytest.fixture(scope="module")
def slots():
    """Estimates a little too sure of themselves, with their labels."""
    rng = np.random.default_rng(7)
    truth = rng.normal(0.8, 2.0, 20_000)
    label = rng.random(20_000) < probability(truth)
    return probability(1.4 * truth + 0.2), label


def test_exact_scores_agree_with_scikit_learn(slots):
    estimate, label = slots
    ours = exact_scores(estimate, label)
    assert ours.auc == pytest.approx(metrics.roc_auc_score(label, estimate), abs=1e-12)
    assert ours.log_loss == pytest.approx(metrics.log_loss(label, estimate), abs=1e-12)
    assert ours.brier == pytest.approx(metrics.brier_score_loss(label, estimate), abs=1e-12)
    assert ours.observed == pytest.approx(label.mean())
    assert ours.count == 20_000


def test_exact_ece_agrees_with_scikit_learn_curves(slots):
    estimate, label = slots
    rate, mean = calibration_curve(label, estimate, n_bins=15, strategy="quantile")
    assert exact_ece(estimate, label) == pytest.approx(np.abs(rate - mean).mean(), abs=1e-5)


def test_auc_counts_ties_half():
    estimate, label = [0.2, 0.5, 0.5, 0.5, 0.9, 0.9], [0, 1, 0, 0, 1, 0]
    assert exact_auc(estimate, label) == pytest.approx(metrics.roc_auc_score(label, estimate))


def test_binned_scores_agree_with_exact_ones(slots):
    estimate, label = slots
    exact = exact_scores(estimate, label)
    binned = scores(bin_sums(log_odds(estimate)[:, None], label[:, None])[0])
    assert binned.log_loss == pytest.approx(exact.log_loss, abs=1e-12)
    assert binned.brier == pytest.approx(exact.brier, abs=1e-12)
    assert binned.mean_estimate == pytest.approx(exact.mean_estimate, abs=1e-12)
    assert binned.auc == pytest.approx(exact.auc, abs=1e-3)
    assert binned.ece == pytest.approx(exact.ece, abs=2e-3)
    assert binned.ece > 0.03


def test_windows_and_positions_merge(slots):
    estimate, label = (array.reshape(-1, 4) for array in slots)
    whole = bin_sums(log_odds(estimate), label)
    assert whole.shape == (4, BINS, 5)
    halves = merge(
        bin_sums(log_odds(estimate[:1000]), label[:1000]), bin_sums(log_odds(estimate[1000:]), label[1000:])
    )
    np.testing.assert_allclose(halves, whole, atol=1e-9)
    flat = bin_sums(log_odds(estimate.reshape(-1, 1)), label.reshape(-1, 1))[0]
    np.testing.assert_allclose(whole.sum(axis=0), flat, atol=1e-9)


def test_slots_without_label_are_left_out():
    x = np.array([[0.0, np.nan], [1.0, 2.0]])
    sums = bin_sums(x, [[1, 0], [0, 1]], [[True, False], [True, True]])
    assert sums[:, :, COUNT].sum(axis=1).tolist() == [2, 1]
    assert sums[:, :, POSITIVES].sum(axis=1).tolist() == [1, 1]


def test_bins_are_fixed_and_open_at_the_ends():
    assert bin_of([-40.0, -8.0, -1e-9, 0.0, 7.99, 8.0, 40.0]).tolist() == [0, 0, 63, 64, 127, 127, 127]
    edges = bin_edges()
    assert len(edges) == BINS + 1
    assert bin_of((edges[1:] + edges[:-1]) / 2).tolist() == list(range(BINS))


def test_log_loss_is_exact_near_certainty():
    sums = bin_sums(np.array([[40.0], [40.0]]), [[1], [0]])[0]
    assert scores(sums).log_loss == pytest.approx(20.0)


def test_groups_have_about_equal_mass(slots):
    estimate, label = slots
    mean, _rate, count = reliability(bin_sums(log_odds(estimate)[:, None], label[:, None])[0])
    assert len(count) == 15 and count.sum() == 20_000
    assert (np.diff(mean) > 0).all()
    assert count.max() < 1.6 * count.min()


@pytest.mark.parametrize("n", [30, 300, 20_000])
@pytest.mark.parametrize("centre", [0.8, 4.0])
def test_the_noise_floor_is_what_perfect_estimates_show(n, centre):
    rng = np.random.default_rng(8)
    x = rng.normal(centre, 2.0, (n, 1))
    sums = [bin_sums(x, rng.random((n, 1)) < probability(x))[0] for _ in range(300)]
    shown = np.mean([scores(s).ece for s in sums])
    assert ece_noise_floor(sums[0]) == pytest.approx(shown, rel=0.35 if n == 30 else 0.1)


def test_the_noise_floor_holds_where_estimates_are_nearly_certain():
    rng = np.random.default_rng(9)
    x = np.full((60, 1), 7.5)
    shown = np.mean([scores(bin_sums(x, rng.random((60, 1)) < probability(x))[0]).ece for _ in range(5000)])
    assert ece_noise_floor(bin_sums(x, np.ones((60, 1)))[0]) == pytest.approx(shown, rel=0.2)


def test_the_calibration_error_does_not_care_which_outcome_is_called_positive(slots):
    estimate, label = slots
    x = log_odds(estimate)[:, None]
    one, other = scores(bin_sums(x, label[:, None])[0]), scores(bin_sums(-x, ~label[:, None])[0])
    assert one.ece == pytest.approx(other.ece, abs=1e-12)
    assert one.auc == pytest.approx(other.auc, abs=1e-12)


def test_no_slots_and_one_class_are_not_errors():
    nothing = scores(np.zeros((BINS, 5)))
    assert nothing.count == 0 and np.isnan(nothing.ece)
    assert exact_scores([], []).count == 0
    one_class = scores(bin_sums(np.zeros((5, 1)), np.ones((5, 1)))[0])
    assert np.isnan(one_class.auc) and one_class.ece == pytest.approx(0.5)


def test_column_names_are_in_order():
    assert calibration.FIELDS[COUNT] == "count" and calibration.FIELDS[POSITIVES] == "positives"
