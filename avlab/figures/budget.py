"""Figures of the Budget page: what a step costs, and how many draft tokens are worth it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import SECONDS, Columns, bins_of, frame, line, nothing, ratio, total
from avlab.speculation.budget import objective, peak
from avlab.speculation.costs import CostTable

COMPARED_SECONDS = 10.0  # before the step whose curve is drawn
ENOUGH_STEPS = 3  # behind a median that is shown
STAGES = (
    ("scheduled", palette.SCHEDULED),
    ("admitted", palette.ADMITTED),
    ("accepted", palette.ACCEPTED),
)


def tables_of(profile: Columns) -> CostTable | None:
    """The cost tables of a profile, with draft costs by depth; None without a profile.

    A profile from before draft costs were kept by depth has those of depth K, and shallower drafts count as that.
    """
    if not len(profile.get("form", ())):
        return None
    table = profile["form"] == "table"
    draft, verify = (table & (profile["phase"] == phase) for phase in ("draft", "verify"))
    if not (np.any(draft) and np.any(verify)):
        return None
    by_tokens = np.zeros(int(profile["size"][verify].max()) + 1)
    by_tokens[profile["size"][verify]] = profile["ms"][verify]
    requests, depth = profile["size"][draft], profile["depth"][draft].astype(int)
    by_depth = np.full((int(requests.max()) + 1, int(depth.max()) + 1), np.nan)
    by_depth[requests, depth] = profile["ms"][draft]
    by_depth[:, 0] = 0.0
    for shallower in range(by_depth.shape[1] - 2, 0, -1):
        unknown = np.isnan(by_depth[:, shallower])
        by_depth[unknown, shallower] = by_depth[unknown, shallower + 1]
    return CostTable(by_depth, by_tokens)


def draft_costs(profile: Columns, medians: Columns) -> go.Figure:
    """What a draft costs by requests, a line for each depth that was timed or served, with the samples behind the
    lines, and what drafts of this run have really cost.
    """
    tables = tables_of(profile)
    if tables is None:
        return nothing("No cost profile yet: it is made when a run starts.")
    figure = frame("requests in the step", "draft cost, milliseconds", y_from_zero=True, unified=False)
    sample = (profile["form"] == "sample") & (profile["phase"] == "draft")
    served = (
        (medians["phase"] == "draft") & (medians["steps"] >= ENOUGH_STEPS)
        if len(medians.get("phase", ()))
        else np.zeros(0, bool)
    )
    served_depths = medians["depth"][served] if np.any(served) else []
    K = tables.draft.shape[1] - 1
    shown = sorted({int(depth) for depth in (*profile["depth"][sample], *served_depths) if 0 < depth <= K})
    sizes = [*profile["size"][sample], *(medians["size"][served] if np.any(served) else []), 1]
    x = np.arange(min(len(tables.draft), int(1.1 * max(sizes)) + 1))
    for depth in shown:
        colour, mine = palette.position(depth - 1, K), sample & (profile["depth"] == depth)
        figure.add_trace(
            line(f"depth {depth}", x, tables.draft_at(depth)[x], colour, hovertemplate="%{x}: %{y:.2f} ms")
        )
        figure.add_trace(_timed(profile, mine, colour, showlegend=False))
        of_depth = served & (medians["depth"] == depth) if np.any(served) else served
        if np.any(of_depth):
            name = f"depth {depth}, while serving"
            figure.add_trace(_measured(medians, of_depth, colour, name, showlegend=False))
    return figure


def verify_costs(profile: Columns, medians: Columns) -> go.Figure:
    """What a target's pass costs by its tokens, with the samples behind the line, and what passes of this run have
    really cost.
    """
    tables = tables_of(profile)
    if tables is None:
        return nothing("No cost profile yet: it is made when a run starts.")
    table, colour = tables.verify, palette.PHASES["verify"]
    figure = frame(
        "tokens in the target's pass", "verify cost, milliseconds", y_from_zero=True, unified=False
    )
    measured = (
        (medians["phase"] == "verify") & (medians["steps"] >= ENOUGH_STEPS)
        if len(medians.get("phase", ()))
        else np.zeros(0, bool)
    )
    samples = (profile["form"] == "sample") & (profile["phase"] == "verify")
    largest = (
        max([*profile["size"][samples], *(medians["size"][measured] if np.any(measured) else []), 1]) * 1.1
    )
    shown = np.arange(len(table)) <= largest
    x = np.arange(len(table))[shown]
    figure.add_trace(line("cost table", x, table[shown], colour, hovertemplate="%{x}: %{y:.2f} ms"))
    figure.add_trace(_timed(profile, samples, colour))
    if np.any(measured):
        figure.add_trace(_measured(medians, measured, palette.CHOSEN, "median while serving"))
    return figure


def _timed(profile: Columns, samples: np.ndarray, colour: str, **more: Any) -> go.Scatter:
    return go.Scatter(
        x=profile["size"][samples], y=profile["ms"][samples], mode="markers", name="timed at start",
        marker={"color": palette.faint(colour, 0.6), "size": 6, "symbol": "x-thin", "line": {"width": 1.5,
                "color": colour}}, hovertemplate="%{x}: %{y:.2f} ms", **more,
    )  # fmt: skip


def _measured(medians: Columns, chosen: np.ndarray, colour: str, name: str, **more: Any) -> go.Scatter:
    steps = medians["steps"][chosen]
    return go.Scatter(
        x=medians["size"][chosen], y=medians["ms"][chosen], mode="markers", name=name,
        marker={"color": colour, "size": 4 + 8 * np.sqrt(steps / steps.max()), "opacity": 0.55},
        customdata=steps, hovertemplate="%{x}: %{y:.2f} ms over %{customdata:,} steps", **more,
    )  # fmt: skip


def survivals_of(step: Mapping[str, Any] | None) -> np.ndarray:
    """The survivals of a stored step's slots, without those that nothing predicted."""
    values = [value for value in (step or {}).get("survival") or () if value is not None]
    return np.asarray(values, dtype=np.float64)


def curve_of(
    step: Mapping[str, Any], tables: CostTable | None, verify_scale: float = 1.0
) -> np.ndarray | None:
    """Expected tokens a second by budget for a stored step, [budgets], with the cost of a draft as deep as the step's;
    None where the step has no estimates.

    verify_scale: what the verify cost is multiplied by.
    """
    survivals = survivals_of(step)
    if not len(survivals) or tables is None:
        return None
    other = step["target_tokens"] - sum(step["admitted"])
    depth = step["drafted"] if tables.draft.ndim == 1 else min(step["drafted"], tables.draft.shape[1] - 1)
    draft = tables.draft_at(depth)
    if len(tables.verify) - other < 1:
        return None
    requests = min(step["running"], len(draft) - 1)
    return objective(survivals, draft, tables.verify * verify_scale, requests, step["emitting"], other) * 1e3


def objective_curve(
    step: Mapping[str, Any] | None,
    tables: CostTable | None,
    verify_scale: float = 1.0,
    other: CostTable | None = None,
    machine: tuple[str, CostTable] | None = None,
) -> go.Figure:
    """Expected tokens a second against the budget, with the best budget marked; and what-if curves beside it.

    verify_scale other than 1, `other` tables, and a machine's (its name and table) each add a curve with its own best
    budget; what a machine would do is emulated, and its name says so.
    """
    curve = curve_of(step, tables) if step else None
    if curve is None:
        return nothing(
            "No step with acceptance estimates was stored: an adaptive policy with stored drafts has them."
        )
    assert step is not None
    about = f"budget: draft tokens verified, of drafts {step['drafted']} deep"
    figure = frame(about, "expected tokens/s", 340)
    _with_peak(figure, curve, "this run's costs", palette.SOURCES["online"])
    if verify_scale != 1.0:
        scaled = curve_of(step, tables, verify_scale)
        if scaled is not None:
            _with_peak(figure, scaled, f"verify cost × {verify_scale:g}", palette.BONUS)
    if other is not None:
        foreign = curve_of(step, other)
        if foreign is not None:
            _with_peak(figure, foreign, "costs from the file", palette.SOURCES["head"])
    if machine is not None:
        name, table = machine
        there = curve_of(step, table)
        if there is not None:
            _with_peak(figure, there, f"emulated: {name}", palette.ACCEPTED)
    figure.add_vline(
        step["budget"], line={"color": palette.EVENT, "width": 1, "dash": "dot"}
    ).add_annotation(
        x=step["budget"], y=0, yref="paper", text=f"taken: {step['budget']}", showarrow=False, xanchor="left",
        yanchor="bottom", xshift=4,
    )  # fmt: skip
    return figure


def against_served(step: Mapping[str, Any] | None, tables: CostTable | None, steps: Columns) -> str:
    """Why the curve's rate at the budget taken is not the rate that Live shows, with both; "" where one is not known.

    steps: bucketed, as `queries.steps_since` gives them; those of the stored step's block are compared.
    """
    curve = curve_of(step, tables) if step else None
    if curve is None or step is None or not len(steps.get("step", ())):
        return ""
    mine = steps["block"] == step["block"]
    mine &= steps["time"] > step["time"] - COMPARED_SECONDS
    seconds = float((steps["seconds"] - steps["paused"])[mine].sum())
    if not mine.any() or seconds <= 0:
        return ""
    expected, served = (
        float(curve[min(step["budget"], len(curve) - 1)]),
        float(steps["tokens"][mine].sum()) / seconds,
    )
    return (
        f"At the budget taken, {step['budget']}, the curve expects {expected:,.0f} tokens/s; around that step Live "
        f"counted {served:,.0f}. The curve is of one step and counts drafting and the target's pass alone, by "
        "estimates and the cost table. Live counts whole steps: prompts, sampling, deciding and idle time too."
    )


def _with_peak(figure: go.Figure, curve: np.ndarray, name: str, colour: str) -> None:
    best = peak(curve)
    figure.add_trace(line(name, np.arange(len(curve)), curve, colour, hovertemplate="%{y:.1f} tokens/s"))
    figure.add_trace(
        go.Scatter(
            x=[best], y=[curve[best]], mode="markers+text", text=[f"  B* = {best}"], textposition="top right",
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
    index, middle = bins_of(steps)
    count = total(steps["steps"], index, len(middle))
    figure = frame(SECONDS, "draft tokens a step", 340, y_from_zero=True)
    for name, colour in STAGES:
        value = ratio(total(steps[name], index, len(middle)), count)
        figure.add_trace(line(name, middle, value, colour, hovertemplate="%{y:.1f}"))
    return figure
