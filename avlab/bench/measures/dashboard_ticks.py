"""What a page's tick asks of the database of a very long run."""

import tempfile
from pathlib import Path

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.large_run import ROWS

BAR = Bar("tick", "a tick's queries, run of 10 million rows, p95 of the slowest page", "ms", 100.0, "<=")


def measure(context: Context) -> Result:
    """Ticks of every page that has some, one after the other."""
    from avlab.bench.page_ticks import page_ticks

    context.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.folder) as folder:
        found = page_ticks(
            Path(folder) / "lab.duckdb",
            context.pick(ROWS, ROWS),
            context.pick(10, 60),
            lambda done, total: context.progress("pages", done, total),
        )
    rows, worst = [], 0.0
    for name, asked in found.items():
        p50, p95 = np.percentile(asked.ticks, [50, 95])
        busy = np.percentile(asked.busy, 95)
        rows.append([name, len(asked.ticks), *np.round([p50, p95, busy, asked.opening], 1).tolist()])
        worst = max(worst, float(p95))
    columns = ["page", "ticks", "median ms", "p95 ms", "p95 of processor time, ms", "opening, ms"]
    notes = [
        "Every tick reads all that its page ever reads, and the run grows by a second's steps in between. Opening is "
        "the page's first reading, with the results of an A/B; Live's comes after another page's."
    ]
    return Result({BAR.name: worst}, [Table(f"Queries over {ROWS:,} rows", columns, rows)], notes)


MEASURES = (Measure("dashboard-ticks", "the dashboard's queries", (BAR,), measure, 82, alone=True),)
