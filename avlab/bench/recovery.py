"""How fast a policy finds its way after traffic or load has changed: from the steps and refits of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WINDOW = 50  # steps over which throughput is taken
SHARE = 0.95  # of the settled throughput, that counts as being back


class Recovery(NamedTuple):
    """One phase. settled: tokens/s, the median over its second half. steps, refits: until throughput was back to stay;
    infinite if it never was. least: the lowest throughput on the way, over the settled one.
    """

    settled: float
    steps: float
    refits: float
    least: float


def windowed(time, tokens, window: int = WINDOW) -> np.ndarray:
    """Tokens a second over the last `window` steps, [T - window], from each step's end (s) and tokens, [T] each."""
    time, total = np.asarray(time, dtype=np.float64), np.cumsum(tokens)
    return (total[window:] - total[:-window]) / (time[window:] - time[:-window])


def recovery(time, tokens, step, refits, begin: float, end: float) -> Recovery:
    """How a phase from `begin` to `end` (s) was taken up. time, tokens, step: [T] of every step; refits: step numbers.

    Windows lie within the phase. One is back if it has SHARE of the settled throughput, and so has the median of the
    WINDOW windows from it on (or of what is left of the phase). After a step down the first windows are far above while
    requests of before finish, and a dip may follow: for these, the windows behind them are asked. Refits are counted
    from the phase's first step to the last step of the window that is back.
    """
    time = np.asarray(time, dtype=np.float64)
    within = (time >= begin) & (time < end)
    time, tokens, step = time[within], np.asarray(tokens)[within], np.asarray(step)[within]
    rates = windowed(time, tokens)
    if not len(rates):
        return Recovery(np.nan, np.inf, np.inf, np.nan)
    settled = float(
        np.median(rates[time[WINDOW:] >= (begin + end) / 2] if time[-1] >= (begin + end) / 2 else rates)
    )
    enough = SHARE * settled
    drained = int(np.argmin(rates > settled / SHARE))  # the first window that is not above
    first = next(
        (i for i in np.flatnonzero(rates >= enough) if _stays(rates, max(int(i), drained), enough)), None
    )
    if first is None:
        return Recovery(settled, np.inf, np.inf, float(rates.min() / settled))
    last = step[first + WINDOW]
    count = np.count_nonzero((np.asarray(refits) >= step[0]) & (np.asarray(refits) <= last))
    least = float(rates[: first + 1].min() / settled)
    return Recovery(settled, float(first + WINDOW), float(count), least)


def _stays(rates: np.ndarray, place: int, enough: float) -> bool:
    return bool(np.median(rates[place : place + WINDOW]) >= enough)


def phase_rates(time, tokens, bounds) -> np.ndarray:
    """Tokens a second of each phase, [P], from each step's end (s) and tokens; bounds: [P + 1] in seconds."""
    place = np.searchsorted(np.asarray(bounds), np.asarray(time), side="right") - 1
    total = np.bincount(np.clip(place, 0, len(bounds) - 2), np.asarray(tokens), minlength=len(bounds) - 1)
    return total / np.diff(bounds)
