"""Figures of the estimator lab: judged estimators side by side."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from avlab.experiments.estimator_losses import Rung
from avlab.experiments.estimator_scores import Judged, Measure
from avlab.figures import palette
from avlab.figures.base import frame, line

STAGES = {
    "calibration": ("perfect calibration", palette.RATE),
    "ranking": ("true chance after the draft", palette.ACCEPTED),
    "anticipation": ("true chance before it", palette.BONUS),
    "rule": ("budget and depth rule", palette.EVENT),
}


def reliability(judged: Sequence[Judged]) -> go.Figure:
    """Mean estimate against accepted share, in groups of equal size."""
    figure = frame("acceptance estimate (mean of the group)", "accepted share", 400, unified=False)
    ends = [0, 1]
    dashed = {"dash": "dash", "width": 1, "color": palette.EVENT}
    figure.add_trace(line("calibrated", ends, ends, palette.EVENT, line=dashed))
    for each in judged:
        mean, rate, count = zip(*each.reliability, strict=True) if each.reliability else ((), (), ())
        figure.add_trace(
            line(
                each.name, mean, rate, palette.source(each.name), mode="lines+markers", customdata=count,
                hovertemplate="estimate %{x:.3f}<br>accepted %{y:.3f}<br>%{customdata:,} slots",
            )
        )  # fmt: skip
    return figure.update_layout(xaxis={"range": [0, 1.02], "showgrid": True}, yaxis={"range": [0, 1.02]})


def by_position(judged: Sequence[Judged], measure: str, title: str) -> go.Figure:
    """One measure by draft position, with its intervals by text."""
    figure = frame("draft position", title, 400)
    for each in judged:
        found: list[Measure] = [getattr(position, measure) for position in each.by_position]
        figure.add_trace(
            line(
                each.name, list(range(len(found))), [m.value for m in found], palette.source(each.name),
                mode="lines+markers", hovertemplate="%{y:.3f}",
                error_y={
                    "type": "data", "array": [max(m.high - m.value, 0.0) for m in found],
                    "arrayminus": [max(m.value - m.low, 0.0) for m in found], "thickness": 1, "width": 2,
                },
            )
        )  # fmt: skip
    return figure


def learning(judged: Sequence[Judged]) -> go.Figure:
    """Calibration error by the labels learnt from, on texts not learnt from."""
    figure = frame("labels learnt from", "ECE", y_from_zero=True)
    for each in judged:
        if each.curve:
            seen, _, error = zip(*each.curve, strict=True)
            figure.add_trace(
                line(
                    each.name,
                    seen,
                    error,
                    palette.source(each.name),
                    mode="lines+markers",
                    hovertemplate="%{y:.4f}",
                )
            )
    return figure


def losses(found: Mapping[str, Sequence[Rung]]) -> go.Figure:
    """What one thing more would gain each estimator, in percent, one bar a thing."""
    figure = frame("estimator", "gain, %", 320, unified=False)
    for number, (title, shade) in enumerate(STAGES.values(), start=1):
        rungs = [rungs[number] for rungs in found.values()]
        figure.add_trace(
            go.Bar(
                x=list(found), y=[100 * (r.gain - 1) for r in rungs], name=title, marker={"color": shade},
                error_y={
                    "type": "data", "array": [100 * (r.high - r.gain) for r in rungs],
                    "arrayminus": [100 * (r.gain - r.low) for r in rungs], "thickness": 1, "width": 3,
                },
                hovertemplate="%{y:.1f} %",
            )
        )  # fmt: skip
    return figure.update_layout(barmode="group", bargap=0.3)
