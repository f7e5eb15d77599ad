"""Cost tables: milliseconds by size for every size, from timed samples of some sizes.

Three builders. `padded_table` is for engines that pad a batch up to the next captured size (vLLM with CUDA graphs).
`convex_table` is for an engine that does not pad, timed beside other work (the reference engine): the convex curve
beneath its quickest runs. `linear_table` draws straight lines between samples as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MOST_MS = 1e6  # chosen here: nothing that is timed takes a quarter of an hour
LEAST_VERIFY_COST = 1e-6  # milliseconds; keeps the objective finite whatever was measured


def _checked(samples) -> np.ndarray:
    samples = np.asarray(samples, dtype=np.float64).reshape(-1, 2)
    if not len(samples) or not np.isfinite(samples).all():
        raise ValueError(f"a cost curve needs finite (size, milliseconds) samples; got {len(samples)} rows")
    return samples


def medians(samples) -> tuple[np.ndarray, np.ndarray]:
    """Timed samples [N, 2] as (size, ms) to sizes [S] ascending and the median of each one's, [S]. Raises ValueError as
    `curve_of` does."""
    samples = _checked(samples)
    sizes = np.unique(samples[:, 0])
    return sizes, np.array([np.median(samples[samples[:, 0] == size, 1]) for size in sizes])


def curve_of(samples) -> tuple[np.ndarray, np.ndarray]:
    """Timed samples [N, 2] as (size, ms), in any order, to sizes [S] ascending and their costs [S].

    Cost is the median of a size's samples, then forced not to fall as size grows (a running maximum).
    Raises ValueError if there are no samples or one is not finite.
    """
    sizes, costs = medians(samples)
    return sizes, np.maximum.accumulate(costs)


def convex_curve(samples) -> tuple[np.ndarray, np.ndarray]:
    """Timed samples [N, 2] as (size, ms), in any order, to sizes [S] ascending and costs [S] that do not fall and are
    convex: the largest such curve beneath the mean of each size's two quickest samples.

    A run can be held up and cannot be hurried, so quick ones are near the truth; and without padding another token
    costs no less than the one before. A size whose every run was held up lies above its neighbours' line, which then
    holds. A table whose slope falls somewhere would make policies jump across sizes that cost little more.

    Raises ValueError as `curve_of` does.
    """
    samples = _checked(samples)
    sizes = np.unique(samples[:, 0])
    costs = np.array([np.sort(samples[samples[:, 0] == size, 1])[:2].mean() for size in sizes])
    costs = np.minimum.accumulate(costs[::-1])[::-1]
    corners: list[int] = []
    for i in range(len(sizes)):  # Andrew's monotone chain
        while len(corners) > 1:
            a, b = corners[-2:]
            if (costs[b] - costs[a]) * (sizes[i] - sizes[a]) < (costs[i] - costs[a]) * (sizes[b] - sizes[a]):
                break
            corners.pop()
        corners.append(i)
    return sizes, np.interp(sizes, sizes[corners], costs[corners])


def _extend_linearly(table: np.ndarray, sizes: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Beyond the last sample go on with the slope between the last two."""
    if len(sizes) > 1:
        beyond = np.arange(len(table)) > sizes[-1]
        slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
        table[beyond] = costs[-1] + slope * (np.arange(len(table))[beyond] - sizes[-1])
    return table


def linear_table(samples, largest: int) -> np.ndarray:
    """Cost of sizes 0..largest in milliseconds, [largest + 1]: straight lines between samples.

    Below the first sample its own cost holds; beyond the last one the last slope goes on.
    """
    sizes, costs = curve_of(samples)
    return _extend_linearly(np.interp(np.arange(largest + 1), sizes, costs), sizes, costs)


def convex_table(samples, largest: int) -> np.ndarray:
    """As `linear_table`, along the `convex_curve` of the samples."""
    sizes, costs = convex_curve(samples)
    return _extend_linearly(np.interp(np.arange(largest + 1), sizes, costs), sizes, costs)


def padded_table(samples, largest: int, captured: int = 0) -> np.ndarray:
    """Cost of sizes 0..largest in milliseconds, [largest + 1], as vLLM 0.33 builds it.

    captured: largest captured size. Up to it a size costs what the next sampled size costs, since execution
    pads; beyond it straight lines between the samples that lie beyond it; beyond the last sample the last
    slope goes on. With captured = 0 the whole table is steps.
    """
    sizes, costs = curve_of(samples)
    every = np.arange(largest + 1)
    table = costs[np.minimum(np.searchsorted(sizes, every), len(sizes) - 1)]
    unpadded = sizes > captured
    if captured and unpadded.any():
        table[every > captured] = np.interp(every[every > captured], sizes[unpadded], costs[unpadded])
    return _extend_linearly(table, sizes, costs)


def depth_table(
    samples, largest: int, K: int, by_requests: Callable[[np.ndarray, int], np.ndarray] = linear_table
) -> np.ndarray:
    """Draft cost by requests and depth, [largest + 1, K + 1], from samples [N, 3] (requests, depth, ms).

    Each sampled depth is a table by requests as `by_requests` makes it; depths between are straight lines; depth 0
    costs nothing. Cost does not fall as depth grows. Raises ValueError unless some depth of at least 1 was sampled.
    """
    samples = np.asarray(samples, dtype=np.float64).reshape(-1, 3)
    depths = np.unique(samples[samples[:, 1] > 0, 1])
    if not len(depths):
        raise ValueError("a draft cost table by depth needs samples of depth 1 or more; got none")
    columns = [by_requests(samples[samples[:, 1] == depth][:, [0, 2]], largest) for depth in depths]
    knots, costs = np.concatenate([[0.0], depths]), np.stack([np.zeros(largest + 1), *columns], axis=1)
    costs = np.maximum.accumulate(costs, axis=1)
    return np.stack([np.interp(np.arange(K + 1), knots, row) for row in costs])


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Milliseconds: draft [requests + 1] (or [requests + 1, K + 1], by depth too) and verify [tokens + 1]."""

    draft: np.ndarray
    verify: np.ndarray

    @classmethod
    def padded(cls, draft, verify, requests: int, tokens: int, captured: int = 0) -> CostTable:
        """Tables for an engine that pads; draft and verify: samples [N, 2]; requests and tokens: limits."""
        return cls._floored(padded_table(draft, requests, captured), padded_table(verify, tokens, captured))

    @classmethod
    def linear(cls, draft, verify, requests: int, tokens: int, K: int | None = None) -> CostTable:
        """Straight lines between samples; draft samples are [N, 3], with depth, when K is given."""
        table = linear_table(draft, requests) if K is None else depth_table(draft, requests, K)
        return cls._floored(table, linear_table(verify, tokens))

    @classmethod
    def convex(cls, draft, verify, requests: int, tokens: int, K: int | None = None) -> CostTable:
        """As `linear`, along convex curves beneath the samples: for an engine that does not pad, timed on a machine
        that may be busy."""
        table = convex_table(draft, requests) if K is None else depth_table(draft, requests, K, convex_table)
        return cls._floored(table, convex_table(verify, tokens))

    @classmethod
    def _floored(cls, draft: np.ndarray, verify: np.ndarray) -> CostTable:
        return cls(np.maximum(draft, 0.0), np.maximum(verify, LEAST_VERIFY_COST))

    def draft_at(self, depth: int) -> np.ndarray:
        """Draft cost by requests, [requests + 1], for a draft of this depth."""
        if self.draft.ndim == 2:
            return self.draft[:, depth]
        return self.draft if depth else np.zeros_like(self.draft)

    def by_depth(self, K: int) -> np.ndarray:
        """Draft cost by requests and depth, [requests + 1, K + 1]."""
        if self.draft.ndim == 2:
            return self.draft
        return np.stack([self.draft_at(depth) for depth in range(K + 1)], axis=1)

    def step(self, requests: int, depth: int, tokens: int) -> float:
        """Cost of a whole step: a draft of this depth, and a target's pass of so many tokens (or the largest known)."""
        return float(self.draft_at(depth)[requests] + self.verify[min(tokens, len(self.verify) - 1)])

    def to_dict(self) -> dict:
        """Plain lists of numbers, fit for JSON; exact both ways."""
        return {"draft": self.draft.tolist(), "verify": self.verify.tolist()}

    @classmethod
    def from_dict(cls, plain: dict) -> CostTable:
        """The reverse of `to_dict`; raises ValueError if the two tables are not there, or hold no numbers."""
        try:
            draft, verify = (np.asarray(plain[name], dtype=np.float64) for name in ("draft", "verify"))
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(
                f"a cost table needs 'draft' and 'verify' lists of milliseconds: {problem}"
            ) from None
        if verify.ndim != 1 or draft.ndim not in (1, 2) or not draft.size or not verify.size:
            raise ValueError(
                f"cost tables have shapes {draft.shape} and {verify.shape}; need [R] or [R, D], and [T]"
            )
        return cls(draft, verify)
