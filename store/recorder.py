"""The one writer: takes frames, commits them in batches, and says up to which frame all is safely stored."""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from avlab.errors import cause
from avlab.store import recorded
from avlab.store.database import LAST_STATE, Database, append_event
from avlab.store.errors import RecorderError
from avlab.store.rows import event_row, rows_of
from avlab.wire.codec import UNNUMBERED, Envelope
from avlab.wire.frames import Bye, Hello

FLUSH_SECONDS = 1.0  # chosen here: see BATCH_SECONDS in avlab/lab/inbox.py
FLUSH_ROWS = 65_536  # chosen here: about half a row group
PENDING_ROWS = 4 * FLUSH_ROWS  # what may wait in memory while commits fail


@dataclass(slots=True)
class _Pending:
    """What one run has in memory, and how far it has come."""

    committed: int | None  # highest sequence number in the file
    received: int | None  # highest sequence number in the file or in memory
    keep_text: bool = False
    ended: bool = False
    owes_acknowledgement: bool = False
    rows: int = 0
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)

    def add(self, table: str, rows: pa.Table) -> None:
        if rows.num_rows:
            self.tables.setdefault(table, []).append(rows)
            self.rows += rows.num_rows


class Recorder:
    """Takes `Envelope`s and commits them; safe to call from several threads, though one is usual.

    database: a path, which the recorder then opens and closes, or a `Database` that the caller owns.
    acknowledge: called as acknowledge(run, sequence) after each commit: every frame of that run up to
    `sequence` is in the file, and stays there whatever happens to this process.
    A batch is committed by the first `record` after `flush_seconds` or `flush_rows`; call `flush` when no
    frame comes. Raises DatabaseHeld or SchemaError on opening.
    """

    def __init__(
        self,
        database: Database | str | os.PathLike,
        acknowledge: Callable[[str, int], None] | None = None,
        flush_seconds: float = FLUSH_SECONDS,
        flush_rows: int = FLUSH_ROWS,
    ):
        self._owns = not isinstance(database, Database)
        self.database = database if isinstance(database, Database) else Database(database)
        self._con = self.database.cursor()
        self._acknowledge = acknowledge or (lambda run, sequence: None)
        self._flush_seconds, self._flush_rows = flush_seconds, flush_rows
        self._runs: dict[str, _Pending] = {}
        self._lock = threading.RLock()
        self._oldest: float | None = None  # monotonic time of the oldest frame that is not committed
        self._closed = False

    def record(self, envelope: Envelope) -> None:
        """Takes one frame, and commits the batch when it is due.

        A frame that was already taken is ignored (and acknowledged again); a gap in the numbers, or a frame
        that fits no table, becomes an event of the run. Raises RecorderError when a commit fails, as `flush`
        does, and for a run id that is no UUID. After an error the same frame may be given again: it is
        recorded once. An unnumbered frame is not recorded.
        """
        if envelope.sequence == UNNUMBERED:
            return
        with self._lock:
            if self._waiting_rows() >= max(PENDING_ROWS, self._flush_rows):
                self.flush()
            pending = self._pending(envelope.run)
            if self._oldest is None:
                self._oldest = time.monotonic()
            if pending.received is not None and envelope.sequence <= pending.received:
                pending.owes_acknowledgement = True
            else:
                self._take(pending, envelope)
            late = time.monotonic() - self._oldest >= self._flush_seconds
            if late or self._waiting_rows() >= self._flush_rows or isinstance(envelope.frame, Bye):
                self.flush()

    def flush(self) -> dict[str, int]:
        """Commits what waits, acknowledges it, and returns the highest committed sequence number by run.

        Raises RecorderError when the commit fails (a full disk, say). What was committed before is intact,
        what waits is kept, and the next `flush` or due `record` tries again.
        """
        with self._lock:
            fresh = [run for run, p in self._runs.items() if p.tables or p.received != p.committed]
            if fresh:
                self._commit(fresh)
            self._oldest = None
            due = [run for run, p in self._runs.items() if run in fresh or p.owes_acknowledgement]
            for run in due:
                pending = self._runs[run]
                pending.owes_acknowledgement = False
                if pending.committed is not None:
                    self._acknowledge(run, pending.committed)
            return {run: p.committed for run, p in self._runs.items() if p.committed is not None}

    def committed(self, run: str) -> int | None:
        """Highest committed sequence number of a run, None if it has none."""
        with self._lock:
            return self._pending(run).committed

    def received(self, run: str) -> int | None:
        """Highest sequence number taken of a run, committed or not; the next frame should be one higher."""
        with self._lock:
            return self._pending(run).received

    def end(self, run: str, reason: str) -> None:
        """Commits what waits, then marks a run "cut short" whose worker went away without a goodbye.

        Does nothing for a run that has already ended. Raises RecorderError like `flush`.
        """
        with self._lock:
            pending = self._pending(run)
            self.flush()
            if not pending.ended:
                try:
                    append_event(self._con, run, "cut short", reason, level="warning")
                except duckdb.Error as error:
                    raise self._refused(error) from error
                pending.ended = True

    def close(self) -> None:
        """Commits what waits and closes. Closing twice does nothing. Raises RecorderError like `flush`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self.flush()
            finally:
                self._con.close()
                if self._owns:
                    self.database.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _waiting_rows(self) -> int:
        return sum(pending.rows for pending in self._runs.values())

    def _pending(self, run: str) -> _Pending:
        if run not in self._runs:
            try:
                uuid.UUID(run)
            except ValueError:
                raise RecorderError(
                    f"A frame names the run {run!r}, which is no UUID: it was not recorded."
                ) from None
            last, state, config = self._con.execute(
                "SELECT (SELECT max(sequence) FROM commits WHERE run = $run::UUID), "
                f"(SELECT any_value(state) FROM ({LAST_STATE}) WHERE run = $run::UUID), "
                "(SELECT any_value(config) FROM runs WHERE run = $run::UUID)",
                {"run": run},
            ).fetchall()[0]
            self._runs[run] = _Pending(
                committed=last,
                received=last,
                keep_text=recorded.settings(config).get("keep_text") is True,
                ended=state is not None and state != "resumed",
            )
        return self._runs[run]

    def _take(self, pending: _Pending, envelope: Envelope) -> None:
        sequence, frame, wall = envelope.sequence, envelope.frame, time.time()
        if isinstance(frame, Hello):
            pending.keep_text = bool(frame.config.get("keep_text"))
        if pending.received is not None and sequence != pending.received + 1:
            text = f"Frames {pending.received + 1} to {sequence - 1} never arrived."
            pending.add("events", event_row("gap", text, "warning", wall))
        elif pending.received is None and not isinstance(frame, Hello):
            text = (
                f"The first frame to arrive is number {sequence}, not a greeting: nothing describes this run."
            )
            pending.add("events", event_row("gap", text, "warning", wall))
        if pending.ended:
            pending.add("events", event_row("resumed", "The worker spoke again.", "info", wall))
        try:
            for table, rows in rows_of(frame, sequence, wall, pending.keep_text).items():
                pending.add(table, rows)
        except (ValueError, TypeError, OverflowError) as error:  # ArrowInvalid is a ValueError
            text = f"Frame {sequence} ({type(frame).__name__}) does not fit and was left out: {error}"
            pending.add("events", event_row("damaged frame", text, "error", wall))
        pending.received, pending.ended = sequence, isinstance(frame, Bye)

    def _refused(self, error: duckdb.Error) -> RecorderError:
        return RecorderError(
            f"{self.database.path} takes no more rows ({cause(error)}): what was recorded before is intact; free disk "
            "space, and recording goes on."
        )

    def _commit(self, runs: list[str]) -> None:
        con, wall = self._con, time.time()
        try:
            con.execute("BEGIN")
            for run in runs:
                pending = self._runs[run]
                for table, chunks in pending.tables.items():
                    batch = pa.concat_tables(chunks)  # noqa: F841  found by its name: half the time of registering it
                    con.execute(f"INSERT INTO {table} BY NAME SELECT ?::UUID AS run, * FROM batch", [run])
                con.execute("INSERT INTO commits VALUES (?::UUID, ?, ?)", [run, pending.received, wall])
            con.execute("COMMIT")
        except duckdb.Error as error:
            with contextlib.suppress(duckdb.Error):  # a failed commit has already rolled back
                con.execute("ROLLBACK")
            raise self._refused(error) from error
        for run in runs:
            pending = self._runs[run]
            pending.committed, pending.tables, pending.rows = pending.received, {}, 0
