"""Figures of the A/B page: the ratio and its sequence round by round, and the ledger that explains it."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from avlab.escaping import in_plotly
from avlab.experiments.answers import ABAnswer, ArmSeen, Comparison, Ledger, Point
from avlab.experiments.statistics import least_rounds
from avlab.experiments.words import LEDGER
from avlab.figures import palette
from avlab.figures.base import frame, line, nothing
from avlab.formats import DASH

PARTS = {
    "prompt": "prompts",
    "draft": "drafting",
    "verify": "verification",
    "sample": "sampling",
    "decide": "deciding",
    "other": "everything else",
}
COLOURS = palette.PHASES | {"prompt": palette.PROMPTS, "other": palette.PHASES["idle"]}
FATES = (
    ("accepted", "accepted", palette.ACCEPTED),
    ("rejected", "verified in vain", palette.REJECTED),
    ("trimmed", "drafted in vain", palette.SCHEDULED),
)
NOTHING = -100.0  # percent: no ratio is below 0
MOST_TICKS = 12  # rounds that are each named under the chart
Row = dict[str, str | float | bool | None]  # of a table, by its columns
LEAST = f"an interval needs at least {least_rounds()}"


def no_round(answer: ABAnswer) -> str:
    """Why there is nothing to draw of rounds."""
    if answer.state == "running":
        return f"The first round is under way: {LEAST}."
    return f"It ended before a round was complete: {LEAST}."


def colour_of(arms: list[str], arm: str) -> str:
    """The colour of an arm, the same in every chart of an experiment."""
    colours = (*palette.RUNS, palette.PHASES["draft"], palette.BONUS, palette.REJECTED)
    return colours[arms.index(arm) % len(colours)]


def ratios(answer: ABAnswer) -> go.Figure:
    """Percent faster than the baseline by round: estimate so far, the confidence sequence as a band, rounds as dots."""
    plan, results = answer.plan, [result for result in answer.results if result.rounds]
    if not results:
        return nothing(no_round(answer), 380)
    figure = frame("round", f"throughput against {plan.baseline}, %", 380, unified=False)
    figure.add_hline(0, line={"color": palette.EVENT, "width": 1, "dash": "dash"})
    for result in results:
        colour = colour_of(plan.arms, result.arm)
        low, high = _percent(result.low_by_round), _percent(result.high_by_round)
        estimate = _percent(result.estimate_by_round)
        number = np.arange(1, len(estimate) + 1)
        known = np.isfinite(low) & np.isfinite(high)
        figure.add_trace(
            go.Scatter(
                x=[*number[known], *number[known][::-1]], y=[*high[known], *low[known][::-1]], fill="toself",
                fillcolor=palette.faint(colour, 0.14), line={"width": 0}, hoverinfo="skip", mode="lines",
                legendgroup=result.arm, showlegend=False,
            )
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=number, y=_percent(result.ratio_by_round), mode="markers", showlegend=False,
                legendgroup=result.arm, marker={"color": palette.faint(colour, 0.35), "size": 5},
                hovertemplate=f"{in_plotly(result.arm)}, round %{{x}} alone: %{{y:+.1f}} %<extra></extra>",
            )
        )  # fmt: skip
        ends = [f"[{_end(one)}, {_end(other)}]" for one, other in zip(low, high, strict=True)]
        figure.add_trace(
            line(
                result.arm, number, estimate, colour, legendgroup=result.arm, customdata=ends,
                hovertemplate=f"{in_plotly(result.arm)} after %{{x}} rounds: %{{y:+.1f}} % %{{customdata}}"
                "<extra></extra>",
            )
        )  # fmt: skip
    rounds = _longest(results)
    ticks = {"dtick": 1} if rounds <= MOST_TICKS else {}
    figure.update_layout(yaxis={"range": _range(results)}, xaxis={"range": [0.5, rounds + 0.5], **ticks})
    return figure


def _percent(values: Sequence[float | None]) -> np.ndarray:
    return 100 * (np.array(values, dtype=float) - 1)


def _end(value: float) -> str:
    return f"{value:+.1f}" if np.isfinite(value) else "…"


def _longest(results: list[Comparison]) -> int:
    return max(result.rounds for result in results)


def _range(results: list[Comparison]) -> list[float]:
    """The present intervals, rounds and 0, with some room; the wide bands of the first rounds may leave the picture."""
    seen = [0.0]
    for result in results:
        seen += [
            *_percent([result.low, result.high]),
            *np.percentile(_percent(result.ratio_by_round), [10, 90]),
        ]
    known = [value for value in seen if np.isfinite(value)]
    room = 0.25 * (max(known) - min(known)) + 1.0
    return [max(min(known) - room, NOTHING), max(known) + room]


def ledger(answer: ABAnswer) -> go.Figure:
    """Milliseconds for 1,000 output tokens by arm and part, and where verifying every draft token would have led."""
    arms = _with_ledger(answer)
    if not arms:
        return nothing(no_round(answer))
    figure = frame("milliseconds for 1,000 output tokens", "", 120 + 44 * len(arms), unified=False)
    names = list(arms)[::-1]
    figure.update_yaxes(tickvals=names, ticktext=[broken(arm) for arm in names])
    for part, title in PARTS.items():
        values = [max(arms[arm].line(f"{part}_ms") or 0.0, 0.0) for arm in names]
        figure.add_trace(
            go.Bar(
                y=names, x=values, name=title, orientation="h", marker={"color": COLOURS[part]}, width=0.6,
                hovertemplate=f"%{{y}}, {title}: %{{x:,.0f}} ms<extra></extra>",
            )
        )  # fmt: skip
    trimming = [arm for arm in names if (arms[arm].saved_ms or 0) > 0]
    figure.add_trace(
        go.Scatter(
            y=trimming, x=[arms[arm].total_ms + (arms[arm].saved_ms or 0.0) for arm in trimming], mode="markers",
            name="all verified", cliponaxis=False,
            marker={"symbol": "diamond-open", "size": 11, "color": palette.CHOSEN, "line": {"width": 2}},
            hovertemplate="%{y}, if every draft token were verified: %{x:,.0f} ms by the cost table<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        barmode="stack", yaxis={"type": "category"}, xaxis={"showgrid": True}, margin={"l": 110}
    )
    return figure


def drafts(answer: ABAnswer) -> go.Figure:
    """What became of draft tokens, for 1,000 output tokens, by arm."""
    arms = {arm: entry for arm, entry in _with_ledger(answer).items() if entry.scheduled}
    if not arms:
        waits = answer.state == "running"
        return nothing("No arm has drafted yet." if waits else "No arm drafted in a round that counts.")
    figure = frame("draft tokens for 1,000 output tokens", "", 120 + 44 * len(arms), unified=False)
    names = list(arms)[::-1]
    figure.update_yaxes(tickvals=names, ticktext=[broken(arm) for arm in names])
    for fate, title, colour in FATES:
        figure.add_trace(
            go.Bar(
                y=names, x=[arms[arm].line(fate) for arm in names], name=title, orientation="h", width=0.6,
                marker={"color": colour}, hovertemplate=f"%{{y}}, {title}: %{{x:,.0f}}<extra></extra>",
            )
        )  # fmt: skip
    figure.update_layout(
        barmode="stack", yaxis={"type": "category"}, xaxis={"showgrid": True}, margin={"l": 110}
    )
    return figure


def broken(arm: str) -> str:
    """An arm's name in lines that fit beside a bar."""
    return in_plotly(arm).replace("+", "<br>+")


def _with_ledger(answer: ABAnswer) -> dict[str, Ledger]:
    return {arm: seen.ledger for arm, seen in answer.arms.items() if seen.ledger}


def table(answer: ABAnswer) -> list[Row]:
    """A row an arm: throughput, ratio with both intervals, and what users saw."""
    results = {result.arm: result for result in answer.results}
    rows: list[Row] = []
    for arm, seen in answer.arms.items():
        result = results.get(arm)
        rows.append(
            {
                "arm": arm,
                "tokens/s": seen.tokens_per_s,
                f"× {answer.plan.baseline}": 1.0 if result is None else result.ratio,
                "95 %, watched": "baseline" if result is None else _interval(result, result.low, result.high),
                "95 %, planned": ""
                if result is None
                else _interval(result, result.fixed_low, result.fixed_high),
                **users(seen),
                "first, ms": seen.p50_ttft_ms,
            }
        )
    return rows


def ledger_table(answer: ABAnswer) -> list[Row]:
    """The ledger, a row a line of it and a column an arm."""
    arms = _with_ledger(answer)
    if not arms:
        return []
    return [
        {"per 1,000 output tokens": title} | {arm: entry.line(name) for arm, entry in arms.items()}
        for name, title in LEDGER.items()
    ]


def users(seen: ArmSeen | Point) -> dict[str, float | None]:
    """What one user got, by the names of the tables' columns."""
    return {
        "one user": seen.interactivity,
        "p50, ms": seen.p50_tpot_ms,
        "p95, ms": seen.p95_tpot_ms,
    }


def _interval(result: Comparison, low: float | None, high: float | None) -> str:
    if not result.rounds:
        return DASH
    if low is None and high is None:
        return "not yet"
    ends = ("…" if end is None else f"{end:.3f}" for end in (low, high))
    return " to ".join(ends)
