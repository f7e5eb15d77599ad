"""Figures of the Sampling bias page: outputs beside what is due, the tree of paths, draws that converge."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.bias.cases import Path
from avlab.bias.text_measures import known
from avlab.figures import palette
from avlab.figures.base import frame, line, nothing

FATES = {"accepted": palette.ACCEPTED, "rejected": palette.REJECTED, "not verified": palette.SCHEDULED}
MOST_CELLS = 64


def outputs(
    names: Sequence[str],
    target: np.ndarray,
    found: Sequence[tuple[str, np.ndarray, bool]],
    height: int = 300,
    x: str = "token",
) -> go.Figure:
    """The target's distribution and, beside it, what comes out: found holds (name, distribution, sound).

    Of more than MOST_CELLS outputs, those that change most.
    """
    order = np.arange(len(target))
    if len(target) > MOST_CELLS:
        change = np.max([np.abs(output - target) for _, output, _ in found], axis=0)
        order = np.sort(np.argsort(-change)[:MOST_CELLS])
    shown = [names[i] for i in order.tolist()]
    figure = frame(x, "probability", height, y_from_zero=True, unified=False)
    few = len(order) * (1 + len(found)) <= 20
    for name, values, colour in [
        ("target", target, palette.TARGET),
        *((name, output, palette.verdict(sound)) for name, output, sound in found),
    ]:
        same = [each[0] for each in found if palette.verdict(each[2]) == colour]
        opacity = 1.0 if name == "target" else 1.0 - 0.55 * same.index(name) / max(len(same), 1)
        figure.add_trace(
            go.Bar(
                x=shown, y=values[order], name=name, marker={"color": palette.faint(colour, opacity)},
                text=[f"{value:.3g}" for value in values[order].round(4)] if few else None, textposition="outside",
                textfont={"size": 11}, cliponaxis=False, hovertemplate="%{x}: %{y:.4f}",
            )
        )  # fmt: skip
    figure.update_layout(
        barmode="group", bargap=0.28, bargroupgap=0.04, xaxis={"type": "category", "automargin": True}
    )
    return figure


def rows(names: Sequence[str], target: np.ndarray, draft: np.ndarray) -> go.Figure:
    """A target row and the draft row that stands for it."""
    figure = frame("token", "probability", 300, y_from_zero=True, unified=False)
    for name, values, colour in (("target p", target, palette.TARGET), ("draft q", draft, palette.ADMITTED)):
        figure.add_trace(
            go.Bar(x=names, y=values, name=name, marker={"color": colour}, hovertemplate="%{x}: %{y:.4f}")
        )
    figure.update_layout(barmode="group", bargap=0.28, bargroupgap=0.04, xaxis={"type": "category"})
    return figure


def tree(paths: Sequence[Path], names: Sequence[str], height: int = 320) -> go.Figure:
    """The ways from a drafted token to an output token, as a tree; a line is as wide as its probability."""
    figure = frame("", "", height, legend=False, unified=False)
    leaves = list(paths)
    if not leaves:
        return nothing("Nothing can be drawn.")
    place = {path: len(leaves) - 1 - i for i, path in enumerate(leaves)}
    drafted = sorted({path.drafted for path in leaves})
    middle = {t: float(np.mean([place[p] for p in leaves if p.drafted == t])) for t in drafted}
    root = float(np.mean(list(middle.values())))
    for token in drafted:
        mine = [path for path in leaves if path.drafted == token]
        mass = sum(path.chance for path in mine)
        _branch(figure, 0, root, 1, middle[token], mass, palette.TOKENS[token % 8])
        for fate in dict.fromkeys(path.fate for path in mine):
            ends = [path for path in mine if path.fate == fate]
            at, share = float(np.mean([place[p] for p in ends])), sum(p.chance for p in ends)
            _branch(figure, 1, middle[token], 2, at, share, FATES[fate])
            _word(figure, 2, at, f"{fate}<br><b>{share:.4g}</b>", FATES[fate])
            for path in ends:
                _branch(figure, 2, at, 3, place[path], path.chance, palette.TOKENS[path.output % 8])
                _word(
                    figure, 3, place[path], f"outputs <b>{names[path.output]}</b>: <b>{path.chance:.4g}</b>",
                    palette.TOKENS[path.output % 8], "right",
                )  # fmt: skip
        _word(
            figure,
            1,
            middle[token],
            f"drafts <b>{names[token]}</b><br><b>{mass:.4g}</b>",
            palette.TOKENS[token % 8],
        )
    figure.update_xaxes(visible=False, range=[-0.1, 4.0], fixedrange=True)
    figure.update_yaxes(visible=False, range=[-0.6, len(leaves) - 0.3], fixedrange=True)
    figure.update_layout(hovermode=False, margin={"l": 4, "r": 4, "t": 6, "b": 6})
    return figure


def _branch(
    figure: go.Figure, x0: float, y0: float, x1: float, y1: float, chance: float, colour: str
) -> None:
    along = np.linspace(0, 1, 25)
    figure.add_trace(
        go.Scatter(
            x=x0 + (x1 - x0) * along, y=y0 + (y1 - y0) * along**2 * (3 - 2 * along), mode="lines", hoverinfo="skip",
            line={"color": palette.faint(colour, 0.45), "width": max(1.5, 26 * chance)},
        )
    )  # fmt: skip


def _word(figure: go.Figure, x: float, y: float, text: str, colour: str, side: str = "top") -> None:
    right = side == "right"
    figure.add_trace(
        go.Scatter(
            x=[x],
            y=[y],
            mode="markers",
            marker={"size": 9, "color": colour},
            hoverinfo="skip",
            cliponaxis=False,
        )
    )
    figure.add_annotation(
        x=x, y=y, text=text, showarrow=False, xanchor="left" if right else "center",
        yanchor="middle" if right else "bottom", xshift=10 if right else 0, yshift=0 if right else 7,
        font={"size": 12}, align="center",
    )  # fmt: skip


def convergence(
    lines: Sequence[tuple[str, Sequence[int], Sequence[int], float, bool]], target: float, token: str
) -> go.Figure:
    """Share of a token over the draws so far: lines hold (name, draws, times it came, exact share, sound)."""
    if not any(len(draws) for _, draws, _, _, _ in lines):
        return nothing("Nothing was drawn yet.", 300)
    figure = frame("draws so far", f"share of {token}", 300, unified=False)
    most = max(draws[-1] for _, draws, _, _, _ in lines if draws)
    figure.add_trace(
        line(
            "target",
            [1, most],
            [target] * 2,
            palette.TARGET,
            line={"color": palette.TARGET, "width": 2, "dash": "dash"},
        )
    )
    for name, draws, times, exact, sound in lines:
        colour = palette.verdict(sound)
        n = np.asarray(draws, dtype=float)
        figure.add_trace(
            line(
                f"{name}: drawn", n, np.asarray(times) / n, colour, mode="lines+markers", marker={"size": 5},
                hovertemplate="%{x:,} draws: %{y:.4f}",
            )
        )  # fmt: skip
        figure.add_trace(
            line(
                f"{name}: exact {exact:.4g}", [1, most], [exact] * 2, colour,
                line={"color": palette.faint(colour, 0.6), "width": 1.5, "dash": "dot"},
            )
        )  # fmt: skip
    figure.update_layout(xaxis={"type": "log", "dtick": 1}, yaxis={"range": [-0.02, 1.02]})
    return figure


def variations(found: Sequence[tuple[str, float, bool]], floor: float = 0.0) -> go.Figure:
    """Total variation of the output by rule: found holds (name, total variation, sound), drawn from the top.

    floor: what a faithful sampler shows on average where outputs were sampled; 0 where they were enumerated.
    """
    figure = frame("total variation from the target", "", 70 + 30 * len(found), legend=False, unified=False)
    largest = max([value for _, value, _ in found] + [floor, 0.01])
    figure.add_trace(
        go.Bar(
            y=[name for name, _, _ in found], x=[value for _, value, _ in found], orientation="h",
            marker={"color": [palette.verdict(sound) for _, _, sound in found]},
            text=["0" if value < 1e-9 else f"{value:.4f}" for _, value, _ in found], textposition="outside",
            cliponaxis=False, hovertemplate="%{y}: %{x:.5f}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        yaxis={"autorange": "reversed", "automargin": True, "ticks": ""}, xaxis={"range": [0, 1.2 * largest]}
    )
    if floor:
        figure.add_vline(floor, line={"color": palette.TARGET, "width": 2, "dash": "dash"})
    return figure


def over_thresholds(
    thresholds: np.ndarray, found: Mapping[str, tuple[np.ndarray, bool]], chosen: float
) -> go.Figure:
    """Total variation against the threshold, a line a rule: found holds (values, sound)."""
    figure = frame("threshold t", "total variation", 300, y_from_zero=True, unified=False)
    dashes = {True: iter(("solid", "dash", "dot", "dashdot")), False: iter(("solid", "dash"))}
    for name, (values, sound) in found.items():
        style = {"color": palette.verdict(sound), "width": 2, "dash": next(dashes[sound])}
        figure.add_trace(
            line(name, thresholds, values, palette.verdict(sound), line=style, hovertemplate="%{y:.4f}")
        )
    figure.add_vline(chosen, line={"color": palette.EVENT, "width": 1, "dash": "dot"})
    return figure


def by_place(found: Sequence[tuple[str, np.ndarray, bool]], due: float, settles: float) -> go.Figure:
    """Share of token a at each place of the text: found holds (name, shares, sound).

    settles: the share that the unsound one settles at in a long text.
    """
    figure = frame("place in the text", "share of a", 300, unified=False)
    places = np.arange(1, len(found[0][1]) + 1)
    figure.add_trace(
        line("target", places, np.full(len(places), due), palette.TARGET,
             line={"color": palette.TARGET, "width": 2, "dash": "dash"})
    )  # fmt: skip
    figure.add_trace(
        line(f"settles at {settles:.4f}", places, np.full(len(places), settles), palette.verdict(False),
             line={"color": palette.verdict(False), "width": 1.5, "dash": "dot"})
    )  # fmt: skip
    for name, shares, sound in found:
        figure.add_trace(
            line(name, places, shares, palette.verdict(sound), mode="lines+markers", hovertemplate="%{y:.4f}")
        )
    return figure


History = Sequence[Sequence[float]]  # (continuations, p of one token, p of two, total variation, noise floor)


def p_values(found: Sequence[tuple[str, History, bool]], tests: int) -> go.Figure:
    """The smaller p-value of an audit, corrected for its number of tests, as continuations come in; logarithmic."""
    figure = frame("continuations", "p-value, corrected", 320, unified=False)
    for number, (name, history, sound) in enumerate(found):
        values = [max(min(1.0, tests * min(p, q)), 1e-12) for _, p, q, _, _ in history]
        x, colour, style = [row[0] for row in history], palette.verdict(sound), _dashed(sound, number)
        figure.add_trace(line(name, x, values, colour, line=style, hovertemplate="%{y:.2g}"))
    figure.add_hline(0.01, line={"color": palette.EVENT, "width": 1, "dash": "dot"})
    figure.update_layout(yaxis={"type": "log", "range": [-12.3, 0.2], "dtick": 3, "exponentformat": "power"})
    return figure


def against_floor(found: Sequence[tuple[str, History, bool]]) -> go.Figure:
    """Counted total variation of the first token against the noise floor."""
    figure = frame("continuations", "total variation", 320, y_from_zero=True, unified=False)
    for number, (name, history, sound) in enumerate(found):
        x, colour, style = [row[0] for row in history], palette.verdict(sound), _dashed(sound, number)
        figure.add_trace(line(name, x, [row[3] for row in history], colour, line=style))
        if number == 0:
            figure.add_trace(
                line(
                    "noise floor", x, [row[4] for row in history], palette.TARGET,
                    line={"color": palette.TARGET, "width": 2, "dash": "dash"},
                )
            )  # fmt: skip
    return figure


def _dashed(sound: bool, number: int) -> dict[str, Any]:
    """The style of the line of a rule, by its place among those shown."""
    return {"color": palette.verdict(sound), "width": 2, "dash": DASHES[number % len(DASHES)]}


def measures(
    names: Mapping[str, str], found: Sequence[tuple[str, Mapping[str, Sequence[float | None]], bool]]
) -> go.Figure:
    """A panel for each measure, a dot with its interval for each rule, drawn from the top.

    names: title of each measure; found holds (rule, measure -> (estimate, lower end, upper end), sound).
    """
    figure = frame("", "", 118 + 34 * len(found), legend=False, unified=False)
    gap, wide = 0.035, 1 / len(names)
    for number, (measure, title) in enumerate(names.items(), 1):
        axis = "x" if number == 1 else f"x{number}"
        left = (number - 1) * wide + (gap if number > 1 else 0)
        dots = [
            (rule, interval, sound)
            for rule, values, sound in found
            if (interval := known(values[measure])) is not None
        ]
        figure.add_trace(
            go.Scatter(
                x=[at for _, (at, _, _), _ in dots], y=[rule for rule, _, _ in dots], xaxis=axis, mode="markers",
                marker={"size": 10, "color": [palette.verdict(sound) for _, _, sound in dots]},
                error_x={
                    "type": "data", "symmetric": False, "thickness": 2, "width": 5, "color": palette.EVENT,
                    "array": [high - at for _, (at, _, high), _ in dots],
                    "arrayminus": [at - low for _, (at, low, _), _ in dots],
                },
                hovertemplate="%{y}: %{x:.4f}<extra></extra>",
            )
        )  # fmt: skip
        figure.layout[f"xaxis{'' if number == 1 else number}"] = {
            "domain": [left, number * wide], "anchor": "y", "ticks": "outside", "ticklen": 4, "nticks": 5,
            "showgrid": True, "title": {"text": wrapped(title), "font": {"size": 12}, "standoff": 8},
        }  # fmt: skip
        if measure == "excess":
            figure.add_vline(0, xref=axis, line={"color": palette.TARGET, "width": 2, "dash": "dash"})
    figure.update_layout(
        margin={"b": 64, "l": 130},
        yaxis={"type": "category", "autorange": "reversed", "automargin": True, "ticks": "", "title": None,
               "categoryarray": [rule for rule, _, _ in found]},
    )  # fmt: skip
    return figure


def wrapped(title: str, width: int = 26) -> str:
    """A title over as many lines as it needs."""
    return "<br>".join(textwrap.wrap(title, width))


DASHES = ("solid", "dot", "dashdot", "longdash")
