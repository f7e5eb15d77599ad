"""Calibration rows as arrays: the one place where sparse rows become sums that add up."""

import numpy as np

from avlab.figures.base import Columns
from avlab.speculation.calibration import BINS, FIELDS
from avlab.speculation.estimators import base as estimators


def sources_of(rows: Columns) -> list[str]:
    """The estimators that have labelled slots, the online one first."""
    present = set(rows.get("source", np.zeros(0)).tolist())
    return sorted(present, key=lambda name: (name != estimators.DEFAULT, name))


def title(source: str) -> str:
    """An estimator's name on charts; that in the database where the estimator itself is not here any more."""
    return estimators.named(source).title if estimators.exists(source) else source


def of_source(rows: Columns, source: str, K: int) -> np.ndarray:
    """Sums over all windows, [K, 128, 5]."""
    return over_windows(rows, source, K)[1].sum(axis=0)


def comparable(rows: Columns) -> dict[str, np.ndarray]:
    """Only the windows in which every source predicted, so that all are judged on the same draft tokens.

    (Under a fixed policy the online estimator does not predict, and the maximum probability is still recorded.) A
    source that shares no window with those before it, as that of another arm, is left out.
    """
    buckets = [np.unique(rows["bucket"][rows["source"] == source]) for source in sources_of(rows)]
    shared = buckets[0] if buckets else np.zeros(0)
    for other in buckets[1:]:
        both = np.intersect1d(shared, other)
        shared = both if len(both) else shared
    kept = np.isin(rows["bucket"], shared) if buckets else np.zeros(0, bool)
    return {name: column[kept] for name, column in rows.items()} if buckets else dict(rows)


def over_windows(rows: Columns, source: str, K: int) -> tuple[np.ndarray, np.ndarray]:
    """The end of each window (s on the run's clock, [W]) and its sums [W, K, 128, 5]."""
    if not len(rows.get("source", ())):
        return np.zeros(0), np.zeros((0, K, BINS, len(FIELDS)))
    mine = rows["source"] == source
    for name, most in (("position", K), ("bin", BINS)):  # a database may hold anything
        mine &= (rows[name] >= 0) & (rows[name] < most)
    if not mine.any():
        return np.zeros(0), np.zeros((0, K, BINS, len(FIELDS)))
    bucket, row = np.unique(rows["bucket"][mine], return_inverse=True)
    sums = np.zeros((len(bucket), K, BINS, len(FIELDS)))
    time = np.zeros(len(bucket))
    np.maximum.at(time, row, rows["time"][mine])
    for column, name in enumerate(FIELDS):
        np.add.at(sums[..., column], (row, rows["position"][mine], rows["bin"][mine]), rows[name][mine])
    return time, sums
