"""A run's rows as the pages know them: read once, then only what came after the last row seen."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from avlab.store import queries

Columns = Mapping[str, np.ndarray]

STEP_POINTS = 1200  # a trace of a step's numbers; charts draw at most this many
POSITION_POINTS = 300  # times K rows
WINDOWS = 60  # of calibration, each up to K x 128 bins for every source
REQUESTS_KEPT = 4000
RECENT_STEPS = 4000  # over which costs are compared with the profile
FRESH_SECONDS = 0.5  # several browsers that ask within this time share one reading
SLOW_SECONDS = 4.0  # for what is read anew rather than continued


def columns(table: pa.Table | None) -> dict[str, np.ndarray]:
    """An Arrow table as numpy columns; numbers that are missing become nan."""
    if table is None:
        return {}
    return {name: table[name].to_numpy() for name in table.column_names}


def continued(old: pa.Table | None, ask: Callable[[int], pa.Table], number: str = "step") -> pa.Table | None:
    """A bucketed trace brought up to date.

    ask: the query, given the last `number` seen (-1: from the beginning). The bucket it begins with replaces the
    one that was there; when the buckets have become wider the trace is read once more from the beginning.
    """
    if old is None or not old.num_rows:
        return ask(-1)
    fresh = ask(pc.max(old[number]).as_py())
    if not fresh.num_rows:
        return old
    if fresh["width"][0].as_py() != old["width"][0].as_py():
        return ask(-1)
    first = pc.min(fresh["bucket"]).as_py()
    return pa.concat_tables([old.filter(pc.less(old["bucket"], first)), fresh]).combine_chunks()


def appended(old: pa.Table | None, ask: Callable[[int], pa.Table], most: int | None = None) -> pa.Table:
    """Rows that are only ever added, brought up to date; at most the last `most` of them."""
    if old is None or not old.num_rows:
        found = ask(-1)
    else:
        found = pa.concat_tables([old, ask(pc.max(old["row"]).as_py())]).combine_chunks()
    return found.slice(max(0, found.num_rows - most)) if most else found


class Feed:
    """One run's rows. Safe to use from several threads; what it hands out is never changed afterwards."""

    def __init__(self, run: str):
        self.run = run
        self.blocks: list[dict[str, Any]] = []
        self._tables: dict[Any, pa.Table | None] = {}
        self._columns: dict[Any, tuple[pa.Table, dict[str, np.ndarray]]] = {}
        self._slow: dict[Any, tuple[float, Any]] = {}
        self._answers: dict[Any, tuple[Any, Any]] = {}
        self._read = -np.inf  # monotonic
        self._over = False  # whether it was read since the run ended
        self._lock = threading.RLock()

    def refresh(self, con: duckdb.DuckDBPyConnection, live: bool = True) -> None:
        """Read what every page needs; a moment later it does nothing.

        live: more rows may come. A page that sees a run's end draws once more and not again, so the first reading after
        it takes nothing of what was read before for the last word.
        """
        with self._lock:
            ended = not live and not self._over
            if ended:
                self._slow.clear()
            elif time.monotonic() - self._read < FRESH_SECONDS:
                return
            self._over = not live
            run, tables = self.run, self._tables
            tables["steps"] = continued(
                tables.get("steps"), lambda after: queries.steps_since(con, run, after, STEP_POINTS)
            )
            tables["events"] = appended(
                tables.get("events"), lambda after: queries.events_since(con, run, after)
            )
            self.blocks = queries.block_list(con, run)
            self._read = time.monotonic()

    @property
    def steps(self) -> Columns:
        """Bucketed steps, as `queries.steps_since` gives them."""
        return self._as_columns("steps")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The run's events, oldest first."""
        table = self._tables.get("events")
        return [] if table is None else table.to_pylist()

    def positions(self, con: duckdb.DuckDBPyConnection) -> Columns:
        """Bucketed draft slots by position, as `queries.positions_since` gives them."""
        return self._trace(
            "positions", lambda after: queries.positions_since(con, self.run, after, POSITION_POINTS)
        )

    def engine_samples(self, con: duckdb.DuckDBPyConnection) -> Columns:
        """Bucketed intervals of a watched server's engines, as `queries.engine_samples_since` gives them."""
        return self._trace(
            "engines", lambda after: queries.engine_samples_since(con, self.run, after, STEP_POINTS)
        )

    def calibration(
        self,
        con: duckdb.DuckDBPyConnection,
        workload: str | None = None,
        temperature: float | None = None,
        kinds: Sequence[str] = ("serve", "window"),
    ) -> Columns:
        """Calibration sums by window, optionally of one class of requests; over blocks of these kinds."""

        def ask(after: int) -> pa.Table:
            return queries.calibration_rows(con, self.run, None, after, workload, temperature, kinds, WINDOWS)

        return self._trace(("calibration", workload, temperature, kinds), ask, "window")

    def refits(self, con: duckdb.DuckDBPyConnection) -> Columns:
        """Coefficients, one row a refit and position."""
        return self._rows("refits", lambda after: queries.refits_since(con, self.run, after))

    def requests(self, con: duckdb.DuckDBPyConnection) -> Columns:
        """The last requests that ended."""
        return self._rows(
            "requests", lambda after: queries.requests_since(con, self.run, after), REQUESTS_KEPT
        )

    def now_and_then(self, name: Any, ask: Callable[[], Any]) -> Any:
        """What `ask` gave, at most some seconds ago."""
        with self._lock:
            when, found = self._slow.get(name, (-np.inf, None))
            if time.monotonic() - when > SLOW_SECONDS:
                found = ask()
                self._slow[name] = (time.monotonic(), found)
            return found

    def as_of(self, name: Any, version: Any, ask: Callable[[], Any]) -> Any:
        """What `ask` gave when the version was last another: for answers that change only with it."""
        with self._lock:
            known = self._answers.get(name)
            if known is None or known[0] != version:
                known = self._answers[name] = (version, ask())
            return known[1]

    def last_step(self) -> int:
        """The highest step number seen, -1 before the first."""
        table = self._tables.get("steps")
        return -1 if table is None or not table.num_rows else int(pc.max(table["step"]).as_py())

    def _trace(self, name: Any, ask: Callable[[int], pa.Table], number: str = "step") -> Columns:
        with self._lock:
            self._tables[name] = continued(self._tables.get(name), ask, number)
            return self._as_columns(name)

    def _rows(self, name: Any, ask: Callable[[int], pa.Table], most: int | None = None) -> Columns:
        with self._lock:
            self._tables[name] = appended(self._tables.get(name), ask, most)
            return self._as_columns(name)

    def _as_columns(self, name: Any) -> Columns:
        with self._lock:
            table = self._tables.get(name)
            known = self._columns.get(name)
            if table is None:
                return {}
            if known is None or known[0] is not table:
                known = (table, columns(table))
                self._columns[name] = known
            return known[1]
