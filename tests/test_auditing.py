import numpy as np
import pytest
from scipy import stats

from avlab.speculation.auditing import audit_sample_size, chi_square_cdf


@pytest.mark.parametrize("degrees", [1, 3, 15, 255])
@pytest.mark.parametrize("shift", [0.0, 0.5, 20.0, 300.0])
def test_the_distribution_agrees_with_scipy(degrees, shift):
    for x in (0.1, 3.0, degrees * 1.0, degrees + shift, degrees * 2 + shift * 2):
        theirs = stats.ncx2.cdf(x, degrees, shift) if shift else stats.chi2.cdf(x, degrees)
        assert chi_square_cdf(x, degrees, shift) == pytest.approx(theirs, abs=1e-9)


def test_the_articles_example_needs_some_hundreds_of_samples():
    n = audit_sample_size([0.4, 0.6], [0.5, 0.5])
    critical = stats.chi2.ppf(0.99, 1)
    assert stats.ncx2.sf(critical, 1, n * 0.04) >= 0.9 > stats.ncx2.sf(critical, 1, (n - 1) * 0.04)
    assert n == 372


def test_a_test_of_that_size_notices_as_often_as_promised():
    output, target = np.array([0.3, 0.28, 0.22, 0.2]), np.full(4, 0.25)
    n = int(audit_sample_size(output, target))
    counts = np.random.default_rng(6).multinomial(n, output, size=4000)
    statistic = ((counts - n * target) ** 2 / (n * target)).sum(axis=1)
    assert (statistic > stats.chi2.ppf(0.99, 3)).mean() == pytest.approx(0.9, abs=0.02)


def test_nothing_to_notice_takes_for_ever_and_the_impossible_is_noticed_at_once():
    assert audit_sample_size([0.5, 0.5], [0.5, 0.5]) == np.inf
    assert audit_sample_size([0.5, 0.5], [1.0, 0.0]) == 4
    assert audit_sample_size([0.0, 1.0], [1.0, 0.0]) == 1
