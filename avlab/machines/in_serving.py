"""What serving adds to step costs that were timed apart.

A profile times one size after the other in a tight loop and keeps the quick runs, by which policies decide well. In
serving other work lies between two passes, and caches hold other things: the same pass takes longer, by a share that
depends on its size. A machine's clock needs what steps take, so the steps of a run correct its profile here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avlab.speculation.costs import medians

LEAST_STEPS = 20  # of a group of sizes, or it joins the next
WIDEST = 1.5  # the largest size of a group over its smallest
Draft = tuple[int, int, float]  # requests, depth, ms
Pass = tuple[int, float]  # tokens, ms


def rest_line(points: Sequence[tuple[int, float, int]]) -> tuple[float, float]:
    """What a step takes besides, ms, and what each row adds that is sampled from, by (rows, ms, steps): least squares,
    weighted by steps, neither below 0."""
    if not points:
        return 0.0, 0.0
    total = sum(steps for *_, steps in points)
    rows = sum(r * steps for r, _, steps in points) / total
    mean = sum(ms * steps for _, ms, steps in points) / total
    spread = sum(steps * (r - rows) ** 2 for r, _, steps in points)
    slope = sum(steps * (r - rows) * (ms - mean) for r, ms, steps in points) / spread if spread else 0.0
    slope = min(max(slope, 0.0), mean / rows)
    return mean - slope * rows, slope


def prompt_saving(verify: Sequence[Pass], passes: Sequence[tuple[int, int, float, int]]) -> float:
    """By how much a prompt token of a pass is cheaper than the table of timed passes (tokens, ms) says, in ms.

    passes: (tokens, prompt tokens, ms, steps) as served. Those without prompts tell how dear passes were in serving
    beside the table: texts of another length, a machine that did other work.
    """
    said = {True: 0.0, False: 0.0}
    took, prompts = dict(said), 0
    sizes, costs = medians(verify)
    for tokens, prompt, ms, steps in passes:
        said[prompt > 0] += steps * float(np.interp(tokens, sizes, costs))
        took[prompt > 0] += steps * ms
        prompts += steps * prompt
    if not prompts or not said[False] or not took[False]:
        return 0.0
    return max(said[True] - took[True] * said[False] / took[False], 0.0) / prompts


def served_verify(verify: Sequence[Pass], passes: Sequence[tuple[int, int, float, int]]) -> list[Pass]:
    """Timed passes (tokens, ms) at the level of those that were served, (tokens, prompt tokens, ms, steps): only
    passes without prompts are compared."""
    plain = [(tokens, ms, steps) for tokens, prompt, ms, steps in passes if not prompt]
    return _raised(verify, plain)


def served_draft(draft: Sequence[Draft], drafts: Sequence[tuple[int, int, float, int]]) -> list[Draft]:
    """Timed drafts (requests, depth, ms) at the level of those that were served, (requests, depth, ms, steps)."""
    found: list[Draft] = []
    level = _level(
        [
            (requests, said, ms, steps)
            for depth in {depth for _, depth, _ in draft}
            for sizes, costs in [medians([(r, ms) for r, d, ms in draft if d == depth])]
            for requests, d, ms, steps in drafts
            if d == depth
            for said in [float(np.interp(requests, sizes, costs))]
        ]
    )
    for requests, depth, ms in draft:
        found.append((requests, depth, ms * float(np.interp(np.log(max(requests, 1)), *level))))
    return found


def _raised(samples: Sequence[Pass], served: Sequence[tuple[int, float, int]]) -> list[Pass]:
    sizes, costs = medians(samples)
    level = _level([(size, float(np.interp(size, sizes, costs)), ms, steps) for size, ms, steps in served])
    return [(size, ms * float(np.interp(np.log(max(size, 1)), *level))) for size, ms in samples]


def _level(compared: Sequence[tuple[int, float, float, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Served over timed as a curve over the logarithm of size, by (size, ms timed, ms served, steps): sizes in groups
    of enough steps. A level of 1 where nothing was served."""
    at: list[float] = []
    ratios: list[float] = []
    group: list[tuple[int, float, float, int]] = []
    ordered = sorted(each for each in compared if each[0] > 0 and each[1] > 0 and each[2] > 0)
    for i, each in enumerate(ordered):
        group.append(each)
        steps = sum(n for *_, n in group)
        following = ordered[i + 1][0] if i + 1 < len(ordered) else None
        if steps < LEAST_STEPS or (following is not None and following <= WIDEST * group[0][0]):
            continue
        at.append(sum(n * np.log(size) for size, *_, n in group) / steps)
        ratios.append(sum(n * took for *_, took, n in group) / sum(n * said for _, said, _, n in group))
        group = []
    return (np.array(at), np.array(ratios)) if at else (np.zeros(1), np.ones(1))
