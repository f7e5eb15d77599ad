"""The smallest input on which vLLM's slope never moves, as docs/estimators.md has it, and the remedy on it."""

import numpy as np
import pytest

from avlab.speculation.estimators.cut import CutEstimator
from avlab.speculation.features import probability
from avlab.speculation.regression import Coefficients, RoundStatistics, refit

FEATURE = np.repeat([8.0, -8.0], 50)[:, None]
LABEL = np.concatenate([np.arange(50) < 40, np.arange(50) < 10])[:, None]  # a fifth are surprises


def after(step, rounds=50, start=None):
    fit = start or Coefficients(0.5, np.zeros(1))
    slopes = [fit.slope]
    for _ in range(rounds):
        chance = fit.predict(FEATURE)
        fit = step(fit, RoundStatistics.of(FEATURE, chance, LABEL, np.ones_like(LABEL)))
        slopes.append(fit.slope)
    return slopes


def test_vllms_slope_stays_and_the_cut_one_arrives():
    assert set(after(refit)) == {0.5}
    assert after(CutEstimator(1).fit)[-1] == pytest.approx(np.log(4) / 8, abs=1e-3)


def test_from_vllms_own_start_it_is_stuck_too():
    assert set(after(refit, start=Coefficients.cold_start(1))) == {0.5}


@pytest.mark.parametrize("error", [0.1, 0.2, 0.3, 0.4])
def test_the_bound_of_the_proof(error):
    """Two features +a and -a, a share of surprises r, intercept 0: the step is dropped where r > s + u s (1 - s), with
    u = w a and s = sigma(-u)."""
    for u in np.linspace(0.2, 8.0, 40):
        a, w, n = 4.0, u / 4.0, 1e6
        p = probability(np.array([u, -u]))
        curvature, residual = n * p * (1 - p), n * (np.array([1 - error, error]) - p)
        f = np.array([a, -a])
        rows = [curvature @ f**2, curvature @ f, curvature.sum(), residual @ f, residual.sum(), 2 * n]
        kept = refit(Coefficients(w, np.zeros(1)), RoundStatistics(np.array(rows)[:, None])).slope
        s = probability(np.array(-u))
        if abs(error - s - u * s * (1 - s)) > 1e-3:
            assert (kept == w) == (error > s + u * s * (1 - s)), u
