"""Latencies of users over the run: time to the first token, and time between tokens."""

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import SECONDS, Columns, frame, line, nothing

SHARES = (50, 95, 99)
COLOURS = (palette.USER, palette.BONUS, palette.REJECTED)
MOST_POINTS = 60
LEAST = {50: 3, 95: 20, 99: 100}  # requests in a point, below which that percentile is only the largest value


def first_token(requests: Columns) -> go.Figure:
    """Milliseconds from arrival to the first token, queue and prompt included: percentiles over the run."""
    if not len(requests.get("request", ())):
        return nothing("Waiting for the first request to end.")
    value = 1e3 * (requests["first_token"].astype(float) - requests["arrival"].astype(float))
    return _percentiles(requests["first_token"].astype(float), value, "ms to the first token")


def between_tokens(requests: Columns) -> go.Figure:
    """Milliseconds between tokens, a request's mean behind its first token: percentiles over the run."""
    if not len(requests.get("request", ())):
        return nothing("Waiting for the first request to end.")
    first, last, tokens = (
        requests[name].astype(float) for name in ("first_token", "last_token", "output_tokens")
    )
    value = np.divide(1e3 * (last - first), tokens - 1, out=np.full(len(tokens), np.nan), where=tokens > 1)
    return _percentiles(last, value, "ms between tokens")


def percentiles(time: np.ndarray, value: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By share: middles of equal spans of time with enough values, and the percentile there."""
    known = np.isfinite(time) & np.isfinite(value)
    time, value = time[known], value[known]
    if not len(time):
        return {}
    span = max(float(np.ptp(time)), 1e-9)
    found = {}
    for share in SHARES:
        parts = int(np.clip(len(time) // LEAST[share], 0, MOST_POINTS))
        if not parts:
            continue
        part = np.minimum(((time - time.min()) / span * parts).astype(int), parts - 1)
        rows = [np.flatnonzero(part == each) for each in range(parts)]
        enough = [each for each in rows if len(each) >= LEAST[share]]
        found[share] = (
            np.array([time[each].mean() for each in enough]),
            np.array([np.percentile(value[each], share) for each in enough]),
        )
    return found


def _percentiles(time: np.ndarray, value: np.ndarray, axis: str) -> go.Figure:
    found = percentiles(time, value)
    if not found:
        return nothing("Waiting for requests to end.")
    figure = frame(SECONDS, axis, y_from_zero=True)
    for share, colour in zip(SHARES, COLOURS, strict=True):
        if share in found and len(found[share][0]):
            figure.add_trace(
                line(
                    f"{share} %", *found[share], colour, mode="lines+markers", marker={"size": 4},
                    hovertemplate="%{y:.1f} ms",
                )
            )  # fmt: skip
    return figure
