"""Noise used twice: the long run of a redrawn position, and races whose noise is shared with the correction."""

from __future__ import annotations

import numpy as np

from avlab.speculation.exact import output_distribution, token_distribution
from avlab.speculation.sampled import sample_texts
from avlab.speculation.sampling import acceptance_probability, residual
from avlab.teaching.scenes import all_or_nothing, coin_pair

SETTLED = 5  # first place at which the share of a has settled


def shares_by_place(places: int, again: bool) -> np.ndarray:
    """Exact share of token a at each place of the text, [places]; again: trimmed places get the same noise."""
    law = output_distribution(coin_pair(), all_or_nothing(), (1,), places, places, draft_noise_again=again)
    return np.array([token_distribution(law, 2, position=k)[0] for k in range(places)])


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
