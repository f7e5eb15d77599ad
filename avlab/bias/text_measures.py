"""What a sampler does to text: log-probability, entropy and repetition of its outputs, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GRAM = 4  # tokens that must come again to count as repetition
RESAMPLES = 2000
LEVEL = 0.95
MEASURES = {
    "log_probability": "log-probability under the target, nats a token",
    "entropy": "entropy of the target's rows, nats a token",
    "excess": "their sum: 0 if sampled from the target",
    "repetition": "share of four-token runs that came before",
}
Interval = tuple[float, float, float]  # estimate, lower and upper end


@dataclass(frozen=True, slots=True)
class Texts:
    """Sums over each of R outputs, [R].

    log_probability: of its tokens under the target, in nats. entropy: of the target's distributions that its tokens
    stand in, in nats. repeated, grams: its runs of four tokens that came before in it, and all of them.
    """

    tokens: np.ndarray
    log_probability: np.ndarray
    entropy: np.ndarray
    repeated: np.ndarray
    grams: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, float, float, float]]) -> Texts:
        """From one row of the five sums for each output."""
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 5).T)

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, count: int) -> Texts:
        """The first so many outputs."""
        sums = self.tokens, self.log_probability, self.entropy, self.repeated, self.grams
        return Texts(*(each[:count] for each in sums))

    def measures(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Every measure over all tokens, [S], where output i counts weights[s, i] times.

        excess is log-probability plus entropy. Whoever samples from the target has 0 there on average, whatever the
        text: a token's expected log-probability is minus the entropy of the distribution it is drawn from, so the
        sums are a martingale.
        """
        tokens, grams = weights @ self.tokens, weights @ self.grams
        log_probability, entropy = weights @ self.log_probability / tokens, weights @ self.entropy / tokens
        with np.errstate(invalid="ignore"):
            repetition = weights @ self.repeated / grams
        return {
            "log_probability": log_probability,
            "entropy": entropy,
            "excess": log_probability + entropy,
            "repetition": repetition,
        }


def repetition(tokens: Sequence[int], n: int = GRAM) -> tuple[int, int]:
    """(runs of n tokens that came earlier in the output, all of its runs)."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(grams) - len(set(grams)), len(grams)


def intervals(texts: Texts, seed: int = 0) -> dict[str, Interval]:
    """Every measure with its 95 % percentile bootstrap interval over outputs (Efron 1979)."""
    weights = _weights(len(texts), seed)
    return _intervals(texts.measures(np.ones((1, len(texts)))), texts.measures(weights))


def differences(texts: Texts, reference: Texts, seed: int = 0) -> dict[str, Interval]:
    """Measures of texts minus those of a reference, paired: output i of both answers the same request.

    The bootstrap draws requests, so both sides of a pair come together.
    """
    R = min(len(texts), len(reference))
    texts, reference = texts.first(R), reference.first(R)
    parts = []
    for weights in (np.ones((1, R)), _weights(R, seed)):
        ours, theirs = texts.measures(weights), reference.measures(weights)
        parts.append({name: ours[name] - theirs[name] for name in ours})
    return _intervals(*parts)


def _weights(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(float)


def _intervals(found: dict[str, np.ndarray], resampled: dict[str, np.ndarray]) -> dict[str, Interval]:
    intervals = {}
    for name, values in resampled.items():
        low = high = float("nan")
        if np.isfinite(values).any():
            low, high = (float(np.nanquantile(values, tail)) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        intervals[name] = float(found[name][0]), low, high
    return intervals


def known(interval: Sequence[float | None]) -> Interval | None:
    """An interval as JSON has it, with None for what is no number; None unless all of it is known."""
    estimate, low, high = interval
    return None if estimate is None or low is None or high is None else (estimate, low, high)


def within_noise(interval: Interval | None) -> bool:
    """Whether a difference may be none: its interval holds 0, or there is none."""
    if interval is None:
        return True
    _, low, high = interval
    return not (low > 0 or high < 0)
