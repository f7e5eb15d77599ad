"""How good estimators are on the drafts of a trace, with intervals by text.

Every text is judged by an estimator that has learnt from other texts. Labels are uncensored: whole drafts are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from avlab.experiments import estimator_learning as learning
from avlab.experiments.estimator_learning import Slots, fully_verified
from avlab.machines import Machine
from avlab.replay.trace import Trace
from avlab.speculation.calibration import BINS, FIELDS, bin_sums, reliability, scores
from avlab.speculation.estimators import base as estimators
from avlab.speculation.estimators.base import Estimator

MEASURES = ("auc", "log_loss", "brier", "ece")
RESAMPLES = 200  # of the texts, for an interval
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with its 95 % interval: a bootstrap by text."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scored:
    """auc, log_loss (nats), brier, ece, each with its interval; ece_floor: what a perfect estimator would show at this
    sample size; labels, observed (rate) and mean_estimate of them."""

    auc: Measure
    log_loss: Measure
    brier: Measure
    ece: Measure
    ece_floor: float
    labels: int
    observed: float
    mean_estimate: float


@dataclass(frozen=True, slots=True)
class Judged:
    """An estimator on a trace. sound: a run may be served by it. by_position [K]. reliability: (mean estimate, observed
    rate, labels) of up to 15 groups. curve: (labels learnt from, log-loss, ECE) after each refit; empty where it does
    not learn. own: the scores where it learnt only from what it admitted itself, None where it does not learn."""

    name: str
    title: str
    sound: bool
    overall: Scored
    by_position: tuple[Scored, ...]
    reliability: tuple[tuple[float, float, float], ...]
    curve: tuple[tuple[float, float, float], ...]
    own: Scored | None


def sums_by_text(estimator: Estimator, slots: Slots, trace: Trace) -> np.ndarray:
    """Binned sums of an estimator's predictions, [T, K, BINS, 5]; all draws of a text count as one text."""
    log_odds = estimator.predict(slots.features.only(estimator.reads))
    K = log_odds.shape[1]
    found = np.zeros((trace.texts // trace.about.draws, K, BINS, len(FIELDS)))
    for text in np.unique(slots.text):
        mine = slots.text == text
        labelled = slots.labels.labelled[mine] & np.isfinite(log_odds[mine])
        found[text // trace.about.draws] += bin_sums(
            np.nan_to_num(log_odds[mine]), slots.labels.label[mine], labelled
        )
    return found


def scored(sums: np.ndarray, seed: int = 0) -> Scored:
    """All measures of binned sums by text, [T, BINS, 5]."""
    whole = scores(sums.sum(axis=0))
    T = len(sums)
    drawn = np.random.default_rng([seed, 6]).multinomial(T, np.full(T, 1 / T), RESAMPLES)
    resampled = (drawn @ sums.reshape(T, -1)).reshape(RESAMPLES, *sums.shape[1:])
    again = [scores(each) for each in resampled]
    ends = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2

    def measure(name: str) -> Measure:
        """The interval is the pivotal one: resampling raises a calibration error, and this takes it off again."""
        value = getattr(whole, name)
        if not whole.count:
            return Measure(value, np.nan, np.nan)
        low, high = np.nanquantile([getattr(each, name) for each in again], ends)
        return Measure(value, max(float(2 * value - high), 0.0), float(2 * value - low))

    auc, log_loss, brier, ece = map(measure, MEASURES)
    return Scored(
        auc, log_loss, brier, ece, whole.ece_floor, whole.count, whole.observed, whole.mean_estimate
    )


def judge(
    trace: Trace,
    machine: Machine,
    names: Sequence[str],
    load: int = learning.REQUESTS,
    steps: int = learning.STEPS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Judged]:
    """Every estimator, learnt and judged on different texts of one trace. Raises TraceError.

    machine, load: whose costs decide what an estimator admits for itself.
    """
    learning.check(trace, list(names))
    slots, fold = fully_verified(trace), learning.folds(trace, seed)
    found = []
    for done, name in enumerate(names):
        found.append(_judged(trace, machine, name, slots, fold, load, steps, seed))
        progress(done + 1, len(names))
    return found


def _judged(
    trace: Trace,
    machine: Machine,
    name: str,
    slots: Slots,
    fold: np.ndarray,
    load: int,
    steps: int,
    seed: int,
) -> Judged:
    def sums(own: bool) -> tuple[list[float], list[np.ndarray]]:
        """Labels learnt from (mean over folds), and sums by text, at each refit."""
        labels: list[float] = []
        total: list[np.ndarray] = []
        for k in range(learning.FOLDS):
            history = learning.learn(
                trace, machine, name, np.flatnonzero(fold != k), own=own, load=load, steps=steps, seed=seed
            )
            judged = slots[fold[slots.text] == k]
            for number, (seen, estimator) in enumerate(history):
                if own and number < len(history) - 1:
                    continue
                mine = sums_by_text(estimator, judged, trace)
                if (at := 0 if own else number) == len(total):
                    labels.append(0.0)
                    total.append(np.zeros_like(mine))
                labels[at] += seen / learning.FOLDS
                total[at] += mine
        return labels, total

    kind = estimators.named(name)
    labels, history = sums(own=False)
    last = history[-1]
    pooled = last.sum(axis=1)
    curve = []
    if kind.learns:
        for seen, each in zip(labels, history, strict=True):
            whole = scores(each.sum(axis=(0, 1)))
            curve.append((seen, whole.log_loss, whole.ece))
    return Judged(
        name=name,
        title=kind.title,
        sound=estimators.sound(name),
        overall=scored(pooled, seed),
        by_position=tuple(scored(last[:, k], seed) for k in range(last.shape[1])),
        reliability=tuple(map(tuple, np.stack(reliability(pooled.sum(axis=0)), axis=1).tolist())),
        curve=tuple(curve),
        own=scored(sums(own=True)[1][0].sum(axis=1), seed) if kind.learns else None,
    )


def transfer(
    learnt_on: Trace, judged_on: Trace, machine: Machine, names: Sequence[str], seed: int = 0
) -> list[tuple[str, Scored, Scored]]:
    """Estimators that learnt on one trace and are judged on another: (name, at once, after 1,000 steps there).

    The two share K. The second half of the texts of the other trace is judged, the first half learnt from.
    """
    learning.check(learnt_on, list(names))
    learning.check(judged_on, list(names))
    fold = learning.folds(judged_on, seed)
    slots = fully_verified(judged_on)
    slots = slots[fold[slots.text] == 1]
    found = []
    for name in names:
        before = learning.learn(learnt_on, machine, name, np.arange(learnt_on.texts), seed=seed)[-1][1]
        there = np.flatnonzero(fold == 0)
        after = learning.learn(judged_on, machine, name, there, seed=seed, start=before)[-1][1]
        at_once, later = (
            scored(
                sums_by_text(each, slots, judged_on)[fold[:: judged_on.about.draws] == 1].sum(axis=1), seed
            )
            for each in (before, after)
        )
        found.append((name, at_once, later))
    return found
