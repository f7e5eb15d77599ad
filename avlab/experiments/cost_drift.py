"""What a cost table costs that is no longer true: an arm decides by it, and the clock goes by the true one.

vLLM profiles its tables at start, with synthetic contexts; its issue #52057 asks what drift costs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from avlab.experiments import estimator_learning as learning
from avlab.experiments.estimator_losses import LEARN, REPEATS, rates, ratio, share_of, table_of
from avlab.machines import Machine
from avlab.policies.base import PolicyContext
from avlab.replay.trace import Trace
from avlab.speculation.costs import CostTable

Distortion = Callable[
    [np.ndarray, int], np.ndarray
]  # verify costs [tokens + 1], tokens of a full step -> costs


def _growing(share: float) -> Distortion:
    """Wrong by a share that grows with the size, up to `share` where every draft is verified."""
    return lambda verify, full: verify * (1.0 + share * np.minimum(np.arange(len(verify)) / full, 1.0))


def _dead_spot(verify: np.ndarray, full: int) -> np.ndarray:
    """One latency spike while it was profiled: a size in the middle seems three times as dear, and a table whose costs
    never fall carries that to all that lie behind."""
    spiked = verify.copy()
    spiked[full // 2 : full // 2 + max(full // 16, 1)] *= 3.0
    return np.maximum.accumulate(spiked)


def _noise(verify: np.ndarray, full: int) -> np.ndarray:
    """A tenth of noise at every sixteenth of a full step, as a few timings of each size leave it."""
    rng = np.random.default_rng(0)
    marks = np.arange(0, len(verify) + full, max(full // 16, 1))
    factors = np.exp(0.1 * rng.standard_normal(len(marks)))
    return np.maximum.accumulate(verify * np.interp(np.arange(len(verify)), marks, factors))


def _flat(verify: np.ndarray, full: int) -> np.ndarray:
    """A table of one number: whoever has no table at all."""
    return np.full_like(verify, verify[min(full, len(verify) - 1)])


DRIFTS: dict[str, Distortion] = {
    "10 % too dear at full size": _growing(0.1),
    "30 % too dear at full size": _growing(0.3),
    "10 % too cheap at full size": _growing(-0.1),
    "30 % too cheap at full size": _growing(-0.3),
    "noise of 10 %": _noise,
    "a spike at half the size": _dead_spot,
    "no costs known (flat)": _flat,
}


@dataclass(frozen=True, slots=True)
class Drift:
    """An arm by a table that is wrong in one way: its tokens/s over those by the true table, with its interval."""

    name: str
    ratio: float
    low: float
    high: float


def drift(
    trace: Trace,
    machine: Machine,
    name: str,
    load: int,
    depth: bool = False,
    seed: int = 0,
    repeats: int = REPEATS,
) -> list[Drift]:
    """An estimator's arm under every distortion. Raises TraceError."""
    learning.check(trace, [name])
    table, full = table_of(trace, machine, load), load * (trace.about.K + 1)
    serving = learning.learn(
        trace, machine, name, np.arange(trace.texts), own=True, load=load, steps=LEARN, seed=seed
    )

    def served_by(costs: CostTable) -> np.ndarray:
        policy = learning.policy_of(trace, machine, name, load, depth, PolicyContext(trace.about.K, costs))
        policy.estimator = deepcopy(serving[-1][1])
        return rates(trace, machine, policy, load, seed, repeats)

    true, found = served_by(table), []
    for each, distort in DRIFTS.items():
        wrong = served_by(CostTable(table.draft, distort(table.verify, full)))
        found.append(Drift(each, *ratio(wrong, true, share_of(trace, load))))
    return found
