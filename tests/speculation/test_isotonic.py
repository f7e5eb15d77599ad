import numpy as np

from avlab.speculation.isotonic import isotonic


def pooled(means, weights):
    """Pool adjacent violators, with a loop."""
    blocks = []
    for mean, weight in zip(means, weights, strict=True):
        blocks.append([mean, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, v, m), (b, w, n) = blocks[-2:]
            blocks[-2:] = [[(a * v + b * w) / (v + w), v + w, m + n]]
    return np.concatenate([np.full(n, mean) for mean, _, n in blocks])


def test_it_is_what_pooling_violators_gives():
    rng = np.random.default_rng(0)
    means, weights = rng.normal(size=(50, 24)), rng.uniform(0.1, 9, (50, 24))
    due = [pooled(*each) for each in zip(means, weights, strict=True)]
    np.testing.assert_allclose(isotonic(means, weights), due, atol=1e-12)


def test_a_rising_curve_stays():
    rising = np.sort(np.random.default_rng(1).normal(size=9))
    np.testing.assert_allclose(isotonic(rising, np.ones(9)), rising, atol=1e-14)
