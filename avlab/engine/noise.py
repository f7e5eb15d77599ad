"""Noise for sampling: a stateless generator, so that every draw is named and none is ever used twice.

A uniform is a hash of (request seed, stream, draw counter, index). Streams keep draft, acceptance and token draws
apart; the counter is the number of steps the request has taken part in, so a position drawn again after trimming gets
fresh noise. (Noise keyed by position instead was a real fault in a serving engine; docs/sampling.md tells.)
The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied twice.
"""

from typing import Protocol

import numpy as np

DRAFT, ACCEPT, TOKEN, COIN = range(4)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Uniforms(Protocol):
    """A source of draws: `uniforms`, or one with a fault that an audit looks for."""

    def __call__(self, seeds: np.ndarray, stream: int, counters: np.ndarray, width: int) -> np.ndarray:
        """Uniforms in [0, 1), float64 [B, width], for requests with these seeds [B] at these draw counters [B]."""
        ...


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: np.ndarray, stream: int, counters: np.ndarray, width: int) -> np.ndarray:
    """Uniforms in [0, 1), float64 [B, width], for requests with these seeds [B] at these draw counters [B]."""
    with np.errstate(over="ignore"):
        seed = _mix(np.asarray(seeds, dtype=np.uint64) + _GOLDEN)
        place = _mix(np.asarray(counters, dtype=np.uint64) * np.uint64(4) + np.uint64(stream))
        index = np.arange(1, width + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(_mix(seed ^ place)[:, None] + index)
    return (bits >> np.uint64(11)) * 2.0**-53
