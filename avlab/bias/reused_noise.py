"""Noise used twice: the long run of a redrawn position, and races whose noise is shared with the correction."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

import numpy as np

from avlab.bias.exact import one_step
from avlab.bias.ready_made_scenes import all_or_nothing, coin_pair
from avlab.bias.sampled import sample_texts
from avlab.speculation.sampling import acceptance_probability, residual

SETTLED = 15  # places after which the share of a stays within 1e-4 of where it settles


def shares_by_place(places: int, again: bool) -> np.ndarray:
    """Exact share of token a at each place of the text, [places]; again: trimmed places get the same noise.

    Target and drafter look at the token before only, so that a step's state (that token, what the rule remembers, what
    is known of the noise of coming places) has few values, and its chances go from place to place.
    """
    pair, rule = coin_pair(), all_or_nothing()

    @lru_cache(None)
    def following(state) -> list[tuple[Any, np.ndarray, float]]:
        """Every state after a step, which of the tokens that it wrote are a, and the chance."""
        return [
            (((written[-1:],), memory, noise), np.array(written[1:]) == 0, chance)
            for ((written,), memory, noise), chance in one_step(pair, rule, state, again, False).items()
        ]

    begins: list[defaultdict[Any, float]] = [defaultdict(float) for _ in range(places + pair.K + 1)]
    begins[0][((1,),), None, ((),)] = 1.0  # chance that a step begins at this place, in this state
    shares = np.zeros(places + pair.K + 1)
    for place in range(places):
        for state, chance in begins[place].items():
            for after, is_a, way in following(state):
                shares[place : place + len(is_a)] += chance * way * is_a
                begins[place + len(is_a)][after] += chance * way
    return shares[:places]


def settled_share() -> float:
    """The share of a that long texts settle at, when trimmed places get the same noise."""
    return float(shares_by_place(4 * SETTLED, again=True)[-1])


def long_run(texts: int, length: int, seed: int, again: bool) -> tuple[float, float]:
    """Share of a in sampled texts from the place where it has settled, and its standard error over texts."""
    random = np.random.default_rng(seed)
    drawn = sample_texts(
        coin_pair(), all_or_nothing(), texts, random, (1,), length, length, memory=1, draft_noise_again=again
    )
    share = (drawn[:, 0, SETTLED:] == 0).mean(axis=1)
    return float(share.mean()), float(share.std() / np.sqrt(texts))


def race(weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The winner of an exponential race, [N]: argmin of noise / weights. noise: [N, V], exponential. How vLLM draws."""
    with np.errstate(divide="ignore"):
        return np.argmin(np.where(weights > 0, noise / np.where(weights > 0, weights, 1.0), np.inf), axis=1)


def raced_outputs(target, draft, trials: int, seed: int, shared: bool) -> np.ndarray:
    """How often each token comes out, [V], when draft and correction are drawn by races.

    shared: the correction races with the noise that drew the draft (vLLM before pull request 54282).
    """
    target, draft = np.asarray(target, dtype=np.float64), np.asarray(draft, dtype=np.float64)
    random, V = np.random.default_rng(seed), len(target)
    noise = random.exponential(size=(trials, V))
    drafted = race(draft, noise)
    again = noise if shared else random.exponential(size=(trials, V))
    corrected = race(residual(target, draft), again)
    kept = random.random(trials) < acceptance_probability(target, draft)[drafted]
    return np.bincount(np.where(kept, drafted, corrected), minlength=V)
