"""Figures of a replay: a frontier on a machine's costs, with measured points over it; arms at one load.

Each bears the badge that says what is emulated.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from avlab.escaping import in_plotly
from avlab.experiments.published import PublishedPoint
from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_intervals import Ratio, rate, rate_of_user
from avlab.figures import palette
from avlab.figures.ab import Row
from avlab.figures.base import frame, nothing
from avlab.figures.frontier import error_bars, interval, reach, style
from avlab.formats import DASH

MEASURED_SIZE, REPLAYED_SIZE = 10, 8
BADGE_WIDTH = 72  # characters


def dominated(cell: Cell, cells: Sequence[Cell]) -> bool:
    """Whether another cell is at least as good in both throughput and interactivity, and better in one."""
    mine = cell.tokens_per_s, cell.tokens_per_s_per_user
    others = [(other.tokens_per_s, other.tokens_per_s_per_user) for other in cells]
    return any(one >= mine[0] and two >= mine[1] and (one, two) != mine for one, two in others)


def frontier(cells: Sequence[Cell], badge: str, measured: Sequence[PublishedPoint] = ()) -> go.Figure:
    """A line an arm, a point a load, filled; measured points hollow squares. badge: what is emulated."""
    if not cells:
        return nothing("The first cells are being replayed.", 420)
    figure = frame("interactivity: tokens/s for one user", "throughput: output tokens/s", 540, unified=False)
    arms = list(dict.fromkeys([cell.arm for cell in cells] + [point.arm for point in measured]))
    for arm in dict.fromkeys(cell.arm for cell in cells):
        mine = sorted((cell for cell in cells if cell.arm == arm), key=lambda cell: cell.load)
        colour, symbol, _ = style(arms.index(arm))
        figure.add_trace(
            go.Scatter(
                x=[c.tokens_per_s_per_user for c in mine], y=[c.tokens_per_s for c in mine],
                name=f"{in_plotly(arm)}, replayed",
                mode="lines+markers+text", text=[str(c.load) for c in mine], textposition="top right",
                textfont={"size": 10}, line={"color": palette.faint(colour, 0.45), "width": 1.5},
                marker={
                    "color": [palette.faint(colour, 0.3) if dominated(c, cells) else colour for c in mine],
                    "size": REPLAYED_SIZE, "symbol": symbol,
                },
                error_x=error_bars([_across(c) for c in mine], colour),
                error_y=error_bars([_up(c) for c in mine], colour),
                customdata=[_hover(c) for c in mine], hovertemplate="%{customdata}<extra></extra>",
            )
        )  # fmt: skip
    for arm in dict.fromkeys(point.arm for point in measured):
        theirs = sorted((point for point in measured if point.arm == arm), key=lambda point: point.load)
        colour, _, dash = style(arms.index(arm))
        figure.add_trace(
            go.Scatter(
                x=[p.interactivity for p in theirs], y=[p.tokens_per_s for p in theirs],
                name=f"{in_plotly(arm)}, measured",
                mode="lines+markers+text", text=[str(p.load) for p in theirs], textposition="bottom left",
                textfont={"size": 9, "color": colour}, line={"color": colour, "width": 1.2, "dash": dash},
                marker={"symbol": "square-open", "size": MEASURED_SIZE, "color": colour, "line": {"width": 2}},
                customdata=[p.load for p in theirs],
                hovertemplate=f"{in_plotly(arm)}, measured: %{{customdata}} requests<extra></extra>",
            )
        )  # fmt: skip
    across = [_across(cell) for cell in cells] + [(p.interactivity, None, None) for p in measured]
    up = [_up(cell) for cell in cells] + [(p.tokens_per_s, None, None) for p in measured]
    figure.update_layout(
        xaxis={"showgrid": True, "range": [0.0, reach(across)]}, yaxis={"range": [0.0, reach(up)]}
    )
    return _badged(figure, badge)


def ratios(found: Sequence[Ratio], badge: str) -> go.Figure:
    """Percent faster than the baseline, an arm a line, with its interval."""
    if not found:
        return nothing("The first blocks are being replayed.")
    names = [each.arm for each in found][::-1]
    figure = frame(
        f"throughput against {found[0].over}, %", "", 130 + 46 * len(found), unified=False, legend=False
    )
    figure.add_vline(0, line={"color": palette.EVENT, "width": 1, "dash": "dash"})
    middle = [100 * (each.ratio - 1) for each in found][::-1]
    high = [100 * ((each.high or each.ratio) - 1) for each in found][::-1]
    low = [100 * ((each.low or each.ratio) - 1) for each in found][::-1]
    figure.add_trace(
        go.Scatter(
            x=middle, y=names, mode="markers", cliponaxis=False,
            marker={"size": 10, "color": [palette.CHOSEN if e.separated else palette.EVENT for e in found][::-1]},
            error_x={
                "array": [h - m for h, m in zip(high, middle, strict=True)],
                "arrayminus": [m - e for e, m in zip(low, middle, strict=True)],
                "color": palette.EVENT, "thickness": 1.5, "width": 5,
            },
            customdata=[f"[{e:+.1f}, {h:+.1f}]" for e, h in zip(low, high, strict=True)],
            hovertemplate="%{y}: %{x:+.1f} % %{customdata}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(yaxis={"type": "category"}, xaxis={"showgrid": True}, margin={"l": 150})
    return _badged(figure, badge)


def table(cells: Sequence[Cell], compared: Sequence[Ratio]) -> list[Row]:
    """A row a cell."""
    ratios = {(each.arm, each.load): each for each in compared}
    found: list[Row] = []
    for cell in cells:
        over = ratios.get((cell.arm, cell.load))
        found.append(
            {
                "arm": cell.arm,
                "requests": cell.load,
                "tokens/s": cell.tokens_per_s,
                "tokens/s, 95 %": interval(_up(cell)),
                "one user": cell.tokens_per_s_per_user,
                "tokens a step": cell.tokens_per_step,
                "over the best fixed": over.ratio if over else None,
                "95 %": DASH
                if over is None or over.low is None
                else f"{over.low:.3f} to {over.high:.3f} ({over.over})",
                "on the frontier": not dominated(cell, cells),
            }
        )
    return found


def _badged(figure: go.Figure, badge: str) -> go.Figure:
    """The badge inside the figure, so that a picture of it says what it is."""
    return figure.add_annotation(
        text="<br>".join(map(in_plotly, textwrap.wrap(badge, BADGE_WIDTH))), x=1, y=1, xref="paper", yref="paper",
        xanchor="right", yanchor="top", align="right", showarrow=False, font={"size": 11, "color": palette.EVENT},
    )  # fmt: skip


def _up(cell: Cell) -> tuple[float, float | None, float | None]:
    return cell.tokens_per_s, *rate(cell)


def _across(cell: Cell) -> tuple[float, float | None, float | None]:
    return cell.tokens_per_s_per_user, *rate_of_user(cell)


def _hover(cell: Cell) -> str:
    return "<br>".join(
        [
            f"<b>{in_plotly(cell.arm)}, {cell.load} request{'s' if cell.load > 1 else ''}</b>, replayed",
            f"{cell.tokens_per_s:,.0f} tokens/s in all [{interval(_up(cell))}]",
            f"{cell.tokens_per_s_per_user:,.1f} tokens/s for one user",
            f"{cell.tokens_per_step:.2f} tokens a step, {cell.admitted:.2f} drafts verified of {cell.depth:.1f}",
            f"{len(cell.blocks)} repeats",
        ]
    )
