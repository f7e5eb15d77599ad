"""Whether a step with a number of rows that was never met before is slower than later steps of that number.

Adaptive verification changes the number of rows at nearly every step. Where products are built for each shape, as
oneDNN builds them, every new number costs tens of milliseconds.
"""

from collections import defaultdict

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import spread

REQUESTS = (16, 64)
LATER = 3  # the next steps of a size, which its first is compared with: caches grow, so later ones are dearer
BARS = tuple(
    Bar(f"new-sizes-{n}", f"adaptive: first step of a size over later ones, {n} requests", "×", 1.05, "<=")
    for n in REQUESTS
)


def measure(context: Context) -> Result:
    """Serves `adaptive` in a fresh process with a ready cost table, so that no size has been met before.

    A step counts if it computes no prompt. Its verification is compared with the median of the next steps of as many
    rows.
    """
    from avlab.bench.lab import Lab

    lab = Lab(context)
    values: dict[str, float | None] = {}
    rows: list[list[object]] = []
    met: set[int] = set()  # sizes met by the loads before count as met
    for bar, requests in zip(BARS, REQUESTS, strict=True):
        lab.begin(requests, "adaptive")
        took: dict[int, list[float]] = defaultdict(list)
        steps = context.pick(200, 1200)
        for done in range(steps):
            report, _ = lab.step()
            if not report.prompt_tokens and report.emitting == requests:
                took[report.target_tokens].append(report.ms["verify"])
            context.progress(f"adaptive steps, {requests} requests", done + 1, steps)
        seen = {size: each for size, each in took.items() if len(each) > LATER and size not in met}
        met |= set(took)
        ratios = np.array([each[0] / np.median(each[1 : 1 + LATER]) for each in seen.values()])
        values[bar.name] = float(np.median(ratios)) if len(ratios) else None
        label = spread(ratios) if len(ratios) else "no size came often enough"
        rows.append([requests, steps, len(took), len(seen), label])
    columns = ["requests", "adaptive steps", "sizes met", "sizes compared", "first over later verification"]
    return Result(values, [Table("Steps of sizes never met", columns, rows)])


MEASURES = (Measure("new-sizes", "steps of sizes never met before", BARS, measure, 12, alone=True),)
