"""Figures of the Coefficients page: what the estimator has learnt, refit by refit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab import diagnosis
from avlab.figures import palette
from avlab.figures.base import Columns, changes, frame, line, mark, nothing
from avlab.speculation.calibration import BIN_RANGE, BINS, COUNT
from avlab.speculation.features import FEATURES, probability
from avlab.speculation.stuck import dropped_in_a_row

STEP = "engine step of the refit"


def arms_of(refits: Columns) -> list[str]:
    """The arms that have learnt anything, the latest first."""
    return list(dict.fromkeys(reversed(refits.get("arm", np.zeros(0)).tolist())))


def of_arm(refits: Columns, arm: str) -> dict[str, np.ndarray]:
    """One arm's coefficients as arrays by refit: number, step, slope [R], intercepts, counts, positives [R, K]."""
    mine = {name: column[refits["arm"] == arm] for name, column in refits.items()}
    number, row = np.unique(mine["refit"], return_inverse=True)
    K = int(mine["position"].max()) + 1
    found = {"number": number, "step": np.zeros(len(number)), "slope": np.zeros(len(number))}
    found["step"][row], found["slope"][row] = mine["step"], mine["slope"]
    for name, column in (("intercepts", "intercept"), ("counts", "count"), ("positives", "positives")):
        found[name] = np.full((len(number), K), np.nan)
        found[name][row, mine["position"]] = mine[column]
    return found


def stuck(arm: Mapping[str, np.ndarray]) -> str:
    """What to do about a slope that is stuck, in a sentence; "" where it moves."""
    dropped = dropped_in_a_row(arm["slope"], np.nansum(arm["counts"][1:], axis=1))
    return diagnosis.stuck_slope(dropped, float(arm["slope"][-1]))


def runaway(arm: Mapping[str, np.ndarray]) -> str:
    """What a coefficient that ran away is due to, in a sentence; "" where none did."""
    return diagnosis.runaway(
        float(arm["slope"][-1]), arm["intercepts"][-1], np.nansum(arm["counts"][1:], axis=0)
    )


def slope(arm: Mapping[str, np.ndarray], blocks: Sequence[Mapping[str, Any]] = ()) -> go.Figure:
    """The one slope, after every refit."""
    figure = frame(STEP, "slope w", legend=False)
    figure.add_trace(
        line(
            "slope", arm["step"], arm["slope"], palette.SOURCES["online"], mode="lines+markers",
            marker={"size": 4}, line={"shape": "hv", "color": palette.SOURCES["online"], "width": 2},
            hovertemplate="%{y:.4f}",
        )
    )  # fmt: skip
    mark(figure, changes(blocks, "step"))
    return figure.add_hline(1.0, line={"color": palette.EVENT, "width": 1, "dash": "dash"})


def intercepts(arm: Mapping[str, np.ndarray], blocks: Sequence[Mapping[str, Any]] = ()) -> go.Figure:
    """The K intercepts, after every refit."""
    figure = frame(STEP, "intercept β by position")
    K = arm["intercepts"].shape[1]
    for k in range(K):
        colour = palette.position(k, K)
        figure.add_trace(
            line(
                f"position {k}", arm["step"], arm["intercepts"][:, k], colour,
                line={"shape": "hv", "color": colour, "width": 2}, hovertemplate="%{y:.3f}",
            )
        )  # fmt: skip
    return mark(figure, changes(blocks, "step"))


def rounds(arm: Mapping[str, np.ndarray]) -> go.Figure:
    """How many labelled draft tokens each refit had, by position."""
    if len(arm["step"]) < 2:
        return nothing("No refit yet: the first comes after 100 steps.")
    figure = frame(STEP, "labels in the round", y_from_zero=True)
    counts = arm["counts"]
    for k in range(counts.shape[1]):
        figure.add_trace(
            go.Bar(
                x=arm["step"][1:], y=counts[1:, k], name=f"position {k}", hovertemplate="%{y:,}",
                marker={"color": palette.position(k, counts.shape[1])},
            )
        )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.15)
    return figure


def curve(slope: float, intercepts: Sequence[float], raw: np.ndarray | None) -> go.Figure:
    """Estimate σ(w·f + β) by position over the feature f, over the histogram of features where labels came from.

    raw: binned calibration sums [K, 128, 5] of the source "raw", whose bins are those of the feature; or None.
    """
    figure = frame(f"feature f: {FEATURES['max_log_odds'].title}", "acceptance estimate", 340)
    edge = np.linspace(-BIN_RANGE, BIN_RANGE, BINS + 1)
    middle = (edge[:-1] + edge[1:]) / 2
    if raw is not None and np.any(raw[..., COUNT]):
        count = raw[..., COUNT].sum(axis=0)
        share = count / max(count.sum(), 1)
        figure.add_trace(
            go.Bar(
                x=middle, y=share, yaxis="y2", name="labelled draft tokens", width=edge[1] - edge[0],
                marker={"color": palette.faint(palette.SCHEDULED, 0.4)}, hovertemplate="%{y:.1%} of them",
            )
        )  # fmt: skip
        figure.update_layout(
            yaxis2={
                "overlaying": "y", "side": "right", "showgrid": False, "rangemode": "tozero", "tickformat": ".1~%",
                "title": {"text": "share of labelled draft tokens", "standoff": 8},
                "range": [0, float(share.max()) * 2.2],
            },
            margin={"r": 62},
        )  # fmt: skip
    for k, beta in enumerate(intercepts):
        colour = palette.position(k, len(intercepts))
        figure.add_trace(
            line(
                f"position {k}", middle, probability(slope * middle + beta), colour, hovertemplate="%{y:.3f}"
            )
        )
    figure.add_trace(
        line(
            "the maximum probability itself", middle, probability(middle), palette.SOURCES["raw"],
            line={"dash": "dash", "width": 1.5, "color": palette.SOURCES["raw"]}, hovertemplate="%{y:.3f}",
        )
    )  # fmt: skip
    figure.update_yaxes(range=[0, 1.02], selector={"overlaying": None})
    return figure


def none_learnt() -> go.Figure:
    """What stands where no arm has an estimator."""
    return nothing("No estimator has learnt in this run: only adaptive policies with the online source do.")
