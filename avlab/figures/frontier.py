"""The figure of the Frontier page: throughput against interactivity, a line an arm, a point a load."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from avlab.experiments.words import LEDGER
from avlab.figures import palette
from avlab.figures.ab import users
from avlab.figures.base import frame, nothing
from avlab.formats import DASH

Points = Sequence[Mapping[str, Any]]
COLOURS = (*palette.RUNS, palette.PHASES["draft"], palette.BONUS, palette.REJECTED)
# the next symbol, and for published arms the next dash, each time the colours are used up
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
DASHES = ("dot", "dash", "dashdot", "longdash", "longdashdot")
FAINT = 0.3  # of dominated points
BARS_WITHIN = 1.4  # of the largest value: how far an axis goes for a bar's sake


def frontier(
    points: Points, published: Points = (), logarithmic: bool = False, live: bool = False
) -> go.Figure:
    """Points as `frontier_analysis.points` gives them; published ones are drawn dotted, scaled to ours.

    logarithmic: both axes, on which scaling shifts a curve and leaves its shape. live: more points are to come.
    """
    if not points:
        waits = " yet: the first ones take some seconds each" if live else ""
        return nothing(f"No cell is complete{waits}.", 420)
    figure = frame("interactivity: tokens/s for one user", "throughput: output tokens/s", 520, unified=False)
    arms = list(dict.fromkeys(point["arm"] for point in (*points, *published)))
    for arm in dict.fromkeys(point["arm"] for point in points):
        mine = sorted((p for p in points if p["arm"] == arm), key=lambda point: point["load"])
        colour, symbol, _ = _style(arms.index(arm))
        figure.add_trace(
            go.Scatter(
                x=[p["interactivity"] for p in mine], y=[p["tokens_per_s"] for p in mine], name=arm,
                mode="lines+markers+text", text=[str(p["load"]) for p in mine], textposition="top right",
                textfont={"size": 10}, line={"color": palette.faint(colour, 0.45), "width": 1.5},
                marker={
                    "color": [palette.faint(colour, FAINT) if p["dominated"] else colour for p in mine],
                    "size": 9, "symbol": symbol,
                },
                error_x=_bars(mine, "interactivity", colour), error_y=_bars(mine, "tokens_per_s", colour),
                customdata=[_hover(p) for p in mine], hovertemplate="%{customdata}<extra></extra>",
            )
        )  # fmt: skip
    for arm in dict.fromkeys(point["arm"] for point in published):
        mine = sorted((p for p in published if p["arm"] == arm), key=lambda point: point["load"])
        colour, symbol, dash = _style(arms.index(arm))
        figure.add_trace(
            go.Scatter(
                x=[p["interactivity"] for p in mine], y=[p["tokens_per_s"] for p in mine], name=f"{arm}, published",
                mode="lines+markers+text", text=[str(p["load"]) for p in mine], textposition="bottom left",
                textfont={"size": 9, "color": colour}, line={"color": colour, "width": 1.2, "dash": dash},
                marker={"symbol": f"{symbol}-open", "size": 6, "color": colour}, opacity=0.75,
                customdata=[p["load"] for p in mine],
                hovertemplate=f"{arm}, published, scaled: %{{customdata}} requests<extra></extra>",
            )
        )  # fmt: skip
    across, up = (
        {"type": "log", "dtick": "D2"}
        if logarithmic
        else {"range": [0.0, _reach((*points, *published), name)]}
        for name in ("interactivity", "tokens_per_s")
    )
    figure.update_layout(xaxis={"showgrid": True, **across}, yaxis=up)
    if logarithmic:  # a zoom of the other axes means something else on these
        figure.update_layout(uirevision="logarithmic")
    return figure


def _reach(points: Points, name: str) -> float:
    """The end of an axis: all points and what fits of their bars; wide ones are cut off rather than points crowded."""
    most = max(point[name] for point in points)
    bars = max(point.get(f"{name}_high") or point[name] for point in points)
    return 1.1 * min(bars, BARS_WITHIN * most)


def _style(number: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the arm with this number: no two of the first 40 have the same."""
    again = number // len(COLOURS) % len(SYMBOLS)
    return COLOURS[number % len(COLOURS)], SYMBOLS[again], DASHES[again]


def _bars(points: Points, name: str, colour: str) -> dict[str, Any]:
    above = [(p[f"{name}_high"] or p[name]) - p[name] for p in points]
    below = [p[name] - (p[f"{name}_low"] or p[name]) for p in points]
    return {
        "array": above,
        "arrayminus": below,
        "color": palette.faint(colour, 0.4),
        "thickness": 1,
        "width": 2,
    }


def _hover(point: Mapping[str, Any]) -> str:
    """Everything about a point."""
    ledger = point["ledger"]
    lines = [
        f"<b>{point['arm']}, {point['load']} request{'s' if point['load'] > 1 else ''}</b>"
        + (" (dominated)" if point["dominated"] else ""),
        f"{point['tokens_per_s']:,.1f} tokens/s in all{_span(point, 'tokens_per_s')}",
        f"{point['interactivity']:,.1f} tokens/s for one user{_span(point, 'interactivity')}",
    ]
    if point["p95_tpot_ms"] is not None:
        lines.append(f"{point['p50_tpot_ms']:.1f} ms a token (p50), {point['p95_tpot_ms']:.1f} ms (p95)")
    if point["p50_ttft_ms"] is not None:
        lines.append(f"{point['p50_ttft_ms']:.0f} ms to the first token (p50)")
    steps = ledger["tokens_per_step"]
    lines += [
        f"{'–' if steps is None else f'{steps:.2f}'} tokens a step",
        f"{point['repeats']} repeat{'s' if point['repeats'] > 1 else ''}",
        "for 1,000 output tokens:",
        *(
            f"  {title}: {'–' if ledger[name] is None else f'{ledger[name]:,.0f}'}"
            for name, title in LEDGER.items()
        ),
    ]
    return "<br>".join(lines)


def _span(point: Mapping[str, Any], name: str) -> str:
    low, high = point[f"{name}_low"], point[f"{name}_high"]
    return "" if low is None else f" [{low:,.1f}, {high:,.1f}]"


def _ends(point: Mapping[str, Any], name: str) -> str:
    low, high = point[f"{name}_low"], point[f"{name}_high"]
    return DASH if low is None or high is None else f"{low:,.1f} to {high:,.1f}"


def table(points: Points) -> list[dict[str, Any]]:
    """A row a cell."""
    return [
        {
            "arm": p["arm"],
            "requests": p["load"],
            "tokens/s": p["tokens_per_s"],
            "tokens/s, 95 %": _ends(p, "tokens_per_s"),
            "one user": p["interactivity"],
            "one user, 95 %": _ends(p, "interactivity"),
            **users(p),
            "tokens a step": p["ledger"]["tokens_per_step"],
            "repeats": p["repeats"],
            "on the frontier": not p["dominated"],
        }
        for p in points
    ]


def ledger_table(points: Points) -> list[dict[str, Any]]:
    """The ledger per 1,000 output tokens, a row a cell."""
    return [
        {"arm": p["arm"], "requests": p["load"]}
        | {title: p["ledger"][name] for name, title in LEDGER.items()}
        for p in points
    ]
