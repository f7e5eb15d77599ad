"""Figures of a watched server, from rows of `queries.engine_samples_since`: one row a bucket, model and engine."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import SECONDS, Columns, bins_of, frame, line, nothing, ratio, total

WAITING = "Waiting for the second reading."
NO_DRAFTS = "No drafts were counted."


def headline(samples: Columns) -> dict[str, float | None]:
    """Over all engines: tokens_per_s, later_output_ms, first_token_ms, engine_steps_per_s (of one engine),
    accepted_per_scheduled, tokens_per_draft; running and waiting now. None where it is not told.
    """
    if not len(samples.get("step", ())):
        names = (
            "tokens_per_s",
            "later_output_ms",
            "first_token_ms",
            "engine_steps_per_s",
            "accepted_per_scheduled",
        )
        return dict.fromkeys((*names, "tokens_per_draft", "running", "waiting"))
    sums = {
        name: float(np.nansum(samples[name]))
        for name in (
            "seconds", "tokens", "first_tokens", "first_token_seconds", "later_outputs", "later_seconds",
            "engine_steps", "drafts", "draft_tokens", "accepted",
        )
    }  # fmt: skip
    now = samples["step"] == samples["step"].max()
    engines = int(now.sum())
    drafted = _over(sums["accepted"], sums["drafts"])
    return {
        "tokens_per_s": _over(sums["tokens"] * engines, sums["seconds"]),
        "later_output_ms": _over(1e3 * sums["later_seconds"], sums["later_outputs"]),
        "first_token_ms": _over(1e3 * sums["first_token_seconds"], sums["first_tokens"]),
        "engine_steps_per_s": _over(sums["engine_steps"], sums["seconds"]),
        "accepted_per_scheduled": _over(sums["accepted"], sums["draft_tokens"]),
        "tokens_per_draft": None if drafted is None else 1 + drafted,
        "running": float(samples["running"][now].sum()),
        "waiting": float(samples["waiting"][now].sum()),
    }


def acceptance(samples: Columns) -> go.Figure:
    """vLLM's acceptance rate over the run: accepted of scheduled draft tokens."""
    if not _drafted(samples):
        return nothing(NO_DRAFTS)
    index, middle = bins_of(samples)
    rate = ratio(_sum(samples, "accepted", index, middle), _sum(samples, "draft_tokens", index, middle))
    figure = frame(SECONDS, "share of scheduled draft tokens", legend=False)
    figure.add_trace(line("accepted / scheduled", middle, rate, palette.SCHEDULED, hovertemplate="%{y:.3f}"))
    figure.update_yaxes(range=[0, 1.02])
    return figure


def by_position(samples: Columns) -> go.Figure:
    """Accepted draft tokens at each position for each draft: what vLLM calls acceptance by position."""
    if not _drafted(samples):
        return nothing(NO_DRAFTS)
    shares = position_shares(samples)
    figure = frame("draft position", "accepted / drafts", y_from_zero=True, legend=False)
    figure.add_trace(
        go.Bar(
            x=list(range(len(shares))), y=shares, marker={"color": palette.ACCEPTED}, name="accepted / drafts",
            hovertemplate="%{y:.3f}",
        )
    )  # fmt: skip
    figure.update_layout(xaxis={"dtick": 1})
    figure.update_yaxes(range=[0, 1.02])
    return figure


def position_shares(samples: Columns) -> list[float]:
    """Accepted at each position, by draft."""
    known = [list(counts) for counts in samples["accepted_by_position"] if counts is not None]
    K = max((len(counts) for counts in known), default=0)
    sums = [sum(counts[k] for counts in known if k < len(counts)) for k in range(K)]
    drafts = float(np.nansum(samples["drafts"]))
    return [count / drafts for count in sums] if drafts else []


def latency(samples: Columns) -> go.Figure:
    """Mean time to a request's first token, and between its outputs."""
    if not len(samples.get("step", ())):
        return nothing(WAITING)
    index, middle = bins_of(samples)
    figure = frame(SECONDS, "milliseconds, mean", y_from_zero=True)
    for name, seconds, count, colour in (
        ("first token", "first_token_seconds", "first_tokens", palette.USER),
        ("between outputs", "later_seconds", "later_outputs", palette.RATE),
    ):
        value = 1e3 * ratio(_sum(samples, seconds, index, middle), _sum(samples, count, index, middle))
        figure.add_trace(
            line(
                name,
                middle,
                value,
                colour,
                mode="lines+markers",
                marker={"size": 4},
                hovertemplate="%{y:.0f} ms",
            )
        )  # a marker, since an interval between two without a first token is no line
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def engines(samples: Columns) -> list[dict[str, Any]]:
    """One row an engine, for a table."""
    if not len(samples.get("step", ())):
        return []
    found = []
    for model, engine in sorted(set(zip(samples["model"], samples["engine"], strict=True))):
        rows = (samples["model"] == model) & (samples["engine"] == engine)
        mine: Mapping[str, np.ndarray] = {name: column[rows] for name, column in samples.items()}
        sums = headline(mine)
        found.append(
            {
                "engine": engine,
                "tokens/s": sums["tokens_per_s"],
                "running": sums["running"],
                "cache in use": float(mine["cache_usage"][-1]),
                "accepted / scheduled": sums["accepted_per_scheduled"],
                "steps/s": sums["engine_steps_per_s"],
            }
        )
    return found


def _drafted(samples: Columns) -> bool:
    return bool(len(samples.get("step", ()))) and float(np.nansum(samples["draft_tokens"])) > 0


def _sum(samples: Columns, name: str, index: np.ndarray, middle: np.ndarray) -> np.ndarray:
    return total(samples[name], index, len(middle))


def _over(above: float, below: float) -> float | None:
    return above / below if below else None
