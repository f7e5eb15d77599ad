"""A database in a notebook: `avlab.open(path).run(id).steps` is a data frame. Reading only.

The file is read, or the lab that holds it is asked, whichever it is: a run may go on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pandas as pd

from avlab import temporary
from avlab.errors import cause
from avlab.lab.owner import OwnerError, ask
from avlab.lab.reach import open_or_ask
from avlab.store import frames, queries
from avlab.store.database import connect_reader
from avlab.store.errors import StoreError, said

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")


class Source(Protocol):
    """Where a notebook's tables come from."""

    def runs(self) -> pd.DataFrame: ...

    def find(self, run: str) -> str:
        """A run's whole id. Raises UnknownRun."""
        ...

    def frame(self, run: str, name: str) -> pd.DataFrame: ...

    def summary(self, run: str, arm: str | None) -> dict[str, Any]: ...

    def close(self) -> None: ...


class File:
    """A file that nobody writes, or this process does."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path, self._con = path, connect_reader(path)

    def _read(self, question: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        with said(self._path):
            return question(self._con)

    def runs(self) -> pd.DataFrame:
        return self._read(lambda con: pd.DataFrame(queries.runs(con)))

    def find(self, run: str) -> str:
        return self._read(lambda con: queries.find_run(con, run))

    def frame(self, run: str, name: str) -> pd.DataFrame:
        return self._read(lambda con: frames.frame(con, run, name))

    def summary(self, run: str, arm: str | None) -> dict[str, Any]:
        return self._read(lambda con: queries.run_summary(con, run, arm))

    def close(self) -> None:
        self._con.close()


class AskedLab:
    """The lab that holds the file. Tables come as files of a folder that is there for as long as one is read."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        self._ask("runs")  # whether it answers

    def _ask(self, question: str, **arguments: Any) -> Any:
        return ask(self._path, question, **arguments)

    def runs(self) -> pd.DataFrame:
        return pd.DataFrame(self._ask("runs"))

    def find(self, run: str) -> str:
        try:
            return str(self._ask("find", run=run))
        except OwnerError as error:
            raise StoreError(str(error)) from None

    def frame(self, run: str, name: str) -> pd.DataFrame:
        with temporary.folder() as folder:
            file = folder / f"{name}.parquet"
            self._ask("frame", run=run, name=name, file=str(file))
            try:
                return pd.read_parquet(file)
            except (OSError, ValueError) as error:
                raise StoreError(
                    f"The lab's table {name} could not be read ({cause(error)}): ask again."
                ) from None

    def summary(self, run: str, arm: str | None) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("summary", run=run, arm=arm)
        return found

    def close(self) -> None:
        pass


class Run:
    """One run's tables as pandas data frames, read anew each time they are asked for."""

    def __init__(self, source: Source, run: str):
        self._source, self.id = source, run

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def summary(self, arm: str | None = None) -> dict[str, Any]:
        """The headline numbers, as `avlab show --json` prints them; of one arm if asked."""
        return self._source.summary(self.id, arm)

    @property
    def steps(self) -> pd.DataFrame:
        """One row a step; scheduled, admitted, accepted and labelled are arrays with one entry a position."""
        return self._source.frame(self.id, "steps")

    @property
    def positions(self) -> pd.DataFrame:
        """One row a step and position: step, block, position, scheduled, admitted, accepted, labelled."""
        return self._source.frame(self.id, "positions")

    @property
    def coefficients(self) -> pd.DataFrame:
        """One row a refit and position: arm, block, refit, step, time, position, slope, intercept, counts."""
        return self._source.frame(self.id, "coefficients")

    @property
    def calibration(self) -> pd.DataFrame:
        """One row a window, source, position and log-odds bin: count, positives and the three sums."""
        return self._source.frame(self.id, "calibration")

    @property
    def drafts(self) -> pd.DataFrame:
        """One row a raw draft slot that was kept, one column a feature; label is missing where censored."""
        return self._source.frame(self.id, "drafts")

    @property
    def engine_samples(self) -> pd.DataFrame:
        """One row an interval and engine of a watched server; empty in runs of the lab's own engine."""
        return self._source.frame(self.id, "engine_samples")

    @property
    def requests(self) -> pd.DataFrame:
        """One row a request that ended; times are seconds on the run's clock."""
        return self._source.frame(self.id, "requests")

    @property
    def cost_samples(self) -> pd.DataFrame:
        """One row a timed sample of a cost profile: phase, size, milliseconds, depth of a draft."""
        return self._source.frame(self.id, "cost_samples")

    @property
    def cost_tables(self) -> pd.DataFrame:
        """One row a size of the cost tables made of the samples: phase, size, milliseconds, depth of a draft."""
        return self._source.frame(self.id, "cost_tables")

    @property
    def blocks(self) -> pd.DataFrame:
        """One row a block, with its own rates."""
        return self._source.frame(self.id, "blocks")

    @property
    def events(self) -> pd.DataFrame:
        """One row an event, the worker's and the lab's own."""
        return self._source.frame(self.id, "events")


class Lab:
    """A database open for reading. Use as a context manager, or `close` it: while a file is read here, no lab can write
    it.
    """

    def __init__(self, source: Source):
        self._source = source

    def runs(self) -> pd.DataFrame:
        """One row a run, newest first."""
        return self._source.runs()

    def run(self, run: str = "last") -> Run:
        """One run, by its id, the beginning or end of it, or "last". Raises StoreError where none answers to it."""
        return Run(self._source, self._source.find(run))

    def close(self) -> None:
        """Gives the file free."""
        self._source.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open(path: str | os.PathLike[str]) -> Lab:  # the name that reads well as avlab.open
    """Opens a database for reading, or asks the lab that holds it.

    Raises DatabaseHeld, naming the owner, while another process writes it that is no lab; SchemaError for a foreign
    file; StoreError where there is none.
    """

    def here() -> Source:
        return File(path)

    def there() -> Source:
        return AskedLab(path)

    return Lab(open_or_ask(Path(path), here, there))
