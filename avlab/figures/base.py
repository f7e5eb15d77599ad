"""What all figures share: the quiet frame, bins of time, and markers of what changed."""

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.escaping import in_plotly
from avlab.figures import palette

Columns = Mapping[str, np.ndarray]

SECONDS = "seconds since the run began"
ROW_PIXELS, CHARACTER_PIXELS, MOST_ROWS = 13, 6, 3  # of the words at marks
PLOT_PIXELS = 300  # width of a plot that is half a page or all of a phone's
NARROWEST = 42  # characters in a line of a chart on a phone
MOST_BINS = 240  # of time, in a chart that is redrawn every second
LEAST_GAP = 2.0  # seconds without service over which no line is drawn


def frame(
    x: str, y: str, height: int = 270, *, y_from_zero: bool = False, unified: bool = True, legend: bool = True
) -> go.Figure:
    """An empty figure with titled axes (name, unit) and a legend above the plot."""
    return go.Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": 58, "r": 14, "t": 34 if legend else 10, "b": 46},
            "xaxis": {
                "title": {"text": x, "standoff": 8},
                "showgrid": False,
                "ticks": "outside",
                "ticklen": 4,
            },
            "yaxis": {
                "title": {"text": y, "standoff": 8},
                "rangemode": "tozero" if y_from_zero else "normal",
            },
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
            "showlegend": legend,
            "hovermode": "x unified" if unified else "closest",
            "uirevision": "keep",
        }
    )


def line(name: str, x: Any, y: Any, colour: str, **more: Any) -> go.Scatter:
    """A line in SVG; nan leaves a gap."""
    values = {"mode": "lines", "line": {"color": colour, "width": 2}, "name": in_plotly(name), "x": x, "y": y}
    return go.Scatter(**(values | more))


def gaps_of(rows: Columns, least: float = LEAST_GAP) -> np.ndarray:
    """Before which rows, of those behind the first, nothing was served for longer than `least` seconds, [N - 1] bool.

    rows: in order of time, each the end (`time`) of `seconds`, in `paused` of which serving was held.
    """
    begin = rows["time"] - rows["seconds"] + rows.get("paused", 0.0)
    return begin[1:] - rows["time"][:-1] > least


def bins_of(rows: Columns, least: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Bins of time for rows as in `gaps_of`: their number by row, and the place of each bin (s), its middle.

    A bin is 1, 2, 5, 10, .. seconds wide (or `least`), so that there are at most 240 with rows, and it begins at a
    multiple of its width: a point of the chart stays where it was when more follows. At the two ends of a gap that is
    wider than a bin there is an empty one, whose `ratio` is nan, so that lines break.
    """
    time = rows["time"]
    span = float(time[-1] - time[0]) if len(time) else 0.0
    width = least
    for step in (
        1.0,
        2.0,
        5.0,
        10.0,
        20.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1800.0,
        3600.0,
        21600.0,
        86400.0,
    ):
        width = max(least, step)
        if span / width <= MOST_BINS:
            break
    number = np.floor(time / width).astype(np.int64)
    gaps = gaps_of(rows, max(width, LEAST_GAP))
    # in halves of a bin: middles are odd, ends of bins are even
    ends = np.concatenate([number[:-1][gaps] + 1, number[1:][gaps]])
    halves = np.unique(np.concatenate([2 * number + 1, 2 * ends]))
    return np.searchsorted(halves, 2 * number + 1), halves * (width / 2)


def total(values: Any, index: np.ndarray, bins: int) -> np.ndarray:
    """Sums by bin; nan counts as nothing."""
    return np.bincount(index, weights=np.nan_to_num(np.asarray(values, dtype=float)), minlength=bins)


def ratio(above: Any, below: Any) -> np.ndarray:
    """above / below, nan where there is nothing below."""
    above, below = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    return np.divide(above, below, out=np.full(np.broadcast(above, below).shape, np.nan), where=below > 0)


def changes(blocks: Sequence[Mapping[str, Any]], key: str = "time") -> list[tuple[float, str]]:
    """Where policy or workload changed: (time, or step), what it changed to. The first block is not a change."""
    found = []
    for before, after in itertools.pairwise(blocks):
        if after.get("round") is not None:
            continue  # the blocks of an A/B are too many to be marked
        parts = [after["arm"]] if after["arm"] != before["arm"] else []
        parts += [after["workload"]] if after["workload"] != before["workload"] else []
        parts += [after["kind"]] if after["kind"] != before["kind"] else []
        if parts:
            found.append((float(after[key]), ", ".join(map(str, parts))))
    return found


def mark(figure: go.Figure, marks: Iterable[tuple[float, str]], after: float = -np.inf) -> go.Figure:
    """Dotted lines with a word where something changed, from `after` on."""
    kept = [(place, text) for place, text in marks if place >= after]
    line_style = {"color": palette.EVENT, "width": 1, "dash": "dot"}
    word = {"y": 1, "yref": "paper", "showarrow": False, "xanchor": "left", "yanchor": "top", "xshift": 3}
    if kept:
        figure.layout.shapes = [
            {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "line": line_style}
            for place, _ in kept
        ]
        figure.layout.annotations = [
            {"x": place, "text": in_plotly(text), "font": {"size": 11}, "yshift": -ROW_PIXELS * row, **word}
            for (place, text), row in zip(kept, _rows_of(figure, kept), strict=True)
        ]
    return figure


def _rows_of(figure: go.Figure, marks: Sequence[tuple[float, str]]) -> list[int]:
    """The row of each mark's word, from the top, so that words close together stand under each other."""
    ends_of_traces = [
        float(trace.x[end])
        for trace in figure.data
        if trace.x is not None and len(trace.x)
        for end in (0, -1)
    ]
    places = [*ends_of_traces, *(place for place, _ in marks)]
    span = max(places) - min(places)
    ends: list[float] = []  # of the last word in each row
    rows = []
    for place, text in marks:
        row = next((row for row, end in enumerate(ends) if end <= place), len(ends))
        row = min(row, MOST_ROWS - 1)
        ends[row : row + 1] = [place + span * (CHARACTER_PIXELS * len(text) + 8) / PLOT_PIXELS]
        rows.append(row)
    return rows


def nothing(text: str, height: int = 200) -> go.Figure:
    """A figure that says why there is nothing to see yet, in lines that fit the narrowest chart."""
    figure = frame("", "", height, legend=False)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    lines = "<br>".join(map(in_plotly, textwrap.wrap(text, NARROWEST)))
    return figure.add_annotation(text=lines, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
