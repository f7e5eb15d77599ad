"""The numbers that stand beside the figures, from the same rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from avlab.figures.base import Columns
from avlab.speculation.saving import saved_ms
from avlab.wire.frames import HEADLINE

SUMS = (
    "steps", "seconds", "tokens", "emitting", "scheduled", "admitted", "accepted", "labelled", "explored",
    "explored_ms",
)  # fmt: skip


def arrays(columns: Mapping[str, Sequence]) -> dict[str, np.ndarray]:
    """Lists as numpy columns."""
    return {name: np.asarray(values) for name, values in columns.items()}


def median(values: np.ndarray) -> float | None:
    """The median of what is known; None of nothing."""
    known = values[np.isfinite(values)] if len(values) else values
    return float(np.median(known)) if len(known) else None


def served(rows: Columns, blocks: Iterable[Mapping[str, Any]], kinds: Sequence[str] = HEADLINE) -> np.ndarray:
    """Which rows belong to blocks of these kinds."""
    chosen = [block["block"] for block in blocks if block["kind"] in kinds]
    return np.isin(rows["block"], chosen) if len(rows.get("block", ())) else np.zeros(0, bool)


def headline(steps: Columns, blocks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums and rates over bucketed steps of serving blocks; None where undefined."""
    kept = served(steps, blocks)
    found: dict[str, Any] = {name: float(np.nansum(steps[name][kept])) if len(kept) else 0.0 for name in SUMS}
    count, last = found["steps"], np.flatnonzero(kept)[-1:]
    found["tokens_per_s"] = found["tokens"] / found["seconds"] if found["seconds"] > 0 else None
    found["tokens_per_step"] = found["tokens"] / found["emitting"] if found["emitting"] else None
    found["step_ms"] = 1e3 * found["seconds"] / count if count else None
    pass_tokens = steps["target_tokens"][kept] * steps["steps"][kept] if len(kept) else np.zeros(0)
    found["target_tokens"] = float(pass_tokens.sum() / count) if count else 0.0
    for name in ("running", "waiting"):
        found[name] = float(steps[name][last][0]) if len(last) else 0.0
    return found


def untrimmed(steps: Columns, blocks: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """What windows of full verification gave: their steps so far, and the labels in them."""
    kept = served(steps, blocks, ("window",))
    return (int(steps["steps"][kept].sum()), int(steps["labelled"][kept].sum())) if len(kept) else (0, 0)


def four(numbers: Mapping[str, Any]) -> list[tuple[str, float | None, str]]:
    """The four numbers people confuse: name, value, what it is."""
    accepted = numbers["accepted"]

    def over(name: str) -> float | None:
        return accepted / numbers[name] if numbers[name] else None

    return [
        (
            "accepted / scheduled",
            over("scheduled"),
            "Accepted, of all draft tokens made, trimmed ones included.",
        ),
        ("accepted / admitted", over("admitted"), "Accepted, of the draft tokens that the target verified."),
        (
            "conditional acceptance",
            over("labelled"),
            "Accepted, of the draft tokens whose earlier ones were all accepted.",
        ),
        (
            "tokens per step",
            numbers["tokens_per_step"],
            "Output tokens per request and step; 1 without drafts.",
        ),
    ]


def by_position(
    positions: Columns, blocks: Iterable[Mapping[str, Any]], seconds: float | None, steps: Columns
) -> list[dict[str, float]]:
    """Sums by draft position over serving blocks: position, scheduled, admitted, accepted, labelled.

    seconds: None for the whole run; else only what lies within the steps on show.
    """
    kept = served(positions, blocks)
    if not kept.any():
        return []
    if seconds is not None and len(steps.get("bucket", ())):
        kept &= positions["step"] >= steps["bucket"].min()
    found = []
    for k in range(int(positions["position"].max()) + 1):
        mine = kept & (positions["position"] == k)
        sums = {
            name: float(positions[name][mine].sum())
            for name in ("scheduled", "admitted", "accepted", "labelled")
        }
        found.append({"position": k, **sums})
    return found


def saved(steps: Columns, verify: np.ndarray | None) -> float | None:
    """Mean milliseconds a step that trimming has saved, by the cost table; None where that cannot be said."""
    if verify is None or not len(steps.get("steps", ())) or not np.sum(steps["scheduled"]):
        return None
    count = np.maximum(steps["steps"], 1)
    each = saved_ms(verify, steps["target_tokens"], steps["scheduled"] / count, steps["admitted"] / count)
    return float((each * count).sum() / count.sum())
