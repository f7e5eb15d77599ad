import numpy as np
import pytest
from scipy import stats

from avlab.bias.goodness_of_fit import audit_sample_size, fit, noise_floor, pool


@pytest.mark.parametrize("cells", [2, 5, 200, 4096])
@pytest.mark.parametrize(("level", "power"), [(0.01, 0.9), (0.001, 0.99), (0.05, 0.5)])
def test_the_sample_size_is_the_least_that_scipys_noncentral_chi_square_allows(cells, level, power):
    target = np.full(cells, 1 / cells)
    output = target * np.linspace(0.9, 1.1, cells)
    output /= output.sum()
    effect = ((output - target) ** 2 / target).sum()
    critical = stats.chi2.ppf(1 - level, cells - 1)
    n = audit_sample_size(output, target, level, power)
    assert stats.ncx2.sf(critical, cells - 1, n * effect) >= power - 1e-9
    assert stats.ncx2.sf(critical, cells - 1, (n - 1) * effect) < power


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


def random_law(random, cells):
    return random.dirichlet(np.full(cells, 0.5))


def test_the_g_test_is_scipys_where_nothing_is_pooled():
    law, counts = np.array([0.4, 0.3, 0.2, 0.1]), np.array([430, 280, 205, 85])
    theirs = stats.power_divergence(counts, law * 1000, lambda_="log-likelihood")
    ours = fit(counts, law)
    williams = 1 + ((1 / law).sum() - 1) / (6 * 1000 * 3)
    assert ours.statistic == pytest.approx(theirs.statistic / williams)
    assert ours.p_value == pytest.approx(stats.chi2.sf(theirs.statistic / williams, 3))
    assert ours.total_variation == pytest.approx(0.035) and ours.cells == 4
    assert fit(counts, law, tests=3).corrected == pytest.approx(3 * ours.p_value)


@pytest.mark.parametrize("bent", [0.02, 0.05, 0.09])
def test_small_chances_keep_their_digits(bent):
    law = np.array([0.4, 0.3, 0.2, 0.1])
    found = fit(np.round(10_000 * (law + bent * np.array([1, -1, 0, 0]))), law)
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, 3), rel=1e-9, abs=0.0)
    assert 0 < found.p_value < 0.01


def test_rare_cells_are_pooled_and_there_are_at_most_200():
    law = np.array([0.5, 0.3, 0.196, 0.002, 0.002])
    counts, due = pool(np.array([50, 30, 18, 2, 0]), law)
    assert counts.tolist() == [50, 30, 20] and due.tolist() == pytest.approx([0.5, 0.3, 0.2])
    counts, due = pool(np.full(5000, 20), np.full(5000, 1 / 5000))
    assert len(counts) == 200 and counts.sum() == 100_000 and due.sum() == pytest.approx(1)
    assert pool(np.array([2, 1]), np.array([0.5, 0.5]))[0].tolist() == [3]


def test_false_alarms_come_as_often_as_the_level_says():
    random, alarms = np.random.default_rng(3), 0
    for _ in range(2000):
        law = random_law(random, 400)
        alarms += fit(random.multinomial(5000, law), law).p_value < 0.05
    assert alarms / 2000 == pytest.approx(0.05, abs=0.015)


def test_what_the_law_never_gives_is_a_certain_sign():
    found = fit(np.array([99, 1]), np.array([1.0, 0.0]))
    assert found.p_value == 0 and found.statistic == np.inf


def test_the_noise_floor_is_what_faithful_samples_show():
    random, law = np.random.default_rng(4), np.array([0.4, 0.3, 0.2, 0.1])
    shown = [fit(random.multinomial(2000, law), law).total_variation for _ in range(500)]
    assert noise_floor(law, 2000) == pytest.approx(np.mean(shown), rel=0.05)
