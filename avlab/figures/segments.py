"""A run in segments: from one change of policy or workload to the next, with what each gave."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from avlab.experiments.statistics import fixed_sample
from avlab.figures.base import Columns, total
from avlab.wire.frames import HEADLINE

PARTS = 10  # of a segment, whose rates give the interval
LEAST_PARTS = 4
SETTLING = (
    1.0  # seconds at a segment's begin that count for nothing: requests of the one before are under way
)
SHORTEST = 0.5  # seconds
ALIKE = 0.1  # relative difference of requests under way, up to which two segments have one load
ALPHA = 0.05


def segments(
    steps: Columns, blocks: Sequence[Mapping[str, Any]], most: int | None = None
) -> list[dict[str, Any]]:
    """The serving blocks of a run in order, a row each: policy, workload, begins (s), seconds, requests (mean under
    way), tokens_per_s, low, high, tokens_per_step, verified (draft tokens a request and step), step_ms.

    low, high: 95 %, Student's over ten parts of about equal length; None where there are fewer than four. steps:
    bucketed, as `queries.steps_since` gives them. most: only the last so many. Blocks of an A/B give none, and so do
    those shorter than half a second, between two changes that belong together.
    """
    served = [block for block in blocks if block["kind"] in HEADLINE and block.get("round") is None]
    if not len(steps.get("step", ())):
        return []
    found = [row for block in served[-(most or len(served)) :] if (row := _segment(steps, block))]
    return found


def _segment(steps: Columns, block: Mapping[str, Any]) -> dict[str, Any] | None:
    mine = steps["block"] == block["block"]
    if not mine.any():
        return None
    rows = {name: column[mine] for name, column in steps.items()}
    length = float(rows["time"][-1] - block["time"])
    if length < SHORTEST:
        return None
    settled = rows["time"] - block["time"] > (SETTLING if length > 3 * SETTLING else 0.0)
    rows = {name: column[settled] for name, column in rows.items()}
    seconds = rows["seconds"] - rows["paused"]
    count, spent = float(rows["steps"].sum()), float(seconds.sum())
    if not count or spent <= 0:
        return None
    emitting = float(rows["emitting"].sum())
    rate = float(rows["tokens"].sum()) / spent
    low, high = _interval(rows["tokens"], seconds)
    return {
        "policy": block["arm"],
        "workload": block["workload"],
        "begins": float(block["time"]),
        "seconds": length,
        "requests": float((rows["running"] * rows["steps"]).sum() / count),
        "tokens_per_s": rate,
        "low": low,
        "high": high,
        "tokens_per_step": float(rows["tokens"].sum()) / emitting if emitting else None,
        "verified": float(rows["admitted"].sum()) / emitting if emitting else None,
        "step_ms": 1e3 * spent / count,
    }


def _interval(tokens: np.ndarray, seconds: np.ndarray) -> tuple[float | None, float | None]:
    """Student's interval of the logarithm of the rate, over parts of about equal length."""
    if len(seconds) < LEAST_PARTS:
        return None, None
    parts = min(PARTS, len(seconds))
    passed = np.cumsum(seconds)
    part = np.minimum((parts * (passed - seconds / 2) / passed[-1]).astype(np.int64), parts - 1)
    rates = total(tokens, part, parts), total(seconds, part, parts)
    kept = (rates[0] > 0) & (rates[1] > 0)
    if kept.sum() < LEAST_PARTS:
        return None, None
    interval = fixed_sample(np.log(rates[0][kept] / rates[1][kept]), ALPHA)
    return float(np.exp(interval.low)), float(np.exp(interval.high))


def shown(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Segments as a table: what each gave, and its rate over that of the segment before where the load was the same."""
    table = []
    for before, row in zip([None, *rows], rows, strict=False):
        alike = before is not None and _alike(before, row)
        table.append(
            {
                "from (s)": round(row["begins"], 1),
                "policy": row["policy"],
                "workload": row["workload"],
                "requests": round(row["requests"], 1),
                "tokens/s": round(row["tokens_per_s"]),
                "95 % interval": "" if row["low"] is None else f"{row['low']:,.0f} … {row['high']:,.0f}",
                "× before": row["tokens_per_s"] / before["tokens_per_s"] if alike and before else None,
                "verified": row["verified"],
                "tokens per step": row["tokens_per_step"],
                "step (ms)": row["step_ms"],
            }
        )
    return table


def change(rows: Sequence[Mapping[str, Any]], span: str = "whole run") -> str:
    """What the headline numbers are of beside the segments, and what the segment under way gives beside the one before;
    "" without one before. span: what the headline is of.
    """
    if len(rows) < 2:
        return ""
    before, after = rows[-2:]
    of = f"the whole run, all {len(rows)} segments together" if span == "whole run" else f"the {span}"
    now = f"Since {after['begins']:.0f} s: {after['policy']}, {after['requests']:.0f} requests"
    rate = f"{after['tokens_per_s']:,.0f} tokens/s"
    if _alike(before, after):
        ratio = after["tokens_per_s"] / before["tokens_per_s"]
        told = f"{now}, {rate}, {ratio:.2f} × what {before['policy']} gave before at this load."
    else:
        told = f"{now}, {rate}. Before, at another load of {before['requests']:.0f}: {before['tokens_per_s']:,.0f}."
    return f"Means over {of}. {told}"


def _alike(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two segments had about as many requests under way."""
    return abs(after["requests"] - before["requests"]) <= ALIKE * max(before["requests"], 1.0)
