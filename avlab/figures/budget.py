"""Figures of the Budget page: what a step costs, and how many draft tokens are worth it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import SECONDS, Columns, bins_of, frame, line, nothing, ratio, total
from avlab.speculation.budget import objective, peak

STAGES = (
    ("scheduled", palette.SCHEDULED),
    ("admitted", palette.ADMITTED),
    ("accepted", palette.ACCEPTED),
)


def tables_of(profile: Columns) -> dict[str, np.ndarray]:
    """The cost tables of a profile, "draft" and "verify": milliseconds by size from 0. Empty without a profile."""
    found = {}
    for phase in ("draft", "verify"):
        mine = (
            (profile["form"] == "table") & (profile["phase"] == phase) if len(profile.get("form", ())) else []
        )
        if np.any(mine):
            table = np.zeros(int(profile["size"][mine].max()) + 1)
            table[profile["size"][mine]] = profile["ms"][mine]
            found[phase] = table
    return found


def costs(profile: Columns, medians: Columns, phase: str, K: int) -> go.Figure:
    """One cost table with the samples it was made of, and what steps of this run have really cost.

    K: the depth that a profile's draft cost is of; drafts of another depth are left out.
    """
    table = tables_of(profile).get(phase)
    if table is None:
        return nothing("No cost profile yet: it is made when a run starts.")
    size = "requests in the step" if phase == "draft" else "tokens in the target's pass"
    colour = palette.PHASES[phase]
    figure = frame(size, f"{phase} cost, milliseconds", y_from_zero=True, unified=False)
    measured = (
        (medians["phase"] == phase) & (medians["steps"] >= 3) & ((phase != "draft") | (medians["depth"] == K))
        if len(medians.get("phase", ()))
        else np.zeros(0)
    )
    samples = (profile["form"] == "sample") & (profile["phase"] == phase)
    largest = (
        max([*profile["size"][samples], *(medians["size"][measured] if np.any(measured) else []), 1]) * 1.1
    )
    shown = np.arange(len(table)) <= largest
    x = np.arange(len(table))[shown]
    figure.add_trace(line("cost table", x, table[shown], colour, hovertemplate="%{x}: %{y:.2f} ms"))
    figure.add_trace(
        go.Scatter(
            x=profile["size"][samples], y=profile["ms"][samples], mode="markers", name="timed at start",
            marker={"color": palette.faint(colour, 0.6), "size": 6, "symbol": "x-thin", "line": {"width": 1.5,
                    "color": colour}}, hovertemplate="%{x}: %{y:.2f} ms",
        )
    )  # fmt: skip
    if np.any(measured):
        steps = medians["steps"][measured]
        figure.add_trace(
            go.Scatter(
                x=medians["size"][measured], y=medians["ms"][measured], mode="markers", name="median while serving",
                marker={"color": palette.CHOSEN, "size": 4 + 8 * np.sqrt(steps / steps.max()), "opacity": 0.55},
                customdata=steps, hovertemplate="%{x}: %{y:.2f} ms over %{customdata:,} steps",
            )
        )  # fmt: skip
    return figure


def survivals_of(step: Mapping[str, Any] | None) -> np.ndarray:
    """The survivals of a stored step's slots, without those that nothing predicted."""
    values = [value for value in (step or {}).get("survival") or () if value is not None]
    return np.asarray(values, dtype=np.float64)


def curve_of(
    step: Mapping[str, Any], tables: Mapping[str, np.ndarray], verify_scale: float = 1.0
) -> np.ndarray | None:
    """Expected tokens a second by budget for a stored step, [budgets]; None where the step has no estimates.

    verify_scale: what the verify cost is multiplied by.
    """
    survivals = survivals_of(step)
    if not len(survivals) or not {"draft", "verify"} <= set(tables):
        return None
    other = step["target_tokens"] - sum(step["admitted"])
    requests = min(step["running"], len(tables["draft"]) - 1)
    if len(tables["verify"]) - other < 1:
        return None
    verify = np.asarray(tables["verify"]) * verify_scale
    return objective(survivals, tables["draft"], verify, requests, step["emitting"], other) * 1e3


def objective_curve(
    step: Mapping[str, Any] | None,
    tables: Mapping[str, np.ndarray],
    verify_scale: float = 1.0,
    other: Mapping[str, np.ndarray] | None = None,
) -> go.Figure:
    """Expected tokens a second against the budget, with the best budget marked; and what-if curves beside it.

    verify_scale other than 1, or `other` tables, add a second curve with its own best budget.
    """
    curve = curve_of(step, tables) if step else None
    if curve is None:
        return nothing(
            "No step with acceptance estimates was stored: an adaptive policy with stored drafts has them."
        )
    figure = frame("budget: draft tokens verified in the step", "expected tokens/s", 340)
    _with_peak(figure, curve, "this run's costs", palette.SOURCES["online"])
    assert step is not None
    if verify_scale != 1.0:
        scaled = curve_of(step, tables, verify_scale)
        if scaled is not None:
            _with_peak(figure, scaled, f"verify cost × {verify_scale:g}", palette.BONUS)
    if other is not None:
        foreign = curve_of(step, other)
        if foreign is not None:
            _with_peak(figure, foreign, "costs from the file", palette.SOURCES["head"])
    figure.add_vline(
        step["budget"], line={"color": palette.EVENT, "width": 1, "dash": "dot"}
    ).add_annotation(
        x=step["budget"], y=0, yref="paper", text=f"taken: {step['budget']}", showarrow=False, xanchor="left",
        yanchor="bottom", xshift=4,
    )  # fmt: skip
    return figure


def _with_peak(figure: go.Figure, curve: np.ndarray, name: str, colour: str) -> None:
    best = peak(curve)
    figure.add_trace(line(name, np.arange(len(curve)), curve, colour, hovertemplate="%{y:.1f} tokens/s"))
    figure.add_trace(
        go.Scatter(
            x=[best], y=[curve[best]], mode="markers+text", text=[f"  B* = {best}"], textposition="middle right",
            marker={"color": colour, "size": 11, "line": {"width": 2, "color": "white"}}, showlegend=False,
            hoverinfo="skip", cliponaxis=False,
        )
    )  # fmt: skip


def admitted_map(lengths: Columns) -> go.Figure:
    """Draft tokens admitted, a request a row and a stored step a column."""
    if not len(lengths.get("step", ())):
        return nothing("No raw draft slots are stored in this run (setting: drafts).")
    steps, column = np.unique(lengths["step"], return_inverse=True)
    requests, row = np.unique(lengths["request"], return_inverse=True)
    grid = np.full((len(requests), len(steps)), np.nan)
    grid[row, column] = lengths["admitted"]
    figure = frame(
        "engine step (those whose drafts were stored)", "request", 360, unified=False, legend=False
    )
    figure.add_trace(
        go.Heatmap(
            z=grid, x=[str(step) for step in steps], y=[str(request) for request in requests],
            colorscale=palette.HEAT, zmin=0, xgap=1, ygap=1,
            colorbar={"title": {"text": "admitted", "side": "right"}, "thickness": 10, "outlinewidth": 0, "dtick": 1},
            hovertemplate="step %{x}, request %{y}: %{z} admitted<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(xaxis={"type": "category", "nticks": 12}, yaxis={"type": "category", "nticks": 12})
    return figure


def budgets(steps: Columns) -> go.Figure:
    """Draft tokens a step over the run: made, verified, kept."""
    if not len(steps.get("step", ())) or not np.sum(steps["scheduled"]):
        return nothing("No draft tokens in this run.")
    index, middle = bins_of(steps["time"])
    count = total(steps["steps"], index, len(middle))
    figure = frame(SECONDS, "draft tokens a step", 340, y_from_zero=True)
    for name, colour in STAGES:
        value = ratio(total(steps[name], index, len(middle)), count)
        figure.add_trace(line(name, middle, value, colour, hovertemplate="%{y:.1f}"))
    return figure
