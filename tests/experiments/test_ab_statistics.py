"""The statistics of an A/B: what they promise, by simulation, by enumeration, and against a library."""

import itertools

import numpy as np
import pytest
import ville
from scipy import stats

from avlab.experiments import statistics as s
from avlab.experiments.analysis import best_fixed

EXPERIMENTS, ROUNDS = 2000, 200
FIVE_PERCENT = np.log(1.05)


def block_noise(draw, experiments, blocks, deviation, correlation=0.6, freedom=3.0):
    """Log noise of consecutive blocks [experiments, blocks]: autoregressive, with Student's t as innovations."""
    shock = draw.standard_t(freedom, (experiments, blocks)) * np.sqrt((freedom - 2) / freedom)
    noise = shock.copy()
    for t in range(1, blocks):
        noise[:, t] = correlation * noise[:, t - 1] + np.sqrt(1 - correlation**2) * shock[:, t]
    return deviation * noise


def log_ratios(seed, effect, experiments=EXPERIMENTS, rounds=ROUNDS, deviation=0.05, **kind):
    """Log ratios of simulated switchbacks of two arms, [experiments, rounds]."""
    draw = np.random.default_rng(seed)
    first, second = block_noise(draw, experiments, 2 * rounds, deviation, **kind).reshape(-1, rounds, 2).T
    return effect + np.where(draw.random((rounds, experiments)) < 0.5, first - second, second - first).T


def test_nothing_can_be_declared_before_the_least_number_of_rounds():
    least = s.least_rounds()
    wild, tiny = np.full(least, 3.0), np.full(least, 1e-3)  # far beyond the noise, and always of one sign
    wealth, bar = s.log_wealth(wild, 0.0, tiny), np.log(2 / s.ALPHA)
    assert wealth[-1] >= bar > wealth[-2]


KINDS = (
    {"correlation": 0.6, "freedom": 3.0},
    {"correlation": 0.0, "freedom": 30.0},
    {"correlation": 0.95, "freedom": 2.1},
)


@pytest.mark.parametrize("kind", KINDS)
def test_identical_arms_watched_at_every_round_are_rarely_declared_different(kind):
    declared = s.declared_at(log_ratios(11, 0.0, **kind)) > 0
    assert declared.mean() <= s.ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_five_percent_in_five_percent_of_block_noise_is_found_within_60_rounds(kind):
    declared = s.declared_at(log_ratios(12, FIVE_PERCENT, rounds=60, **kind)) > 0
    assert declared.mean() >= 0.9


@pytest.mark.parametrize("effect", [0.0, FIVE_PERCENT, -0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_after_every_round_holds_the_truth(effect, kind):
    """An end passes the truth in the round in which a bet against the truth has become rich; so none may."""
    x, bar = log_ratios(13, effect, **kind), np.log(2 / s.ALPHA)
    truth = np.full(EXPERIMENTS, effect)
    held = (s.log_wealth(x, truth).max(axis=1) < bar) & (s.log_wealth(-x, -truth).max(axis=1) < bar)
    assert held.mean() >= 0.94


def test_the_final_interval_itself_holds_the_truth():
    x = log_ratios(14, FIVE_PERCENT, experiments=120, rounds=25)
    held = [s.sequence(row).low[-1] <= FIVE_PERCENT <= s.sequence(row).high[-1] for row in x]
    assert np.mean(held) >= 0.94


def test_wealth_is_a_martingale_over_all_orders():
    """Every round's order is a fair coin: over all 2^T outcomes with these sizes the mean wealth is exactly 1."""
    size = np.array([0.01, 0.2, 0.03, 0.0, 1.5, 0.04, 0.02, 0.06, 0.05, 0.01])
    signs = np.array(list(itertools.product([-1, 1], repeat=len(size))))
    assert np.exp(s.log_wealth(signs * size)).mean(axis=0) == pytest.approx(np.ones(len(size)))


def test_the_interval_is_what_the_test_does_not_refute():
    x = log_ratios(15, 0.1, experiments=1, rounds=30)[0]
    grid, bar = np.linspace(-0.5, 0.7, 1201), np.log(2 / s.ALPHA)
    rows = np.tile(x, (len(grid), 1))
    kept = (s.log_wealth(rows, grid).max(axis=1) < bar) & (s.log_wealth(-rows, -grid).max(axis=1) < bar)
    found = s.sequence(x)
    assert found.low[-1] == pytest.approx(grid[kept].min(), abs=0.001)
    assert found.high[-1] == pytest.approx(grid[kept].max(), abs=0.001)


def test_declared_means_that_the_interval_excludes_no_difference():
    for x in log_ratios(16, 0.03, experiments=30, rounds=50):
        found, first = s.sequence(x), int(s.declared_at(x))
        excludes = (found.low > 0) | (found.high < 0)
        assert excludes.any() == (first > 0) and (not first or excludes.argmax() + 1 == first)


def test_the_estimate_lies_within_every_interval_and_near_the_mean():
    for x in log_ratios(25, 0.05, experiments=10, rounds=40, freedom=30.0):
        found, centre = s.sequence(x), s.centres(x)
        assert np.all((s.lower_ends(x) < centre) & (centre < -s.lower_ends(-x)))
        assert found.low[-1] < centre[-1] < found.high[-1]
        assert centre[-1] == pytest.approx(x.mean(), abs=0.02)


@pytest.mark.parametrize("ratios", [(3.26, 0.626), (0.5, 2.0), (0.626, 3.26), (1.5, 1.1)])
def test_two_rounds_far_apart_are_estimated_by_their_middle(ratios):
    x = np.log(ratios)
    assert s.centres(x)[-1] == pytest.approx(x.mean(), abs=1e-6)
    for more in (
        (),
        (0.3, -0.2),
        (0.01, 0.5, -0.4, 0.02),
    ):  # and exchanging the arms turns the estimate round
        longer = np.append(x, more)
        assert s.centres(-longer) == pytest.approx(-s.centres(longer), abs=1e-6)


def test_a_best_fixed_length_is_named_only_once_something_can_be_declared():
    rates = {
        "fixed:5": np.array([20.6, 20.6, 33.0, 33.0] * 2),
        "none": np.array([67.0, 67.0, 20.6, 20.6] * 2),
    }
    tokens = np.array(list(rates.values()))
    few = tokens[:, : s.least_rounds() - 1]
    assert best_fixed(list(rates), few, np.ones_like(few)) is None
    assert best_fixed(list(rates), tokens, np.ones_like(tokens)).arm == "none"


def test_against_a_library_of_always_valid_inference():
    """On bounded noise, where both are valid, ours and `ville`'s betting sequence say the same about as sharply."""
    draw = np.random.default_rng(17)
    for effect in (0.0, 0.08):
        x = effect + draw.uniform(-0.3, 0.3, 300)
        ours, theirs = s.sequence(x), ville.BettingCS(bounds=(effect - 0.5, effect + 0.5)).fit(x)
        assert max(ours.low[-1], theirs.lower_[-1]) < effect < min(ours.high[-1], theirs.upper_[-1])
        width = (ours.high[-1] - ours.low[-1]) / (theirs.upper_[-1] - theirs.lower_[-1])
        assert 0.5 < width < 1.25
    test = ville.BettingTest(0.5).fit((np.sign(x) + 1) / 2)
    assert test.rejected_ and s.declared_at(x) > 0


def test_the_fixed_sample_interval_is_students():
    x = np.random.default_rng(18).normal(0.1, 0.2, 12)
    expected = stats.t.interval(0.95, 11, loc=x.mean(), scale=x.std(ddof=1) / np.sqrt(12))
    assert s.fixed_sample(x) == pytest.approx(expected, abs=1e-9)
    for freedom in (1, 2, 5, 400):
        assert s.student_quantile(freedom, 0.975) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_one_wild_block_does_not_undo_an_experiment():
    x = log_ratios(19, 0.05, experiments=1, rounds=60)[0]
    wild = x.copy()
    wild[30] = -3.0
    assert s.declared_at(x[:40]) > 0 and s.declared_at(wild) > 0


def test_beating_every_rival_needs_every_sequence():
    clear, equal = log_ratios(20, [[0.1], [0.0]], experiments=2, rounds=60)
    assert s.beats_all([clear, clear + 0.05]) > 0
    assert s.beats_all([clear, equal]) == 0
    assert s.beats_all([clear, -clear]) == 0


def test_a_claim_to_beat_all_is_rarely_made_by_an_arm_that_equals_one():
    equal, beaten = log_ratios(26, 0.0, experiments=400, rounds=100), log_ratios(27, 0.3, 400, 100)
    claimed = [s.beats_all([one, other]) > 0 for one, other in zip(equal, beaten, strict=True)]
    assert np.mean(claimed) <= s.ALPHA
    assert np.mean([s.beats_all([one + 0.3, one]) > 0 for one in beaten]) > 0.9


def test_halves_agree_on_a_best_arm_where_there_is_one_and_by_chance_where_not():
    draw = np.random.default_rng(21)
    noise, second = np.exp(draw.normal(0, 0.05, (400, 7, 20))), np.ones((7, 20))
    settled = [len(s.best_by_halves(tokens, second)) == 1 for tokens in noise]
    assert 0.05 < np.mean(settled) < 0.25  # one in seven
    ahead = noise * np.where(np.arange(7) == 3, 1.2, 1.0)[:, None]
    assert all(s.best_by_halves(tokens, second) == [3] for tokens in ahead)


def test_an_arm_that_either_half_names_is_not_settled_where_the_whole_names_another():
    """An arm that serves its slow rounds at length: 20 and 9 tokens/s in the halves, 10 in all, against 19 and 8."""
    tokens, seconds = [[20, 90], [190, 8]], [[1, 10], [10, 1]]
    assert s.best_by_halves(tokens, seconds) == [0, 1]


def test_the_last_centre_is_the_one_of_all_rounds():
    x = log_ratios(28, 0.05, experiments=1, rounds=20)[0]
    assert s.centre(x) == s.centres(x)[-1]


def test_with_few_rounds_each_is_judged_by_an_arm_that_the_others_chose():
    draw, plain, others = np.random.default_rng(24), [], []
    for _ in range(2000):
        rates = draw.normal(0.0, 0.05, (8, 4))
        plain.append(rates.mean(axis=1).max())
        others.append(s.best_by_others(rates).mean())
    assert np.mean(plain) > 0.02 and abs(np.mean(others)) < 0.004
    assert s.best_by_others([[0.0, 1.0, 5.0], [1.0, 2.0, 0.0]]).tolist() == [0.0, 1.0, 0.0]
    assert s.best_by_others([[0.0], [1.0]]).tolist() == [1.0]


def test_how_long_until_is_about_right():
    x = log_ratios(22, 0.05, experiments=20, rounds=1000, freedom=30.0, correlation=0.0)
    for row in x[:5]:
        guess = s.rounds_until(row[:40], 0.02)
        found = s.sequence(row[:200])
        needed = int((((found.high - found.low) / 2) <= 0.02).argmax()) + 1
        assert 0.5 < guess / needed < 2
    assert s.rounds_until(x[0][:3], 0.02) is None


@pytest.mark.parametrize(("width", "needed"), [(0.057, 30), (0.043, 50), (0.030, 100), (0.021, 200)])
def test_ten_rounds_already_tell_how_long_it_takes(width, needed):
    """Noise of 0.1 a round: carried on from its first widths the forecast was four times too long."""
    x = log_ratios(25, 0.05, experiments=40, rounds=10, freedom=30.0, correlation=0.0)
    x *= 0.1 / x.std(axis=1, ddof=1, keepdims=True)
    assert {s.rounds_until(row, width) for row in x} <= set(range(needed - 2, needed + 3))


def test_the_widths_that_forecasts_use_are_those_of_the_sequence():
    draw = np.random.default_rng(26)
    for rounds, known in s.HALF_WIDTHS[:4]:
        found = [s.sequence(draw.normal(0.02, 0.05, rounds)) for _ in range(30)]
        halves = [(each.high[-1] - each.low[-1]) / 2 / 0.05 for each in found]
        assert np.median(halves) == pytest.approx(known, rel=0.2)


def test_a_ratio_that_changes_on_the_way_is_said():
    x = np.concatenate(
        [log_ratios(23, 0.3, experiments=1, rounds=40)[0], log_ratios(24, -0.3, experiments=1)[0]]
    )
    found = s.sequence(x)
    assert found.moved and found.low[-1] < found.high[-1]
    assert not s.sequence(x[:40]).moved


def test_a_block_without_tokens_has_no_ratio():
    with pytest.raises(ValueError, match="leave its round out"):
        s.log_ratios([1.0, 0.0], [1.0, 2.0])
