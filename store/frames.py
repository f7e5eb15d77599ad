"""A run's tables as pandas data frames, one function a table: what `avlab.notebook` and the lab that it asks give."""

from collections.abc import Callable

import duckdb
import numpy as np
import pandas as pd

from avlab.store import queries
from avlab.store.errors import StoreError
from avlab.store.traces import table


def frame(con: duckdb.DuckDBPyConnection, run: str, name: str) -> pd.DataFrame:
    """One table of a run, by its name in FRAMES. Raises StoreError for another name."""
    if name not in FRAMES:
        raise StoreError(f"A run has no table {name!r}; it has {', '.join(FRAMES)}.")
    return FRAMES[name](con, run)


def _whole(name: str) -> Callable[[duckdb.DuckDBPyConnection, str], pd.DataFrame]:
    """The table as it is stored, without the run's id."""

    def read(con: duckdb.DuckDBPyConnection, run: str) -> pd.DataFrame:
        sql = f"SELECT * EXCLUDE (run) FROM {name} WHERE run = $run::UUID ORDER BY rowid"
        return table(con, sql, {"run": run}).to_pandas()

    return read


def _positions(con: duckdb.DuckDBPyConnection, run: str) -> pd.DataFrame:
    everything = max(queries.last_step(con, run) + 1, 1)
    found = queries.positions_since(con, run, max_points=everything).to_pandas()
    return found.drop(columns=["bucket", "width"])


def _drafts(con: duckdb.DuckDBPyConnection, run: str) -> pd.DataFrame:
    slots = _whole("drafts")(con, run)
    recorded = con.execute("SELECT features FROM runs WHERE run = ?::UUID", [run]).fetchall()
    names = recorded[0][0] or [] if recorded else []
    columns = np.stack(slots["features"]) if len(slots) else np.empty((0, len(names)))
    place = slots.columns.get_loc("features")
    slots = slots.drop(columns="features")
    for i, name in enumerate(names):
        slots.insert(place + i, name, columns[:, i])
    return slots


def _blocks(con: duckdb.DuckDBPyConnection, run: str) -> pd.DataFrame:
    return pd.DataFrame(queries.blocks(con, run))


AS_STORED = (
    "steps", "coefficients", "calibration", "engine_samples", "requests", "cost_samples", "cost_tables", "events"
)  # fmt: skip
FRAMES: dict[str, Callable[[duckdb.DuckDBPyConnection, str], pd.DataFrame]] = {
    **{name: _whole(name) for name in AS_STORED},
    "positions": _positions,
    "drafts": _drafts,
    "blocks": _blocks,
}
