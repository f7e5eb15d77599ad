"""How good acceptance estimates are, from labelled slots: exactly, or from sums over 128 fixed log-odds bins.

Binned sums are an array [..., 128, 5]: they add, so any windows and positions can be merged after the fact.
Log-loss and Brier from sums are exact, ECE up to where a group may be cut; AUC counts a bin's pairs as ties.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avlab.speculation.features import log_odds as to_log_odds
from avlab.speculation.features import probability

BINS = 128
BIN_RANGE = 8.0  # log-odds; chosen here: bins of 1/8, the open ones at the ends hold p within 4e-4 of 0 or 1
COUNT, POSITIVES, SUM_P, SUM_LOG_LOSS, SUM_SQUARED_ERROR = range(5)
FIELDS = ("count", "positives", "sum_p", "sum_log_loss", "sum_squared_error")
GROUPS = 15  # equal-mass groups in the calibration error


def bin_of(log_odds) -> np.ndarray:
    """Bin number 0..127 of each log-odds: equal widths from -8 to 8, the first and last bin open."""
    width = 2 * BIN_RANGE / BINS
    return np.clip(np.floor((np.asarray(log_odds) + BIN_RANGE) / width), 0, BINS - 1).astype(np.int64)


def bin_edges() -> np.ndarray:
    """Log-odds at which bins begin and end, [129]; the first and last stand for minus and plus infinity."""
    return np.linspace(-BIN_RANGE, BIN_RANGE, BINS + 1)


def slot_log_loss(log_odds, label) -> np.ndarray:
    """-log of the probability given to what happened, by element, in nats; exact also near certainty."""
    return np.logaddexp(
        0.0, np.where(np.asarray(label) > 0, -1.0, 1.0) * np.asarray(log_odds, dtype=np.float64)
    )


def bin_sums(log_odds, label, labelled=None) -> np.ndarray:
    """Sums by position and bin, [K, 128, 5], over slots given as [B, K]; columns in the order of `FIELDS`.

    log_odds: the estimates as log-odds; label: 0 or 1; labelled: which slots count (default: all).
    """
    return grouped_bin_sums(log_odds, label, labelled, np.zeros(len(log_odds), dtype=np.int64), 1)[0]


def grouped_bin_sums(log_odds, label, labelled, group: np.ndarray, groups: int) -> np.ndarray:
    """`bin_sums` of each group of rows, [groups, K, 128, 5]. group [B]: the row's, from 0."""
    log_odds = np.asarray(log_odds, dtype=np.float64)
    B, K = log_odds.shape
    chosen = np.ones((B, K), bool) if labelled is None else np.asarray(labelled, dtype=bool)
    x, y = log_odds[chosen], np.broadcast_to(label, (B, K))[chosen].astype(np.float64)
    place = (group[:, None] * K + np.arange(K)) * BINS
    cell = place[chosen] + bin_of(x)
    p = probability(x)
    columns = (None, y, p, slot_log_loss(x, y), (p - y) ** 2)
    sums = [np.bincount(cell, weights=weights, minlength=groups * K * BINS) for weights in columns]
    return np.stack(sums, axis=-1).astype(np.float64).reshape(groups, K, BINS, 5)


def merge(*sums) -> np.ndarray:
    """One array of binned sums from several of the same shape."""
    return np.sum(sums, axis=0)


def _group_sums(sums: np.ndarray, groups: int) -> np.ndarray:
    """Neighbouring bins added up to at most `groups` groups of about equal count: [groups, columns]."""
    count = sums[:, COUNT]
    middle = np.cumsum(count) - count / 2
    group = np.minimum((middle * groups / max(count.sum(), 1.0)).astype(np.int64), groups - 1)
    merged = np.zeros((groups, sums.shape[1]))
    np.add.at(merged, group, sums)
    return merged[merged[:, COUNT] > 0]


def reliability(sums, groups: int = GROUPS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reliability curve of binned sums [128, 5]: mean estimate, observed rate, slots, of non-empty groups."""
    merged = _group_sums(np.asarray(sums), groups)
    return merged[:, SUM_P] / merged[:, COUNT], merged[:, POSITIVES] / merged[:, COUNT], merged[:, COUNT]


def ece_noise_floor(sums, groups: int = GROUPS) -> float:
    """The calibration error that perfectly calibrated estimates would show at this sample size, on average.

    A group's excess of positives is then a sum of centred coins with variance V = sum p(1-p). Its mean
    absolute value is sqrt(2V / pi) (normal), and at most twice the smaller expected count (rules at V < 1).
    """
    sums = np.asarray(sums)
    mean = sums[:, SUM_P] / np.maximum(sums[:, COUNT], 1.0)
    variance = sums[:, COUNT] * mean * (1.0 - mean)
    wanted = np.stack([sums[:, COUNT], sums[:, SUM_P], variance], axis=-1)
    merged = _group_sums(wanted, groups)
    rarer = np.minimum(merged[:, 1], merged[:, 0] - merged[:, 1])
    deviation = np.minimum(np.sqrt(2.0 * merged[:, 2] / np.pi), 2.0 * rarer)
    return float(deviation.sum() / merged[:, 0].sum()) if len(merged) else float("nan")


@dataclass(frozen=True, slots=True)
class Scores:
    """count (labelled slots), observed (rate), mean_estimate, auc, log_loss (nats), brier, ece, ece_floor.

    A score that the data cannot give (no slots; one class only for the AUC) is NaN.
    """

    count: int
    observed: float
    mean_estimate: float
    auc: float
    log_loss: float
    brier: float
    ece: float
    ece_floor: float


def _auc_of_counts(positives: np.ndarray, negatives: np.ndarray) -> float:
    """Chance that a positive outranks a negative, from counts by ascending score; equals count half."""
    pairs = positives.sum() * negatives.sum()
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / pairs) if pairs > 0 else float("nan")


def scores(sums, groups: int = GROUPS) -> Scores:
    """All measures from binned sums [128, 5]; sum over positions first for one number over all of them."""
    sums = np.asarray(sums, dtype=np.float64)
    total = sums.sum(axis=0)
    n = total[COUNT]
    if n == 0:
        return Scores(0, *[float("nan")] * 7)
    mean, rate, count = reliability(sums, groups)
    return Scores(
        count=int(n),
        observed=float(total[POSITIVES] / n),
        mean_estimate=float(total[SUM_P] / n),
        auc=_auc_of_counts(sums[:, POSITIVES], sums[:, COUNT] - sums[:, POSITIVES]),
        log_loss=float(total[SUM_LOG_LOSS] / n),
        brier=float(total[SUM_SQUARED_ERROR] / n),
        ece=float((np.abs(mean - rate) * count).sum() / n),
        ece_floor=ece_noise_floor(sums, groups),
    )


def exact_auc(estimate, label) -> float:
    """Area under the ROC curve of estimates [N] (any increasing scale) for labels [N]; ties count half."""
    _, place = np.unique(np.asarray(estimate), return_inverse=True)
    label = np.asarray(label, dtype=np.float64)
    return _auc_of_counts(np.bincount(place, weights=label), np.bincount(place, weights=1.0 - label))


def exact_ece(estimate, label, groups: int = GROUPS) -> float:
    """Calibration error of probabilities [N] in groups cut at their quantiles; equals stay together."""
    p, y = np.asarray(estimate, dtype=np.float64), np.asarray(label, dtype=np.float64)
    cuts = np.quantile(p, np.linspace(0, 1, groups + 1)[1:-1])
    excess = np.bincount(np.searchsorted(cuts, p), weights=p - y, minlength=groups)
    return float(np.abs(excess).sum() / len(p))


def exact_scores(estimate, label, groups: int = GROUPS) -> Scores:
    """All measures from the slots themselves: probabilities [N] and labels [N], without binning."""
    p, y = np.asarray(estimate, dtype=np.float64), np.asarray(label, dtype=np.float64)
    if not len(p):
        return Scores(0, *[float("nan")] * 7)
    x = to_log_odds(p)
    return Scores(
        count=len(p),
        observed=float(y.mean()),
        mean_estimate=float(p.mean()),
        auc=exact_auc(p, y),
        log_loss=float(slot_log_loss(x, y).mean()),
        brier=float(((p - y) ** 2).mean()),
        ece=exact_ece(p, y, groups),
        ece_floor=ece_noise_floor(bin_sums(x[:, None], y[:, None])[0], groups),
    )
