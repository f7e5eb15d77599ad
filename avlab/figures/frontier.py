"""The figure of the Frontier page: throughput against interactivity, a line an arm, a point a load."""

from collections.abc import Sequence

import plotly.graph_objects as go

from avlab.escaping import in_plotly
from avlab.experiments.answers import Point
from avlab.experiments.published import PublishedPoint
from avlab.experiments.words import LEDGER
from avlab.figures import palette
from avlab.figures.ab import Row, users
from avlab.figures.base import frame, nothing
from avlab.formats import DASH, number

Points = Sequence[Point]
Ends = tuple[float, float | None, float | None]  # of a bar: its middle, low and high
COLOURS = (*palette.RUNS, palette.BONUS, palette.REJECTED)
# the next symbol, and for published arms the next dash, each time the colours are used up
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
DASHES = ("dot", "dash", "dashdot", "longdash", "longdashdot")
FAINT = 0.3  # of dominated points
BARS_WITHIN = 1.4  # of the largest value: how far an axis goes for a bar's sake


def frontier(
    points: Points, published: Sequence[PublishedPoint] = (), logarithmic: bool = False, live: bool = False
) -> go.Figure:
    """Points as `frontier_analysis.points` gives them; published ones are drawn dotted, scaled to ours.

    logarithmic: both axes, on which scaling shifts a curve and leaves its shape. live: more points are to come.
    """
    if not points:
        waits = " yet: the first ones take some seconds each" if live else ""
        return nothing(f"No cell is complete{waits}.", 420)
    figure = frame("interactivity: tokens/s for one user", "throughput: output tokens/s", 520, unified=False)
    arms = list(dict.fromkeys([p.arm for p in points] + [p.arm for p in published]))
    for arm in dict.fromkeys(point.arm for point in points):
        mine = sorted((p for p in points if p.arm == arm), key=lambda point: point.load)
        colour, symbol, _ = style(arms.index(arm))
        figure.add_trace(
            go.Scatter(
                x=[p.interactivity for p in mine], y=[p.tokens_per_s for p in mine], name=in_plotly(arm),
                mode="lines+markers+text", text=[str(p.load) for p in mine], textposition="top right",
                textfont={"size": 10}, line={"color": palette.faint(colour, 0.45), "width": 1.5},
                marker={
                    "color": [palette.faint(colour, FAINT) if p.dominated else colour for p in mine],
                    "size": 9, "symbol": symbol,
                },
                error_x=error_bars([_across(p) for p in mine], colour),
                error_y=error_bars([_up(p) for p in mine], colour),
                customdata=[_hover(p) for p in mine], hovertemplate="%{customdata}<extra></extra>",
            )
        )  # fmt: skip
    for arm in dict.fromkeys(point.arm for point in published):
        theirs = sorted((p for p in published if p.arm == arm), key=lambda point: point.load)
        colour, symbol, dash = style(arms.index(arm))
        figure.add_trace(
            go.Scatter(
                x=[p.interactivity for p in theirs], y=[p.tokens_per_s for p in theirs],
                name=f"{in_plotly(arm)}, published",
                mode="lines+markers+text", text=[str(p.load) for p in theirs], textposition="bottom left",
                textfont={"size": 9, "color": colour}, line={"color": colour, "width": 1.2, "dash": dash},
                marker={"symbol": f"{symbol}-open", "size": 6, "color": colour}, opacity=0.75,
                customdata=[p.load for p in theirs],
                hovertemplate=f"{in_plotly(arm)}, published, scaled: %{{customdata}} requests<extra></extra>",
            )
        )  # fmt: skip
    bars = (
        [_across(p) for p in points] + [(p.interactivity, None, None) for p in published],
        [_up(p) for p in points] + [(p.tokens_per_s, None, None) for p in published],
    )
    across, up = (
        {"type": "log", "dtick": "D2"} if logarithmic else {"range": [0.0, reach(each)]} for each in bars
    )
    figure.update_layout(xaxis={"showgrid": True, **across}, yaxis=up)
    if logarithmic:  # a zoom of the other axes means something else on these
        figure.update_layout(uirevision="logarithmic")
    return figure


def _up(point: Point) -> Ends:
    return point.tokens_per_s, point.tokens_per_s_low, point.tokens_per_s_high


def _across(point: Point) -> Ends:
    return point.interactivity, point.interactivity_low, point.interactivity_high


def reach(bars: Sequence[Ends]) -> float:
    """The end of an axis: all points and what fits of their bars; wide ones are cut off rather than points crowded."""
    most = max(middle for middle, _, _ in bars)
    highest = max(high or middle for middle, _, high in bars)
    return 1.1 * min(highest, BARS_WITHIN * most)


def style(place: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the arm with this number: no two of the first 40 have the same."""
    again = place // len(COLOURS) % len(SYMBOLS)
    return COLOURS[place % len(COLOURS)], SYMBOLS[again], DASHES[again]


def error_bars(bars: Sequence[Ends], colour: str) -> dict[str, str | float | list[float]]:
    return {
        "array": [(high or middle) - middle for middle, _, high in bars],
        "arrayminus": [middle - (low or middle) for middle, low, _ in bars],
        "color": palette.faint(colour, 0.4),
        "thickness": 1,
        "width": 2,
    }


def _hover(point: Point) -> str:
    """Everything about a point."""
    ledger = point.ledger
    lines = [
        f"<b>{in_plotly(point.arm)}, {point.load} request{'s' if point.load > 1 else ''}</b>"
        + (" (dominated)" if point.dominated else ""),
        f"{point.tokens_per_s:,.1f} tokens/s in all{_span(_up(point))}",
        f"{point.interactivity:,.1f} tokens/s for one user{_span(_across(point))}",
    ]
    if point.p50_tpot_ms is not None and point.p95_tpot_ms is not None:
        lines.append(f"{point.p50_tpot_ms:.1f} ms a token (p50), {point.p95_tpot_ms:.1f} ms (p95)")
    if point.p50_ttft_ms is not None:
        lines.append(f"{point.p50_ttft_ms:.0f} ms to the first token (p50)")
    lines += [
        f"{number(ledger.tokens_per_step, 2)} tokens a step",
        f"{point.repeats} repeat{'s' if point.repeats > 1 else ''}",
        "for 1,000 output tokens:",
        *(f"  {title}: {number(ledger.line(name), 0)}" for name, title in LEDGER.items()),
    ]
    return "<br>".join(lines)


def _span(ends: Ends) -> str:
    _, low, high = ends
    return "" if low is None or high is None else f" [{low:,.1f}, {high:,.1f}]"


def interval(ends: Ends) -> str:
    """The ends of a bar; a dash where it has none."""
    _, low, high = ends
    return DASH if low is None or high is None else f"{low:,.1f} to {high:,.1f}"


def table(points: Points) -> list[Row]:
    """A row a cell."""
    return [
        {
            "arm": p.arm,
            "requests": p.load,
            "tokens/s": p.tokens_per_s,
            "tokens/s, 95 %": interval(_up(p)),
            "one user": p.interactivity,
            "one user, 95 %": interval(_across(p)),
            **users(p),
            "tokens a step": p.ledger.tokens_per_step,
            "repeats": p.repeats,
            "on the frontier": not p.dominated,
        }
        for p in points
    ]


def ledger_table(points: Points) -> list[Row]:
    """The ledger per 1,000 output tokens, a row a cell."""
    return [
        {"arm": p.arm, "requests": p.load, **{title: p.ledger.line(name) for name, title in LEDGER.items()}}
        for p in points
    ]
