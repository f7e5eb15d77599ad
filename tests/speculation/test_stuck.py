import numpy as np
from test_estimators_that_learn import sharp_drafts, taught

from avlab import diagnosis
from avlab.speculation.estimators import base
from avlab.speculation.features import Features, probability
from avlab.speculation.labels import labels
from avlab.speculation.stuck import dropped_in_a_row


def history(name, steps=600):
    """Slopes before and after each refit, and the labels of each round, on drafts of low temperature."""
    rng, estimator = np.random.default_rng(0), base.named(name)(3)
    slopes, counts = [estimator.coefficients.slope], []
    for _ in range(steps):
        feature, accepted = sharp_drafts(rng, 8)
        told = Features.of({"max_log_odds": feature})
        estimator.observe(told, probability(estimator.predict(told)), labels(accepted, np.full(8, 3), 3))
        if refit := estimator.end_step():
            slopes.append(refit.after.slope)
            counts.append(800)
    return slopes, counts


def test_vllms_fit_is_found_stuck_and_one_that_moves_is_not():
    assert dropped_in_a_row(*history("online")) == 6
    assert dropped_in_a_row(*history("cut")) == dropped_in_a_row(*history("converged")) == 0
    assert taught("online", steps=600).coefficients.slope == history("online")[0][0]


def test_rounds_without_labels_ask_for_nothing_and_two_in_a_row_may_be_chance():
    assert dropped_in_a_row([0.5] * 7, [0] * 6) == 0
    assert dropped_in_a_row([0.5] * 3, [9] * 2) == 0
    assert dropped_in_a_row([0.5] * 5, [9, 0, 9, 9]) == 3
    assert dropped_in_a_row([0.4, 0.5, 0.5, 0.5, 0.5], [9] * 4) == 3
    assert dropped_in_a_row([0.5, 0.5, 0.5, 0.5, 0.4], [9] * 4) == 0
    assert dropped_in_a_row([0.5], []) == 0


def test_the_sentence_says_what_to_do():
    assert diagnosis.stuck_slope(0, 0.5) == ""
    said = diagnosis.stuck_slope(6, 0.5)
    assert "stuck at 0.500" in said and "last 6 refits" in said and "adaptive:cut" in said
