"""What an arm loses, and to what: tokens a second by exact replay, knowing more from rung to rung.

arm          the estimator as it serves, learnt by its own admissions
calibration  the same ranking, perfectly calibrated: each position's scores through the rising curve that fits them best
ranking      the true chance of every slot given its drafted prefix, after the draft; budgets still by the step before
anticipation the true chances of this step's draft are known when its budget and depth are settled
rule         as before, and depth and budget are those of most tokens less milliseconds at the rate that the whole
             replay reaches, in place of the step's own best ratio

All serve the same texts with the same drafts. The last two see what no sound rule may see: they are limits, not arms.
A slot behind a trim is remembered as the drafter alone would have gone on; its true chance is not recorded, so there
the perfectly calibrated estimate stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from avlab.experiments import estimator_learning as learning
from avlab.experiments.statistics import student_quantile
from avlab.machines import Machine
from avlab.policies.adaptive import AdaptiveVerification
from avlab.policies.base import Policy, PolicyContext
from avlab.policies.fixed import Fixed
from avlab.replay.serving import Replay
from avlab.replay.trace import Trace
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimators.base import REFIT_INTERVAL, Estimator
from avlab.speculation.features import Features, log_odds
from avlab.speculation.isotonic import isotonic
from avlab.speculation.labels import Labels

LEARN = 500  # steps by its own admissions before anything is counted
SETTLE = 20  # steps of a repeat that are not counted
STEPS = 80  # counted steps of a repeat, at 80 requests or more
REQUEST_STEPS = 640  # counted request-steps of a repeat, at the least
GROUPS = 60  # of a perfect calibration's curve, of equal mass
REPEATS = 6
RUNGS = ("arm", "calibration", "ranking", "anticipation", "rule")
CONFIDENCE = 0.95
LENGTHS = (0, 1, 2, 3, 4, 5, 7)


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung's tokens/s, and its gain over the rung below, as a ratio with its 95 % interval over sets of texts."""

    name: str
    tokens_per_s: float
    gain: float
    low: float
    high: float


class Told(Estimator):
    """Says what one column of a trace says. Never registered: a limit, not an estimator."""

    name: ClassVar[str] = "told"
    title: ClassVar[str] = "a column of the trace"
    reads: ClassVar[tuple[str, ...]] = ("told",)

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        """Nothing to begin with."""

    def predict(self, features: Features) -> np.ndarray:
        return features["told"]

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        """Nothing is learnt."""


class AtRate(AdaptiveVerification):
    """Settles depth and budget for the most tokens less milliseconds at a going rate."""

    rate = 0.0  # tokens a millisecond

    def decide(self, offer: Offer) -> Decision:
        costs, K = self.deciding, offer.earlier.shape[1]
        survival = np.cumprod(np.where(np.isnan(offer.earlier), 1.0, offer.earlier), axis=1)
        exists = np.arange(K) < offer.scheduled[:, None]
        best = (0, 0, -np.inf)
        for depth in range(K + 1):
            slots = np.sort(survival[:, :depth][exists[:, :depth]])[::-1]
            slots = slots[: len(costs.verify) - 1 - offer.other_tokens]
            tokens = np.append(0.0, np.cumsum(slots))
            passes = costs.verify[offer.other_tokens : offer.other_tokens + len(tokens)]
            worth = tokens - self.rate * (passes + costs.by_depth(K)[offer.requests, depth])
            if worth.max() > best[2]:
                best = (depth, int(worth.argmax()), float(worth.max()))
        depth, budget, _ = best
        return Decision(depth, depth, budget, np.zeros(len(offer.scheduled), dtype=bool))


def with_column(trace: Trace, column: np.ndarray, behind: np.ndarray | None) -> Trace:
    """A trace whose only feature is "told": log-odds [A, K], and [A, K, K] for drafts that leave the text."""
    return replace(
        trace,
        about=replace(trace.about, features=("told",)),
        features=column[..., None].astype(np.float32),
        behind=None if behind is None else behind[..., None].astype(np.float32),
    )


def perfectly_calibrated(trace: Trace, estimator: Estimator) -> tuple[np.ndarray, np.ndarray | None]:
    """Log-odds [A, K] and [A, K, K] of an estimator's scores, each position's through the rising curve of the true
    chance on drafts that have followed the text so far."""
    K, names = trace.about.K, trace.about.features
    on_text = np.arange(K) <= trace.accepted[:, None]

    def predict(features: np.ndarray) -> np.ndarray:
        told = Features(names, features.astype(np.float64), np.repeat(trace.kind, trace.output_tokens - 1))
        return estimator.predict(told.only(estimator.reads))

    raw = predict(trace.features)
    tails = (
        None if trace.behind is None else np.stack([predict(trace.behind[:, k]) for k in range(K)], axis=1)
    )
    found, found_tails = np.empty_like(raw), None if tails is None else np.empty_like(tails)
    for k in range(K):
        mine = on_text[:, k] & np.isfinite(trace.acceptance[:, k])
        score, chance = raw[mine, k], trace.acceptance[mine, k].astype(np.float64)
        order = np.argsort(score, kind="stable")
        parts = [each for each in np.array_split(order, GROUPS) if len(each)]
        mass = np.array([len(each) for each in parts], dtype=np.float64)
        curve = isotonic(np.array([chance[each].mean() for each in parts]), mass)
        at = np.array([score[each].mean() for each in parts])
        at = at + np.arange(len(at)) * 1e-9  # equal scores: np.interp wants them to rise
        curve = log_odds(np.clip(curve, 1e-4, 1 - 1e-4)) + np.arange(len(at)) * 1e-9
        found[:, k] = np.interp(raw[:, k], at, curve)
        if tails is not None and found_tails is not None:
            found_tails[:, :, k] = np.interp(tails[:, :, k], at, curve)
    return found, found_tails


def rates(
    trace: Trace,
    machine: Machine,
    policy: Policy,
    load: int,
    seed: int = 0,
    repeats: int = REPEATS,
    ahead: np.ndarray | None = None,
) -> np.ndarray:
    """Tokens/s by repeat, [repeats], each on a set of texts of its own. ahead [A, K]: chances that are known before."""
    found = np.zeros(repeats)
    for repeat in range(repeats):
        texts = trace.sample(np.random.default_rng([seed, 4, repeat]))
        replay = Replay(trace, machine, policy, load, seed + 1 + repeat, texts)
        tokens = milliseconds = 0.0
        for number in range(SETTLE + max(STEPS, REQUEST_STEPS // load)):
            if ahead is not None:
                under_way = replay.under_way
                under_way.earlier[:] = ahead[trace.first[under_way.text] + under_way.at]
            step = replay.step()
            if number >= SETTLE:
                tokens += step.tokens
                milliseconds += sum(step.milliseconds)
        found[repeat] = 1e3 * tokens / milliseconds
    return found


def ratio(mine: np.ndarray, others: np.ndarray, share: float) -> tuple[float, float, float]:
    """The geometric mean of ratios by repeat, with its 95 % interval over texts like those of the trace.

    share: of the trace's texts that a repeat serves. Repeats tell how much the ratio differs between samples of that
    many texts; the trace is itself one sample, and the repeats a choice from it.
    """
    logs = np.log(mine / others)
    half = np.inf
    if len(logs) > 1:
        spread = float(logs.std(ddof=1)) * (share + 1 / len(logs)) ** 0.5
        half = student_quantile(len(logs) - 1, (1 + CONFIDENCE) / 2) * spread
    middle = float(logs.mean())
    low, high = np.exp([middle - half, middle + half])
    return float(np.exp(middle)), float(low), float(high)


def share_of(trace: Trace, load: int) -> float:
    """Of the trace's texts, how large a part a repeat serves."""
    tokens = max(STEPS * load, REQUEST_STEPS) * trace.tokens_per_step()
    return float(min(tokens / trace.output_tokens.sum(), 1.0))


def losses(
    trace: Trace,
    machine: Machine,
    name: str,
    load: int,
    depth: bool = False,
    seed: int = 0,
    repeats: int = REPEATS,
    rungs: Sequence[str] = RUNGS,
) -> list[Rung]:
    """The rungs of an estimator under a load, from the arm up; the first few where no more are asked for.

    Raises TraceError.
    """
    learning.check(trace, [name])
    everything = np.arange(trace.texts)
    serving = learning.learn(trace, machine, name, everything, own=True, load=load, steps=LEARN, seed=seed)
    estimator = serving[-1][1]
    arm = learning.policy_of(trace, machine, name, load, depth)
    arm.estimator = estimator
    calibrated, tails = perfectly_calibrated(trace, estimator)
    chance = np.where(np.isfinite(trace.acceptance), trace.acceptance, 0.0)
    true = log_odds(np.clip(chance.astype(np.float64), 1e-4, 1 - 1e-4))
    served = {
        "calibration": with_column(trace, calibrated, tails),
        "ranking": with_column(trace, true, None if tails is None else true_on_text(true, tails)),
    }
    known, limit = (
        served["ranking"],
        AtRate(arm.arm, PolicyContext(trace.about.K, table_of(trace, machine, load))),
    )

    def replayed(rung: str) -> np.ndarray:
        if rung == "arm":
            return rates(trace, machine, arm, load, seed, repeats)
        told = told_policy(trace, machine, load, depth)
        if rung in served:
            return rates(served[rung], machine, told, load, seed, repeats)
        if rung == "anticipation":
            return rates(known, machine, told, load, seed, repeats, ahead=chance)
        limit.estimator, limit.rate = Told(trace.about.K), float(found["anticipation"].mean()) / 1e3
        first = rates(known, machine, limit, load, seed, repeats, ahead=chance)
        limit.rate = float(first.mean()) / 1e3  # the rate that it reaches is the rate that it goes by
        return rates(known, machine, limit, load, seed, repeats, ahead=chance)

    found: dict[str, np.ndarray] = {}
    steps: list[Rung] = []
    for rung in rungs:
        found[rung] = replayed(rung)
        below = found[rungs[max(len(steps) - 1, 0)]]
        steps.append(Rung(rung, float(found[rung].mean()), *ratio(found[rung], below, share_of(trace, load))))
    return steps


def true_on_text(true: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Rows [A, K, K] of drafts that leave the text after a slots: true chances up to there, estimates behind."""
    K = true.shape[1]
    behind = np.repeat(true[:, None], K, axis=1)
    row, column = np.triu_indices(K, 1)
    behind[:, row, column] = tails[:, row, column]
    return behind


def table_of(trace: Trace, machine: Machine, load: int) -> CostTable:
    """The table that policies decide by under a load."""
    return machine.table(load * trace.typical_length())


def told_policy(trace: Trace, machine: Machine, load: int, depth: bool) -> AdaptiveVerification:
    """Decides by the column "told"."""
    policy = learning.policy_of(trace, machine, "raw", load, depth)
    policy.estimator = Told(trace.about.K)
    return policy


def best_fixed(
    trace: Trace, machine: Machine, load: int, seed: int = 0, repeats: int = REPEATS
) -> tuple[int, np.ndarray]:
    """The best fixed length of a load, chosen afterwards, and its tokens/s by repeat."""
    lengths = [k for k in LENGTHS if k <= trace.about.K]
    context = PolicyContext(trace.about.K, table_of(trace, machine, load))
    found = {k: rates(trace, machine, Fixed(k).make(context), load, seed, repeats) for k in lengths}
    best = max(found, key=lambda k: found[k].mean())
    return best, found[best]
