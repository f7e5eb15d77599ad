"""Figures of the Live page: rates, what happens to draft tokens, where a step's time goes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import (
    SECONDS,
    Columns,
    bins_of,
    changes,
    frame,
    gaps_of,
    line,
    mark,
    nothing,
    ratio,
    total,
)

Blocks = Sequence[Mapping[str, Any]]
WAITING = "Waiting for the first steps."
MOST_REQUESTS = 1000  # dots of a chart


def throughput(steps: Columns, blocks: Blocks = ()) -> go.Figure:
    """Output tokens a second over the run, from bucketed steps, with the changes of policy and workload."""
    if not len(steps.get("step", ())):
        return nothing(WAITING)
    index, middle = bins_of(steps)
    served = steps["seconds"] - steps.get("paused", 0.0)
    rate = ratio(total(steps["tokens"], index, len(middle)), total(served, index, len(middle)))
    figure = frame(SECONDS, "output tokens/s", y_from_zero=True, legend=False)
    figure.add_trace(line("throughput", middle, rate, palette.RATE, hovertemplate="%{y:.1f} tokens/s"))
    figure.add_trace(  # of its own, since a line's own area is drawn across the line's gaps
        go.Scatter(
            x=middle, y=np.nan_to_num(rate), mode="none", fill="tozeroy", hoverinfo="skip", showlegend=False,
            fillcolor=palette.faint(palette.RATE, 0.10),
        )
    )  # fmt: skip
    return mark(figure, changes(blocks), float(middle[0]))


def interactivity(requests: Columns, steps: Columns) -> go.Figure:
    """Output tokens a second for one user: each finished request, and the median of the last 25.

    steps: bucketed steps, for where nothing was served.
    """
    rate = request_rates(requests)
    known = np.flatnonzero(np.isfinite(rate))
    if not len(known):
        return nothing("Waiting for the first request to end.")
    time, rate = requests["last_token"][known], rate[known]
    order = np.argsort(time)[-MOST_REQUESTS:]
    time, rate = time[order].astype(np.float32), rate[order].astype(np.float32)
    middle = running_median(rate, 25)
    figure = frame(SECONDS, "tokens/s for one user", y_from_zero=True)
    figure.add_trace(
        go.Scatter(
            x=time, y=rate, mode="markers", name="one request", hovertemplate="%{y:.1f} tokens/s",
            marker={"color": palette.faint(palette.USER, 0.35), "size": 5},
        )
    )  # fmt: skip
    figure.add_trace(
        line(
            "median of the last 25", *_broken(time, middle, steps), palette.USER,
            hovertemplate="%{y:.1f} tokens/s",
        )
    )  # fmt: skip
    return figure


def _broken(time: np.ndarray, values: np.ndarray, steps: Columns) -> tuple[np.ndarray, np.ndarray]:
    """A line over moments (ascending) with a nan in every gap of the steps that it would cross."""
    if not len(steps.get("step", ())):
        return time, values
    since = steps["time"][:-1][gaps_of(steps)]
    places = np.searchsorted(time, since, side="right")
    crossed = (places > 0) & (places < len(time))
    places, first = np.unique(places[crossed], return_index=True)
    return np.insert(time, places, since[crossed][first]), np.insert(values, places, np.nan)


def running_median(values: np.ndarray, width: int) -> np.ndarray:
    """The median of each value and those before it, `width` in all where there are as many, [N] of `values`' type."""
    begin = [np.median(values[: i + 1]) for i in range(min(width - 1, len(values)))]
    whole = np.lib.stride_tricks.sliding_window_view(values, width) if len(values) >= width else None
    rest = [] if whole is None else np.median(whole, axis=1)
    return np.concatenate([begin, rest]).astype(values.dtype)


def request_rates(requests: Columns) -> np.ndarray:
    """(n - 1) / (last token's time - first token's time) of requests that ran to their end; nan elsewhere."""
    if not len(requests.get("request", ())):
        return np.zeros(0)
    whole = np.isin(requests["finish"], ("end", "length")) & (requests["output_tokens"] > 1)
    first, last = (requests[name].astype(float) for name in ("first_token", "last_token"))
    return np.where(whole, ratio(requests["output_tokens"] - 1, last - first), np.nan)


def tokens_per_step(steps: Columns, blocks: Blocks = ()) -> go.Figure:
    """Tokens that a request gains in a step in which it gains any."""
    if not len(steps.get("step", ())):
        return nothing(WAITING)
    index, middle = bins_of(steps)
    value = ratio(total(steps["tokens"], index, len(middle)), total(steps["emitting"], index, len(middle)))
    figure = frame(SECONDS, "tokens per request and step", legend=False)
    figure.add_trace(line("tokens per step", middle, value, palette.ACCEPTED, hovertemplate="%{y:.2f}"))
    return mark(figure, changes(blocks), float(middle[0]))


def acceptance(steps: Columns, blocks: Blocks = ()) -> go.Figure:
    """The three acceptance ratios over the run."""
    if not len(steps.get("step", ())) or not np.sum(steps["scheduled"]):
        return nothing("No draft tokens: this policy does not speculate, or no step was taken yet.")
    index, middle = bins_of(steps)
    sums = {
        name: total(steps[name], index, len(middle))
        for name in ("scheduled", "admitted", "accepted", "labelled")
    }
    figure = frame(SECONDS, "share of draft tokens")
    for below, colour in (
        ("scheduled", palette.SCHEDULED),
        ("admitted", palette.ADMITTED),
        ("labelled", palette.ACCEPTED),
    ):
        name = f"accepted / {below}"
        figure.add_trace(
            line(name, middle, ratio(sums["accepted"], sums[below]), colour, hovertemplate="%{y:.3f}")
        )
    figure.update_yaxes(range=[0, 1.02])
    return mark(figure, changes(blocks), float(middle[0]))


def positions(totals: Sequence[Mapping[str, float]], steps: int) -> go.Figure:
    """Draft tokens a step by position: accepted inside admitted inside scheduled."""
    if not totals or not steps:
        return nothing("No draft tokens: this policy does not speculate, or no step was taken yet.")
    figure = frame("draft position", "draft tokens a step", y_from_zero=True)
    x = [row["position"] for row in totals]
    for name, width, colour in (
        ("scheduled", 0.86, palette.faint(palette.SCHEDULED, 0.45)),
        ("admitted", 0.58, palette.ADMITTED),
        ("accepted", 0.30, palette.ACCEPTED),
    ):
        y = [row[name] / steps for row in totals]
        figure.add_trace(
            go.Bar(
                x=x, y=y, width=width, name=name, marker={"color": colour}, hovertemplate="%{y:.2f} a step"
            )
        )
    figure.update_layout(barmode="overlay", xaxis={"dtick": 1})
    return figure


def ledger(steps: Columns) -> go.Figure:
    """Milliseconds of a step by what they were spent on, stacked, over the run."""
    if not len(steps.get("step", ())):
        return nothing(WAITING)
    index, middle = bins_of(steps)
    count = total(steps["steps"], index, len(middle))
    figure = frame(SECONDS, "milliseconds a step", y_from_zero=True)
    for phase, colour in palette.PHASES.items():
        spent = ratio(total(steps[f"{phase}_ms"] * steps["steps"], index, len(middle)), count)
        figure.add_trace(
            line(
                phase, middle, spent, colour, stackgroup="time", hovertemplate="%{y:.1f} ms",
                line={"width": 0.5, "color": colour}, fillcolor=palette.faint(colour, 0.75),
            )
        )  # fmt: skip
    return figure


def queue(steps: Columns) -> go.Figure:
    """Requests that hold a place in the engine, and those that wait for one."""
    if not len(steps.get("step", ())):
        return nothing(WAITING)
    index, middle = bins_of(steps)
    count = total(steps["steps"], index, len(middle))
    figure = frame(SECONDS, "requests", y_from_zero=True)
    for name, colour in (("running", palette.ADMITTED), ("waiting", palette.REJECTED)):
        value = ratio(total(steps[name] * steps["steps"], index, len(middle)), count)
        figure.add_trace(line(name, middle, value, colour, hovertemplate="%{y:.1f}"))
    return figure
