"""Figures of the Calibration page: do the estimates mean what they say?"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from avlab.escaping import in_plotly
from avlab.figures import palette
from avlab.figures.base import SECONDS, frame, line, nothing
from avlab.figures.sums import title as estimator_title
from avlab.speculation.calibration import COUNT, GROUPS, POSITIVES, SUM_P, Scores, reliability, scores
from avlab.speculation.intervals import auc_error, wilson

MEASURES = {
    "ece": "ECE (mean distance from the diagonal)",
    "log_loss": "log-loss (nats a slot)",
    "brier": "Brier score",
    "auc": "AUC",
}
WAITING = "No labelled draft tokens yet."
LEAST_IN_GROUP = 25  # fewer slots a point would only show chance
ENOUGH = 1000  # labels behind a point that is drawn at full strength
FAINTEST = 0.2


def reliability_diagram(sums: Mapping[str, np.ndarray], height: int = 400) -> go.Figure:
    """Mean estimate against observed acceptance, by source, with 95 % intervals and the slots in each group.

    sums: by source, [128, 5].
    """
    known = {name: values for name, values in sums.items() if values[:, COUNT].sum() > 0}
    if not known:
        return nothing(WAITING)
    figure = frame("acceptance estimate (mean of the group)", "accepted share", height, unified=False)
    figure.add_trace(_diagonal())
    for source, values in known.items():
        figure.add_trace(_points(source, values))
    figure.update_layout(xaxis={"range": [0, 1.02], "showgrid": True}, yaxis={"range": [0, 1.02]})
    return figure


def _points(source: str, sums: np.ndarray, small: bool = False) -> go.Scatter:
    groups = max(1, min(GROUPS, int(sums[:, COUNT].sum()) // LEAST_IN_GROUP))
    mean, rate, count = reliability(sums, groups)
    low, high = wilson(rate * count, count)
    colour = palette.source(source)
    return go.Scatter(
        x=mean, y=rate, mode="lines+markers", name=in_plotly(estimator_title(source)), customdata=count,
        line={"color": palette.faint(colour, 0.45), "width": 1},
        marker={"color": colour, "size": 5 if small else 7, "opacity": strength(count)},
        error_y={
            "type": "data", "array": high - rate, "arrayminus": rate - low, "color": palette.faint(colour, 0.6),
            "thickness": 1, "width": 0 if small else 3,
        },
        hovertemplate="estimate %{x:.3f}<br>accepted %{y:.3f}<br>%{customdata:,} slots", legendgroup=source,
        showlegend=not small,
    )  # fmt: skip


def strength(labels: np.ndarray) -> np.ndarray:
    """How opaque a point is that stands for so many labels: the fewer, the fainter."""
    return np.clip(np.sqrt(np.asarray(labels, dtype=np.float64) / ENOUGH), FAINTEST, 1.0)


def _diagonal() -> go.Scatter:
    return go.Scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="calibrated", hoverinfo="skip",
        line={"color": palette.EVENT, "width": 1, "dash": "dash"}, showlegend=False,
    )  # fmt: skip


def by_position(sums: Mapping[str, np.ndarray], columns: int = 4) -> go.Figure:
    """A small reliability diagram for every position. sums: by source, [K, 128, 5]."""
    K = max((len(values) for values in sums.values()), default=0)
    if not K or not any(values[..., COUNT].sum() for values in sums.values()):
        return nothing(WAITING)
    rows = math.ceil(K / columns)
    titles = [_title(k, sums) for k in range(K)]
    figure = make_subplots(
        rows, columns, subplot_titles=titles, horizontal_spacing=0.05, vertical_spacing=0.255
    )
    for k in range(K):
        place = {"row": k // columns + 1, "col": k % columns + 1}
        figure.add_trace(_diagonal(), **place)
        for source, values in sums.items():
            if values[k][:, COUNT].sum():
                figure.add_trace(_points(source, values[k], small=True), **place)
    figure.update_layout(
        template="none", height=230 * rows + 40, margin={"l": 40, "r": 10, "t": 52, "b": 36}, uirevision="keep",
        showlegend=False, hovermode="closest",
    )  # fmt: skip
    figure.update_xaxes(range=[0, 1.04], tickvals=[0, 0.5, 1])
    figure.update_yaxes(range=[0, 1.04], tickvals=[0, 0.5, 1])
    figure.update_annotations(font={"size": 12})
    return figure


def axis(measure: str) -> str:
    """A measure's name without what explains it, which is longer than an axis."""
    return MEASURES[measure].partition(" (mean")[0]


def _title(k: int, sums: Mapping[str, np.ndarray]) -> str:
    count = max(int(values[k][:, COUNT].sum()) for values in sums.values())
    return f"position {k}<br>{count:,} slots"


def bin_counts(sums: Mapping[str, np.ndarray]) -> go.Figure:
    """How many labelled slots had which estimate, by source. sums: by source, [128, 5]."""
    if not any(values[:, COUNT].sum() for values in sums.values()):
        return nothing(WAITING)
    figure = frame("acceptance estimate", "share of labelled slots", 220, y_from_zero=True, unified=False)
    edges = np.linspace(0, 1, 26)
    for source, values in sums.items():
        mean = np.divide(
            values[:, SUM_P], values[:, COUNT], out=np.zeros(len(values)), where=values[:, COUNT] > 0
        )
        count = np.bincount(np.minimum((mean * 25).astype(int), 24), weights=values[:, COUNT], minlength=25)
        figure.add_trace(
            go.Bar(
                x=(edges[:-1] + edges[1:]) / 2, y=count / max(count.sum(), 1), customdata=count,
                name=in_plotly(estimator_title(source)), marker={"color": palette.faint(palette.source(source), 0.7)},
                hovertemplate="around %{x:.2f}: %{customdata:,.0f} slots",
            )
        )  # fmt: skip
    figure.update_layout(barmode="group", bargap=0.1)
    return figure


def over_time(
    windows: Mapping[str, tuple[np.ndarray, np.ndarray]], measure: str, position: int | None
) -> go.Figure:
    """One measure of calibration over the run, by source, at one position or over all of them.

    windows: by source, the end of each window (s) and its sums [W, K, 128, 5].
    """
    figure = frame(SECONDS, axis(measure))
    drawn = False
    for source, (time, sums) in windows.items():
        merged = sums.sum(axis=1) if position is None else sums[:, position]
        found = [scores(window) for window in merged]
        values = [getattr(each, measure) for each in found]
        if np.isfinite(values).any():
            drawn = True
            colour = palette.source(source)
            figure.add_trace(
                line(estimator_title(source), time, values, colour, hovertemplate="%{y:.4f}", mode="lines+markers",
                     marker={"size": 4, "opacity": strength(np.array([each.count for each in found]))})
            )  # fmt: skip
            if measure == "ece" and source == next(iter(windows)):
                floor = [each.ece_floor for each in found]
                figure.add_trace(
                    line(
                        "noise floor", time, floor, palette.EVENT, hovertemplate="%{y:.4f}",
                        line={"color": palette.EVENT, "width": 1, "dash": "dash"},
                    )
                )  # fmt: skip
    if measure in ("ece", "brier"):
        figure.update_yaxes(rangemode="tozero")
    return figure if drawn else nothing(WAITING)


def measures_by_position(sums: Mapping[str, np.ndarray], measure: str) -> go.Figure:
    """One measure by position, by source. sums: by source, [K, 128, 5]."""
    figure = frame("draft position", axis(measure))
    for place, (source, values) in enumerate(sums.items()):
        scored = [scores(each) for each in values]
        colour, at = palette.source(source), list(range(len(values)))
        labels = np.array([each.count for each in scored])
        figure.add_trace(
            line(
                estimator_title(source), at, [getattr(each, measure) for each in scored], colour,
                line={"color": palette.faint(colour, 0.45), "width": 1}, mode="lines+markers",
                marker={"color": colour, "size": 7, "opacity": strength(labels)},
                customdata=labels, hovertemplate="%{y:.4f} of %{customdata:,} labels",
                **_error(measure, scored, colour),
            )
        )  # fmt: skip
        if measure == "ece" and place == 0:
            figure.add_trace(
                line(
                    "noise floor", at, [each.ece_floor for each in scored], palette.EVENT, hovertemplate="%{y:.4f}",
                    line={"color": palette.EVENT, "width": 1, "dash": "dash"},
                )
            )  # fmt: skip
    figure.update_layout(xaxis={"dtick": 1})
    return figure


def _error(measure: str, scored: Sequence[Scores], colour: str) -> dict[str, Any]:
    """Bars of 95 % around an AUC."""
    if measure != "auc":
        return {}
    auc = np.array([each.auc for each in scored])
    accepted = np.array([each.observed * each.count if each.count else 0.0 for each in scored])
    half = 1.96 * auc_error(auc, accepted, np.array([each.count for each in scored]) - accepted)
    return {"error_y": {"type": "data", "array": half, "color": palette.faint(colour, 0.6), "thickness": 1}}


def observed(sums: np.ndarray) -> float:
    """Accepted share of the labelled slots in sums [..., 5]; nan without any."""
    total = sums.reshape(-1, sums.shape[-1]).sum(axis=0)
    return float(total[POSITIVES] / total[COUNT]) if total[COUNT] else float("nan")
