"""Figures of the Runs page: headline numbers of some runs side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.escaping import in_plotly
from avlab.figures import palette
from avlab.figures.base import SECONDS, Columns, bins_of, frame, line, nothing, ratio, total

MEASURES = {
    "tokens_per_s": "output tokens/s",
    "tokens_per_s_per_user": "tokens/s for one user",
    "tokens_per_step": "tokens per request and step",
    "ece": "ECE",
}


def frontier(runs: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Throughput against interactivity, a point a run. runs: summaries with "label"."""
    shown = [run for run in runs if run["tokens_per_s"] and run["tokens_per_s_per_user"]]
    if not shown:
        return nothing("None of these runs has both rates yet.")
    figure = frame("interactivity: tokens/s for one user", "throughput: output tokens/s", 330, unified=False)
    for number, run in enumerate(runs):
        if run in shown:
            figure.add_trace(
                go.Scatter(
                    x=[run["tokens_per_s_per_user"]], y=[run["tokens_per_s"]], mode="markers",
                    name=in_plotly(run["label"]),
                    marker={"size": 13, "color": palette.RUNS[number % len(palette.RUNS)]},
                    hovertemplate="%{y:.1f} tokens/s in all<br>%{x:.1f} for one user"
                    + ("<br>emulated" if run["emulated"] else ""),
                )
            )  # fmt: skip
    figure.update_layout(xaxis={"rangemode": "tozero"}, yaxis={"rangemode": "tozero"})
    return figure


def against(runs: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a run: its headline numbers, and throughput in percent of the baseline's."""
    rows = []
    for run in runs:
        base = baseline["tokens_per_s"]
        change = 100 * (run["tokens_per_s"] / base - 1) if base and run["tokens_per_s"] else None
        rows.append(
            {
                "run": run["label"],
                "policy": run["policy"],
                "workload": run["workload"],
                **(
                    {"emulated": run["emulated"] or "measured"}
                    if any(each["emulated"] for each in runs)
                    else {}
                ),
                **{name: run[name] for name in MEASURES},
                "against baseline, %": 0.0 if run is baseline else change,
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class Overlaid:
    """A chart that several runs can share: one sum over another in each bucket of steps.

    over: "seconds" of serving, "steps", or another column. speed: whether a replay emulates it.
    """

    axis: str
    sum: str
    over: str
    times: float = 1.0
    speed: bool = False


OVERLAID = {
    "Throughput": Overlaid("output tokens/s", "tokens", "seconds", speed=True),
    "Step time": Overlaid("ms a step", "seconds", "steps", 1e3, speed=True),
    "Tokens per step": Overlaid("tokens per request and step", "tokens", "emitting"),
    "Draft tokens verified": Overlaid("admitted, a request and step", "admitted", "emitting"),
    "Acceptance of verified drafts": Overlaid("accepted / admitted", "accepted", "admitted"),
    "Conditional acceptance": Overlaid("accepted / labelled", "accepted", "labelled"),
    "Requests under way": Overlaid("requests a step", "running", "steps"),
}


def overlay(runs: Mapping[str, Columns], name: str = "Throughput") -> go.Figure:
    """One of `OVERLAID` over each run, a line a run; bucketed steps by label."""
    what = OVERLAID[name]
    served = {label: steps for label, steps in runs.items() if len(steps.get("step", ()))}
    if not served:
        return nothing("None of these runs has a step yet.")
    figure = frame(SECONDS, what.axis, 300, y_from_zero=True)
    for number, (label, steps) in enumerate(runs.items()):
        if label in served:
            index, middle = bins_of(steps)
            above, below = (
                total(_summed(steps, column), index, len(middle)) for column in (what.sum, what.over)
            )
            colour = palette.RUNS[number % len(palette.RUNS)]
            figure.add_trace(
                line(
                    in_plotly(label),
                    middle,
                    what.times * ratio(above, below),
                    colour,
                    hovertemplate="%{y:.4~g}",
                )
            )
    return figure


def _summed(steps: Columns, name: str) -> np.ndarray:
    """A column's sum in each bucket, without pauses."""
    if name == "seconds":
        return steps["seconds"] - steps.get("paused", 0.0)
    return steps[name] * steps["steps"] if name == "running" else steps[name]


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str | None]]:
    """The settings in which runs differ, a row each, by label; None where one does not have it."""
    names = dict.fromkeys(name for config in configs.values() for name in config if name != "database")
    rows = []
    for name in names:
        values = [None if config.get(name) is None else str(config[name]) for config in configs.values()]
        if len(set(values)) > 1:
            rows.append({"setting": name, **dict(zip(configs, values, strict=True))})
    return rows
