"""What is said of an estimator that has not learnt yet, and of a coefficient that ran away."""

from avlab import diagnosis

FINE = [0.1, -0.4, -1.0]
LABELS = [900, 400, 40]


def test_a_far_intercept_is_named_with_its_position_and_its_labels():
    told = diagnosis.runaway(0.4, [0.1, -0.4, 144.7], LABELS)
    assert "position 2 ran away to 144.7, after 40 labels" in told and "adaptive:converged" in told
    assert "slope ran away to 9.0" in diagnosis.runaway(9.0, FINE, LABELS)
    assert diagnosis.runaway(0.4, FINE, LABELS) == ""
    assert diagnosis.runaway(0.4, [0.1, float("nan"), -1.0], LABELS) == ""


def test_a_page_says_when_the_first_refit_comes():
    assert "30 were taken, about 70 to go" in diagnosis.first_refit("adaptive", 30, True)
    assert "ended after 30 steps" in diagnosis.first_refit("adaptive", 30, False)
    for arm in ("fixed:3", "none", ""):
        assert "Start one under a policy that learns" in diagnosis.first_refit(arm, 30, True)
