"""Rules side by side: what each serves of one trace on one machine, and its regret to an oracle.

Beside the arms stand three that only a replay can serve. Two know the true chance of every slot given its drafted
prefix: one when the draft is there, one before. The third knows no more than an arm, but takes the *best* budget by
this step's estimates, which is UNSOUND: its speed is what the rule would do with these drafts if the texts stayed the
target's, and they would not. All three go by most tokens less milliseconds at the rate that a step should reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from avlab.experiments.estimator_losses import Told, with_column
from avlab.experiments.replay_cells import Cell, Serving
from avlab.experiments.replay_intervals import over_best_fixed
from avlab.machines import Machine
from avlab.policies.adaptive import Adaptive
from avlab.policies.base import PolicyContext
from avlab.policies.stopping import StoppingVerification
from avlab.replay.trace import Trace
from avlab.speculation.budget import survival
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.features import log_odds
from avlab.speculation.stopping import Plan, worths

LENGTHS = tuple(f"fixed:{k}" if k else "none" for k in (0, 1, 2, 3, 4, 5, 7))
RULES = (
    "adaptive", "adaptive+depth", "adaptive:converged+depth", "adaptive:converged+depth+stop",
    "adaptive:combined+depth+stop", "sglang", "tensorrt", "dspark", "threshold:0.5", "threshold:0.3+survival",
    "steps", "bandit",
)  # fmt: skip
BEST_NOW = "best budget of this step"
AFTER, BEFORE = "oracle after the draft", "oracle before the draft"
LIMITS = (BEST_NOW, AFTER, BEFORE)
EXAMPLE = (
    "whether a slot is verified hangs on the token drawn there. The target tosses a fair coin; the drafter says "
    "0.9 heads behind heads, and 0.5 behind tails; a step takes 1, 1.95, 2.5 ms with 0, 1, 2 drafts verified: heads "
    "then comes with 0.55"
)  # tests/experiments/test_replay_rules.py enumerates it


@dataclass(frozen=True, slots=True)
class Row:
    """A rule under a load. sound: "yes", "UNSOUND: why", or "limit". over_best_fixed: of tokens/s, its length chosen by
    the other blocks. regret: 1 − tokens/s over those of the oracle that knows true chances after the draft."""

    rule: str
    load: int
    sound: str
    tokens_per_s: float
    over_best_fixed: float
    regret: float


class BestNow(StoppingVerification):
    """Takes the best budget by this step's survivals, with those behind the last one looked at. Never registered."""

    def count(self, best: np.ndarray, planned: Plan, other_tokens: int) -> int:
        costs = self.deciding.verify[other_tokens : other_tokens + len(best) + 1]
        tokens = np.concatenate([[0.0], np.cumsum(best)])[: len(costs)]
        return int((tokens - planned.rate * costs).argmax())


class BestBefore(BestNow):
    """Is told this step's chances in place of earlier ones, and chooses the depth by them, too."""

    def decide(self, offer: Offer) -> Decision:
        expected = super().decide(offer)
        assert self.plan is not None
        told = survival(offer.earlier)[np.arange(self.K) < offer.scheduled[:, None]]
        position = np.broadcast_to(np.arange(self.K), offer.earlier.shape)
        position = position[np.arange(self.K) < offer.scheduled[:, None]]
        draft, verify = self.deciding.by_depth(self.K)[offer.requests], self.deciding.verify
        depth = int(
            worths(told, position, self.K, draft, verify, offer.other_tokens, self.plan.rate).argmax()
        )
        return expected._replace(drafted=depth, depth=depth)


def rules(
    trace: Trace,
    machine: Machine,
    arms: Sequence[str] = RULES,
    loads: Sequence[int] = (1, 16, 64, 128),
    seed: int = 0,
    repeats: int = 4,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Every rule under every load. Raises PolicyError, TraceError."""
    found, total = list[Row](), len(loads) * (len(LENGTHS) + len(arms) + len(LIMITS))
    for load in loads:
        cells: list[Cell] = []
        for serving in _servings(trace, machine, arms, load, seed):
            cells.append(serving.more(repeats))
            progress(len(found) // (len(arms) + len(LIMITS)) * (total // len(loads)) + len(cells), total)
        by_name = {cell.arm: cell for cell in cells}
        fixed = [by_name[name] for name in LENGTHS if name in by_name]
        best = by_name[AFTER].tokens_per_s
        for name in (*arms, *LIMITS):
            ratio = over_best_fixed([*fixed, by_name[name]])[-1].ratio
            rate = by_name[name].tokens_per_s
            found.append(Row(name, load, _sound(name), rate, ratio, 1.0 - rate / best))
    return found


def _sound(name: str) -> str:
    if name == BEST_NOW:
        return f"UNSOUND: {EXAMPLE}"
    return "limit" if name in LIMITS else "yes"


def _servings(trace: Trace, machine: Machine, arms: Sequence[str], load: int, seed: int) -> Iterator[Serving]:
    K = trace.about.K
    for name in (*(n for n in LENGTHS if n == "none" or int(n.removeprefix("fixed:")) <= K), *arms):
        yield Serving(trace, machine, name, load, seed)
    cached = load * trace.typical_length()
    context = PolicyContext(K, machine.table(cached), measured=machine.executed(cached))
    arm = Adaptive("converged", depth=True, stop=True)
    yield Serving(trace, machine, BEST_NOW, load, seed, BestNow(arm, context))
    chance = np.where(np.isfinite(trace.acceptance), trace.acceptance, 0.0).astype(np.float64)
    known = with_column(trace, log_odds(np.clip(chance, 1e-6, 1 - 1e-6)), None)
    for name, policy, ahead in (
        (AFTER, BestNow(Adaptive("raw", depth=True, stop=True), context), None),
        (BEFORE, BestBefore(Adaptive("raw", depth=True, stop=True), context), chance),
    ):
        policy.estimator = Told(K)
        yield Serving(known, machine, name, load, seed, policy, ahead)
