"""The statistics of an A/B: always-valid tests and intervals for the ratio of two arms, round by round.

A round serves every arm once, in an order drawn at random. x is a round's log ratio, log(throughput of the arm /
throughput of the baseline). If the two arms are equal, exchanging them changes nothing but the sign of x. The order was
a fair coin, so given |x|, and whatever the noise (heavy-tailed, drifting, correlated), the sign of x is a fair coin.

*Test.* Bet on that coin: wealth is multiplied by 1 + b, where b = tanh(bet × size) has the sign of x if the bet was
right. Under the null its expectation given |x| and the past is 1, so wealth is a martingale that begins at 1, and the
chance that it ever reaches 1 / a is at most a (Ville 1939): one may look after every round. The stake tanh(λ|x|) is
the best one against a normal shift, 1 ± tanh(λ|x|) being that likelihood ratio given |x|; betting on signs goes
back to de la Peña 1999 (exp(λx) / cosh(λx) for symmetric variables). Betting as a way to intervals, and mixing over
bets: Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024.

*Interval.* For a true log ratio e, x - e is symmetric; the confidence sequence holds every e that no bet against it has
made rich. The scale of bets comes from earlier rounds and does not depend on e, so every factor falls as e rises, and
the set is an interval whose ends are found by bisection. Each end has half of the error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

ALPHA = 0.05
# Bets in units of the noise: a mixture, since the effect over its noise is not known beforehand. An interval after n
# rounds is decided by bets near sqrt(2 log(40) / n), so these serve from some ten rounds to some thousand.
BETS = np.geomspace(0.06, 1.2, 8)
LARGEST = 2.5  # |x - e| in units of the noise beyond which a round counts no more: one wild block must not ruin a bet
PRIOR_SCALE, PRIOR_ROUNDS = (
    0.05,
    1.0,
)  # of log ratios before any was seen: published run-to-run noise is 1 to 10 %
# Half-width of the sequence over the standard deviation of a round's log ratio, after so many rounds: medians of
# simulated experiments with normal noise. Betting on signs begins wide, so that what it has after ten rounds says
# little of its later widths; the noise says more.
HALF_WIDTHS = ((10, 1.29), (20, 0.73), (30, 0.57), (50, 0.43), (100, 0.30), (200, 0.21))
WIDEST = 3.0  # log ratios that intervals can reach: a factor of 20
BISECTIONS = 30
ROUNDING = 1e-9  # of log wealth: less than this is equal
MEAN_ABSOLUTE_DIFFERENCE = 2 / np.sqrt(np.pi)  # of two independent standard normal numbers


class Interval(NamedTuple):
    """low and high, of a log ratio unless it says otherwise."""

    low: float
    high: float


def scales(x) -> np.ndarray:
    """Noise of each round as known before it, [..., T], from log ratios x [..., T].

    From the mean absolute difference of neighbouring rounds, which neither the effect nor slow drift enters, and one
    round's worth of prior.
    """
    x = np.asarray(x, dtype=np.float64)
    steps = np.abs(np.diff(x, axis=-1)) / MEAN_ABSOLUTE_DIFFERENCE
    known = np.zeros_like(x)
    known[..., 2:] = np.cumsum(steps, axis=-1)[..., :-1]
    count = np.maximum(np.arange(x.shape[-1]) - 1, 0)
    return (PRIOR_SCALE * PRIOR_ROUNDS + known) / (PRIOR_ROUNDS + count)


def log_wealth(x, effect=0.0, scale=None) -> np.ndarray:
    """Log wealth after each round of one who bets that the log ratio exceeds `effect`, [..., T].

    x: log ratios by round, [..., T]. effect: [...] or a number. A mixture: the same first wealth on each of BETS.
    """
    scale = scales(x) if scale is None else scale
    size = np.clip((np.asarray(x) - np.asarray(effect)[..., None]) / scale, -LARGEST, LARGEST)
    total = None
    for bet in BETS:
        wealth = np.cumsum(np.log1p(np.tanh(bet * size)), axis=-1)
        total = wealth if total is None else np.logaddexp(total, wealth)
    return total - np.log(len(BETS))


def declared_at(x, alpha: float = ALPHA) -> np.ndarray:
    """The round (from 1) after which a difference was first declared, 0 if never; shape x.shape[:-1]."""
    x, scale = np.asarray(x, dtype=np.float64), scales(x)
    bar = np.log(2 / alpha)
    over = (log_wealth(x, 0.0, scale) >= bar) | (log_wealth(-x, 0.0, scale) >= bar)
    return np.where(over.any(axis=-1), over.argmax(axis=-1) + 1, 0)


@cache
def least_rounds(alpha: float = ALPHA) -> int:
    """Rounds before which nothing can be declared: a bet that is always right, by far, is rich enough after these."""
    best = np.log1p(np.tanh(BETS * LARGEST))
    return next(n for n in range(1, 1000) if np.exp(n * best).mean() >= 2 / alpha)


def lower_ends(x, alpha: float = ALPHA) -> np.ndarray:
    """After each round, the largest effect that bets upward have refuted at level alpha / 2, [T]; -inf where none.

    Without running maximum: each from the wealth at that very round.
    """
    x = np.ascontiguousarray(x, dtype=np.float64)
    return np.array([_lower_end(x[: t + 1].tobytes(), alpha) for t in range(len(x))])


def centres(x) -> np.ndarray:
    """After each round, the log ratio that bets upward and bets downward have refuted alike, [T].

    The estimate that belongs to the sequence: it lies within the interval of every round, and a wild block moves it
    little. On even noise it is close to the mean. Between two rounds that are far apart every effect is refuted alike,
    and the middle is taken.
    """
    x = np.ascontiguousarray(x, dtype=np.float64)
    return np.array([_centre(x[: t + 1].tobytes()) for t in range(len(x))])


def centre(x) -> float:
    """The last of `centres`, T > 0."""
    return _centre(np.ascontiguousarray(x, dtype=np.float64).tobytes())


def _mixed(x: np.ndarray, scale: np.ndarray, effect: float) -> float:
    """The last of `log_wealth`, for one experiment."""
    size = np.clip((x - effect) / scale, -LARGEST, LARGEST)
    return float(np.logaddexp.reduce(np.log1p(np.tanh(BETS[:, None] * size)).sum(axis=1)) - np.log(len(BETS)))


def _bisect(above: Callable[[float], bool]) -> float:
    """Where `above`, true for small effects and false for large ones, changes."""
    low, high = -WIDEST, WIDEST
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return low


@lru_cache(maxsize=1 << 15)  # one who watches asks after every round, and the ends of earlier rounds stay
def _lower_end(x_bytes: bytes, alpha: float) -> float:
    x = np.frombuffer(x_bytes)
    scale, bar = scales(x), np.log(2 / alpha)
    return (
        _bisect(lambda effect: _mixed(x, scale, effect) >= bar)
        if _mixed(x, scale, -WIDEST) >= bar
        else -np.inf
    )


@lru_cache(maxsize=1 << 15)
def _centre(x_bytes: bytes) -> float:
    x = np.frombuffer(x_bytes)
    scale = scales(x)

    def upward(effect: float) -> float:
        return _mixed(x, scale, effect) - _mixed(-x, scale, -effect)

    return (
        _bisect(lambda effect: upward(effect) > ROUNDING) + _bisect(lambda effect: upward(effect) > -ROUNDING)
    ) / 2


@dataclass(frozen=True, slots=True)
class Sequence:
    """A confidence sequence of a log ratio: low and high after each round, [T], each the best up to then.

    moved: the intervals of earlier and later rounds do not overlap, so the ratio itself has changed on the way. low and
    high then are not the best up to a round, but each from the wealth at that very round, over all rounds until then;
    they may hold 0 again.
    """

    low: np.ndarray
    high: np.ndarray
    moved: bool = False


def sequence(x, alpha: float = ALPHA) -> Sequence:
    """The confidence sequence for log ratios x [T]; it holds the true one at every round at once with 1 - alpha."""
    x = np.asarray(x, dtype=np.float64)
    low, high = lower_ends(x, alpha), -lower_ends(-x, alpha)
    best_low, best_high = np.maximum.accumulate(low), np.minimum.accumulate(high)
    if len(x) and best_low[-1] >= best_high[-1]:
        return Sequence(low, high, moved=True)
    return Sequence(best_low, best_high)


def fixed_sample(x, alpha: float = ALPHA) -> Interval:
    """Student's interval for the mean log ratio of x [T]: for those who planned T and look once. Infinite below 2."""
    x = np.asarray(x, dtype=np.float64)
    if len(x) < 2:
        return Interval(-np.inf, np.inf)
    half = student_quantile(len(x) - 1, 1 - alpha / 2) * x.std(ddof=1) / np.sqrt(len(x))
    return Interval(float(x.mean() - half), float(x.mean() + half))


def student_quantile(freedom: int, chance: float) -> float:
    """The quantile of Student's t with these degrees of freedom."""
    from scipy import special  # takes a fifth of a second: the command line must not wait for it

    return float(special.stdtrit(freedom, chance))


def log_ratios(rates, baseline) -> np.ndarray:
    """Log ratio by round of throughputs [T] to the baseline's [T]. Raises ValueError unless all are above 0."""
    rates, baseline = np.asarray(rates, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if not ((rates > 0).all() and (baseline > 0).all()):
        raise ValueError("a block without a token has no log ratio: leave its round out.")
    return np.log(rates) - np.log(baseline)


def beats_all(x_by_rival, alpha: float = ALPHA) -> int:
    """The round after which an arm was first above every rival at once, 0 if never. x_by_rival: log ratios [R, T].

    All of R tests must speak at level alpha, so none has to be corrected and no winner is picked by luck: the claim is
    wrong only if one particular true null was refuted (intersection-union test, Berger 1982).
    """
    over = log_wealth(np.asarray(x_by_rival, dtype=np.float64)) >= np.log(2 / alpha)
    rounds = [int(row.argmax()) + 1 if row.any() else 0 for row in over]
    return max(rounds, default=0) if all(rounds) else 0


def best_by_halves(tokens, seconds) -> list[int]:
    """The best arms of all rounds, of the rounds 0, 2, ... and of the rounds 1, 3, ..., each arm once, in their order.

    tokens, seconds: by arm and round, [arms, T], T > 1; an arm is taken by its tokens over its seconds. The best of
    several noisy arms may be so by luck: it is settled only where both halves, which know nothing of each other, choose
    the same one, and the whole with them.
    """
    tokens, seconds = np.asarray(tokens, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    parts = (slice(None), slice(0, None, 2), slice(1, None, 2))
    rates = (tokens[:, part].sum(axis=1) / seconds[:, part].sum(axis=1) for part in parts)
    return sorted({int(rate.argmax()) for rate in rates})


def best_by_others(log_rates) -> np.ndarray:
    """Log throughput by round of the arm that is best in all other rounds, from log_rates [arms, T], [T].

    The best of several noisy arms looks better than it is where it was chosen, so no round takes part in the choice
    that it judges; a single round judges itself.
    """
    log_rates = np.asarray(log_rates, dtype=np.float64)
    others = log_rates.sum(axis=1, keepdims=True) - log_rates if log_rates.shape[1] > 1 else log_rates
    return log_rates[others.argmax(axis=0), np.arange(log_rates.shape[1])]


def rounds_until(x, half_width: float, alpha: float = ALPHA) -> int | None:
    """About how many rounds in all until the confidence sequence is narrower than ± half_width; None below 4 rounds,
    and where the ratio has moved.

    From the spread of its rounds and `HALF_WIDTHS`, straight lines between their logarithms; beyond 200 rounds widths
    fall as sqrt(log(n) / n), the rate of a mixture.
    """
    if len(x) < 4:
        return None
    now = sequence(x, alpha)
    if now.moved:
        return None
    if (now.high[-1] - now.low[-1]) / 2 <= half_width:
        return len(x)
    known, widths = (np.array(each, dtype=np.float64) for each in zip(*HALF_WIDTHS, strict=True))

    def shape(n: np.ndarray) -> np.ndarray:
        return np.sqrt(np.log(n * len(BETS) / alpha) / n)

    n = np.unique(np.geomspace(least_rounds(alpha), 1e6, 4000).astype(int))
    width = np.exp(np.interp(np.log(n), np.log(known), np.log(widths)))
    far = n > known[-1]
    width[far] = widths[-1] * shape(n[far]) / shape(known[-1])
    narrow = float(np.std(x, ddof=1)) * width <= half_width
    return max(int(n[narrow.argmax()]), len(x) + 1) if narrow.any() else None
