"""How other engines choose the draft tokens to verify, from survivals of earlier steps. Our code, their rules.

SGLang: `dspark_components/dspark_planner.py`, `compute_verify_token_budget`. TensorRT-LLM:
`_torch/speculative/dspark_planner.py`, the function of the same name. Both read at the end of 2026.
"""

from __future__ import annotations

import numpy as np

SURVIVAL_LEAST = 1e-6  # a slot below this is no candidate, in both


def straight(cost: np.ndarray) -> np.ndarray:
    """Cost by size with straight lines between captured sizes, in place of the steps of an engine that pads, [N].

    Both engines interpolate a profile that holds captured sizes only. A table whose every size was profiled is
    unchanged.
    """
    cost = np.asarray(cost, dtype=np.float64)
    sizes = np.arange(len(cost))
    ends = np.append(np.flatnonzero(np.diff(cost)), len(cost) - 1)  # the last size of each step
    return np.interp(sizes, sizes[ends], cost[ends])


def sglang_budget(survivals, requests: int, step_ms) -> int:
    """SGLang's: the budget 0, 1, 2, .. with the most expected tokens per millisecond.

    survivals: of the slots that may be verified, any shape. step_ms(tokens): milliseconds [..] of a step whose pass
    holds so many tokens [..], everything included: bias + alpha(requests) + theta(tokens).
    """
    tokens = requests + _best_first(np.ravel(survivals), SURVIVAL_LEAST)
    return int(np.argmax(tokens / step_ms(requests + np.arange(len(tokens)))))


def tensorrt_budget(survival, scheduled, step_ms, gain: float = 0.0, floor: int = 1) -> int:
    """TensorRT-LLM's: draft tokens *beyond* the first `floor` of every request, which are always verified.

    survival [B, K], scheduled [B], step_ms as in `sglang_budget`. The budget with the most expected tokens per
    millisecond, unless verifying everything comes within `gain` (relative) of it: then everything.
    """
    survival = np.asarray(survival, dtype=np.float64)
    B, K = survival.shape
    exists = np.arange(K) < np.asarray(scheduled)[:, None]
    granted = survival[:, :floor][exists[:, :floor]]
    tokens = B + granted.sum() + _best_first(survival[:, floor:][exists[:, floor:]])
    rate = tokens / step_ms(B + granted.size + np.arange(len(tokens)))
    best = int(np.argmax(rate))
    return len(rate) - 1 if rate[best] < rate[-1] * (1.0 + gain) else best


def _best_first(survivals: np.ndarray, least: float = 0.0) -> np.ndarray:
    """Expected tokens of the 0, 1, 2, .. best slots, [N + 1]."""
    best = np.sort(survivals[survivals >= least])[::-1]
    return np.concatenate([[0.0], np.cumsum(best)])
