"""How many rows a second the recorder takes in."""

import tempfile
from pathlib import Path

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table

BAR = Bar("recorder", "recorder, rows made, sent, committed and acknowledged", "rows/s", 100_000)


def measure(context: Context) -> Result:
    """Some databases one after the other; the median."""
    from avlab.store.measure import measure_rate

    context.folder.mkdir(parents=True, exist_ok=True)
    repeats, seconds, rates = context.pick(3, 7), context.pick(1.5, 5.0), []
    with tempfile.TemporaryDirectory(dir=context.folder) as folder:
        for i in range(repeats):
            context.progress("databases", i, repeats)
            rates.append(measure_rate(Path(folder) / f"{i}.duckdb", seconds)["rows_per_s"])
    context.progress("databases", repeats, repeats)
    row = [repeats, seconds, *np.round([min(rates), np.median(rates), max(rates)]).astype(int).tolist()]
    table = Table("Recorder, rows/s", ["databases", "seconds each", "least", "median", "most"], [row])
    return Result({BAR.name: float(np.median(rates))}, [table])


MEASURES = (Measure("recorder", "the recorder's rate", (BAR,), measure, 80),)
