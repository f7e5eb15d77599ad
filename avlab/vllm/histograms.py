"""Latencies from vLLM's histograms: what fell into each bucket, and percentiles of that.

A bucket is (low, high, count), seconds; high is infinite in the last one. vLLM's bounds are those of
`vllm/v1/metrics/loggers.py`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Buckets = tuple[tuple[float, float, float], ...]

HISTOGRAMS: dict[str, tuple[str, ...]] = {  # newest names first
    "first_token": ("vllm:time_to_first_token_seconds_bucket",),
    "between_outputs": (
        "vllm:inter_token_latency_seconds_bucket",
        "vllm:time_per_output_token_seconds_bucket",
    ),
    "request": ("vllm:e2e_request_latency_seconds_bucket",),
}
NAMES = frozenset(name for names in HISTOGRAMS.values() for name in names)
QUANTILES = (0.5, 0.95, 0.99)
MOST_BUCKETS = 256  # of one histogram
MOST_COUNT = 2.0**53


@dataclass(frozen=True, slots=True)
class Quantile:
    """seconds; beyond: it lies above the highest finite bound, which is what seconds then is."""

    seconds: float
    beyond: bool = False


def of_bounds(cumulative: Mapping[float, float]) -> Buckets:
    """Buckets from counts up to each bound, as a text of /metrics has them."""
    found, low, before = [], 0.0, 0.0
    for high in sorted(cumulative)[:MOST_BUCKETS]:
        found.append((low, high, max(cumulative[high] - before, 0.0)))
        low, before = high, max(cumulative[high], before)
    return tuple(found)


def since(before: Buckets, after: Buckets) -> Buckets:
    """What came between two readings; () where the bounds are others."""
    if [each[:2] for each in before] != [each[:2] for each in after]:
        return ()
    return tuple((low, high, max(n - m, 0.0)) for (*_, m), (low, high, n) in zip(before, after, strict=True))


def together(parts: Iterable[Buckets]) -> Buckets:
    """All of them, bucket by bucket, in the order of their upper bounds."""
    sums: dict[tuple[float, float], float] = {}
    for part in parts:
        for low, high, count in part:
            sums[low, high] = sums.get((low, high), 0.0) + count
    return tuple(
        (low, high, count) for (low, high), count in sorted(sums.items(), key=lambda each: each[0][::-1])
    )


def quantile(buckets: Buckets, q: float) -> Quantile | None:
    """As Prometheus' `histogram_quantile`: a straight line within the bucket. None where nothing was counted."""
    total = sum(count for *_, count in buckets)
    if not total:
        return None
    rank, below = q * total, 0.0
    for low, high, count in buckets:
        if count and below + count >= rank:
            if math.isinf(high):
                return Quantile(low, beyond=True)
            return Quantile(low + (high - low) * (rank - below) / count)
        below += count
    return None


def told(found: Mapping[str, Buckets]) -> str | None:
    """Histograms as JSON: the buckets that are not empty, an infinite bound as null. None without any."""
    plain = {
        name: [[low, None if math.isinf(high) else high, count] for low, high, count in buckets if count]
        for name, buckets in found.items()
    }
    plain = {name: rows for name, rows in plain.items() if rows}
    return json.dumps(plain) if plain else None


def read(text: str | None) -> dict[str, Buckets]:
    """The histograms of such a text; what cannot be is passed over."""
    try:
        plain = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(plain, dict):
        return {}
    found = {}
    for name in HISTOGRAMS:
        rows = plain.get(name)
        if isinstance(rows, list) and len(rows) <= MOST_BUCKETS and all(map(_is_bucket, rows)):
            found[name] = tuple(
                (float(low), math.inf if high is None else float(high), float(count))
                for low, high, count in rows
            )
    return found


def _is_bucket(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 3:
        return False
    low, high, count = row
    known = [low, count] if high is None else [low, high, count]
    numbers = all(
        isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= MOST_COUNT for v in known
    )
    return numbers and (high is None or low <= high)


def percentiles(buckets: Buckets) -> dict[str, float | None]:
    """p50_ms, p95_ms and p99_ms, None where nothing was counted; beyond_ms: the highest finite bound where one of them
    lies above it, and then they are that bound.
    """
    found = {f"p{round(100 * q)}_ms": quantile(buckets, q) for q in QUANTILES}
    beyond = next((each.seconds for each in found.values() if each and each.beyond), None)
    return {
        **{name: None if each is None else 1e3 * each.seconds for name, each in found.items()},
        "beyond_ms": None if beyond is None else 1e3 * beyond,
    }
