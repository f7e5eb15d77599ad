"""vLLM's suffix statistics: counts by source, length of the match and position."""

import numpy as np
import pytest

from avlab.speculation.estimators import base
from avlab.speculation.features import Features, probability
from avlab.speculation.labels import labels


def told(length, source=0):
    length = np.atleast_2d(np.asarray(length, float))
    return Features.of({"match_length": length, "match_source": np.full(length.shape, float(source))})


def test_a_slot_has_the_rate_of_its_own_cell():
    estimator = base.named("matches")(2)
    assert probability(estimator.predict(told([3, 3]))).tolist() == [[0.5, 0.5]], "before anything is known"
    for accepted in (2, 1, 0):
        estimator.observe(told([3, 3]), None, labels([accepted], [2], 2))
    # position 0: 2 of 3; position 1, which two drafts reached: 1 of 2
    np.testing.assert_allclose(probability(estimator.predict(told([3, 3]))), [[3 / 5, 2 / 4]])
    for other in (told([4, 4]), told([2, 2]), told([3, 3], source=1)):
        np.testing.assert_allclose(probability(estimator.predict(other)), 0.5)


@pytest.mark.parametrize("alike", [(7, 10), (11, 20), (21, 400)])
def test_long_matches_are_counted_together(alike):
    estimator = base.named("matches")(1)
    estimator.observe(told([[alike[0]]] * 8), None, labels(np.ones(8), np.ones(8), 1))
    shortest, longest = (probability(estimator.predict(told([[n]])))[0, 0] for n in alike)
    assert shortest == longest == pytest.approx(9 / 10)
    assert probability(estimator.predict(told([[alike[0] - 1]])))[0, 0] == 0.5


def test_counts_are_halved_and_no_draft_has_no_estimate():
    estimator = base.named("matches")(1)
    estimator.observe(told([[5]] * 100), None, labels(np.ones(100), np.ones(100), 1))
    for _ in range(1023):
        estimator.end_step()
    assert estimator.observed.sum() == 100
    estimator.end_step()
    assert estimator.observed.sum() == 50
    assert np.isnan(estimator.predict(told([[np.nan]]))).all()
