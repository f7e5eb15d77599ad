"""A database in a notebook: `avlab.open(path).run(id).steps` is a data frame. Reading only."""

import os

import numpy as np
import pandas as pd

from avlab.store import queries
from avlab.store.database import connect_reader
from avlab.store.traces import table


class Run:
    """One run's tables as pandas data frames, read anew each time they are asked for."""

    def __init__(self, con, run: str):
        self._con, self.id = con, run

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def _frame(self, name: str) -> pd.DataFrame:
        sql = f"SELECT * EXCLUDE (run) FROM {name} WHERE run = $run::UUID ORDER BY rowid"
        return table(self._con, sql, {"run": self.id}).to_pandas()

    def summary(self, arm: str | None = None) -> dict:
        """The headline numbers, as `avlab show --json` prints them; of one arm if asked."""
        return queries.run_summary(self._con, self.id, arm)

    @property
    def steps(self) -> pd.DataFrame:
        """One row a step; scheduled, admitted, accepted and labelled are arrays with one entry a position."""
        return self._frame("steps")

    @property
    def positions(self) -> pd.DataFrame:
        """One row a step and position: step, block, position, scheduled, admitted, accepted, labelled."""
        everything = max(queries.last_step(self._con, self.id) + 1, 1)
        found = queries.positions_since(self._con, self.id, max_points=everything).to_pandas()
        return found.drop(columns=["bucket", "width"])

    @property
    def coefficients(self) -> pd.DataFrame:
        """One row a refit and position: arm, block, refit, step, time, position, slope, intercept, counts."""
        return self._frame("coefficients")

    @property
    def calibration(self) -> pd.DataFrame:
        """One row a window, source, position and log-odds bin: count, positives and the three sums."""
        return self._frame("calibration")

    @property
    def drafts(self) -> pd.DataFrame:
        """One row a raw draft slot that was kept, one column a feature; label is missing where censored."""
        slots = self._frame("drafts")
        recorded = self._con.execute("SELECT features FROM runs WHERE run = ?::UUID", [self.id]).fetchall()
        names = recorded[0][0] or [] if recorded else []
        columns = np.stack(slots["features"]) if len(slots) else np.empty((0, len(names)))
        place = slots.columns.get_loc("features")
        slots = slots.drop(columns="features")
        for i, name in enumerate(names):
            slots.insert(place + i, name, columns[:, i])
        return slots

    @property
    def engine_samples(self) -> pd.DataFrame:
        """One row an interval and engine of a watched server; empty in runs of the lab's own engine."""
        return self._frame("engine_samples")

    @property
    def requests(self) -> pd.DataFrame:
        """One row a request that ended; times are seconds on the run's clock."""
        return self._frame("requests")

    @property
    def cost_samples(self) -> pd.DataFrame:
        """One row a timed sample of a cost profile: phase, size, milliseconds, depth of a draft."""
        return self._frame("cost_samples")

    @property
    def cost_tables(self) -> pd.DataFrame:
        """One row a size of the cost tables made of the samples: phase, size, milliseconds, depth of a draft."""
        return self._frame("cost_tables")

    @property
    def blocks(self) -> pd.DataFrame:
        """One row a block, with its own rates."""
        return pd.DataFrame(queries.blocks(self._con, self.id))

    @property
    def events(self) -> pd.DataFrame:
        """One row an event, the worker's and the lab's own."""
        return self._frame("events")


class Lab:
    """A database open for reading. Use as a context manager, or `close` it: nobody can write it meanwhile."""

    def __init__(self, path: str | os.PathLike):
        self._con = connect_reader(path)

    def runs(self) -> pd.DataFrame:
        """One row a run, newest first."""
        return pd.DataFrame(queries.runs(self._con))

    def run(self, run: str = "last") -> Run:
        """One run, by its id, the beginning or end of it, or "last". Raises UnknownRun."""
        return Run(self._con, queries.find_run(self._con, run))

    def close(self) -> None:
        """Gives the file free."""
        self._con.close()

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def open(path: str | os.PathLike) -> Lab:  # the name that reads well as avlab.open
    """Opens a database for reading.

    Raises DatabaseHeld, naming the owner, while another process writes it; SchemaError for a foreign file;
    StoreError where there is none.
    """
    return Lab(path)
