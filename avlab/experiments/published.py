"""A frontier that somebody published, as a CSV holds it, and how it is laid over one of ours."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from avlab.experiments.answers import Point

PUBLISHED = Path(__file__).with_name("published_frontier.csv")


class FrontierFileError(ValueError):
    """A CSV that holds no frontier. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """An arm under a load (requests under way): tokens/s of all requests together, and for one user."""

    arm: str
    load: int
    tokens_per_s: float
    interactivity: float


COLUMNS = ("arm", "concurrency", "tok_s_user", "tok_s")  # of a published frontier
NEEDS = "it needs the columns arm, concurrency, tok_s_user and tok_s, with numbers"


def read_frontier(text: str) -> list[PublishedPoint]:
    """Points of a published frontier from a CSV with arm, concurrency, tok_s_user and tok_s; # begins a comment.

    Raises FrontierFileError, which names the line that is wrong.
    """
    numbered = [
        (number, line)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
        if line.strip(" \t,;") and not line.startswith("#")
    ]
    if not numbered:
        raise FrontierFileError(f"The CSV is empty: {NEEDS}.")
    rows = csv.reader((line for _, line in numbered), skipinitialspace=True)
    found: dict[tuple[str, int], PublishedPoint] = {}
    try:
        names = [name.strip() for name in next(rows)]
        if lacking := [name for name in COLUMNS if name not in names]:
            raise FrontierFileError(f"The CSV holds no frontier, for it lacks {', '.join(lacking)}: {NEEDS}.")
        for cells in rows:
            row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
            try:
                point = _published_point(row)
                if (point.arm, point.load) in found:
                    raise ValueError(f"{point.arm} with concurrency {point.load} stands there twice")
            except ValueError as error:
                raise FrontierFileError(
                    f"The CSV is wrong in line {numbered[rows.line_num - 1][0]}: {error}."
                ) from None
            found[point.arm, point.load] = point
    except csv.Error as error:
        raise FrontierFileError(f"The CSV cannot be read ({error}): {NEEDS}.") from None
    if not any(arm == "none" for arm, _ in found):
        raise FrontierFileError("The CSV has no points of the arm none, by which it could be scaled.")
    return list(found.values())


def _published_point(row: Mapping[str, str]) -> PublishedPoint:
    """A row as a point. Raises ValueError, which says what is wrong with it."""
    if not row.get("arm"):
        raise ValueError("arm is empty; it must name a policy, or none")
    load = row.get("concurrency", "")
    if not (load.isascii() and load.isdigit() and int(load) >= 1):
        raise ValueError(f"concurrency is {load!r}; it must be a whole number from 1")
    measures = {}
    for name in ("tok_s_user", "tok_s"):
        try:
            measures[name] = float(row.get(name, ""))
        except ValueError:
            measures[name] = np.nan
        if not 0 < measures[name] < np.inf:
            raise ValueError(f"{name} is {row.get(name, '')!r}; it must be a number above 0")
    return PublishedPoint(row["arm"], int(load), measures["tok_s"], measures["tok_s_user"])


def shared_loads(
    published: Sequence[PublishedPoint], own: Sequence[Point] | Sequence[PublishedPoint]
) -> list[int]:
    """The loads at which both have measured no speculation: at one of them the first can be laid on the second."""
    return sorted({p.load for p in published if p.arm == "none"} & {p.load for p in own if p.arm == "none"})


def scaled(
    published: Sequence[PublishedPoint],
    own: Sequence[Point] | Sequence[PublishedPoint],
    load: int | None = None,
) -> list[PublishedPoint]:
    """A published frontier in our units: its no-speculation point is laid on ours, for comparing shapes. Empty where
    there is none.

    load: at which, of `shared_loads`; else the lowest of them.
    """
    shared = shared_loads(published, own)
    if not shared:
        return []
    at = load if load in shared else shared[0]
    theirs = next(p for p in published if (p.arm, p.load) == ("none", at))
    ours = next(p for p in own if (p.arm, p.load) == ("none", at))
    up, across = ours.tokens_per_s / theirs.tokens_per_s, ours.interactivity / theirs.interactivity
    return [
        replace(p, tokens_per_s=up * p.tokens_per_s, interactivity=across * p.interactivity)
        for p in published
    ]
