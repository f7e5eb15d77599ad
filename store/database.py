"""Who may open a database file: one owner, who writes; or any number of readers while there is no owner."""

import contextlib
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from avlab.errors import cause, not_written, remedy
from avlab.store import log, schema
from avlab.store.errors import DamagedLog, DatabaseHeld, NoDatabase, SchemaError, StoreError, said

# One thread and a bounded memory: the database shares its machine with the engine that is being measured.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": "1GB"}

# The last word on each run that has one. A run without, or with "resumed", is running while its file has an
# owner, and was cut short otherwise.
LAST_STATE = (
    "SELECT run, arg_max(kind, rowid) AS state, arg_max(text, rowid) AS reason, arg_max(time, rowid) AS time "
    "FROM events WHERE origin = 'lab' AND kind IN ('finished', 'stopped', 'failed', 'cut short', 'resumed') "
    "GROUP BY run"
)

CLOSE_SECONDS = 5.0  # for what other threads still ask to end, interrupted

MAGIC, MAGIC_AT = b"DUCK", 8  # of every DuckDB file, and the byte where it stands

_owned: dict[Path, "Database"] = {}
_guard = threading.Lock()


class Database:
    """A database file held for writing by this process, until `close`. Use as a context manager.

    Makes the file where there is none and migrates an older one. Runs that an earlier owner left without an
    ending are marked "cut short", for nobody else can be writing them. `notes` says what was found damaged and set
    aside. Raises DatabaseHeld, SchemaError or StoreError.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = _resolved(path)
        self.notes: list[str] = []
        self._cursors: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
        self._making = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(not_written(self.path.parent, error)) from None
        _refuse_foreign(self.path)
        self._lock = _take_lock(self.path)
        try:
            if (at := log.damage(log.path_of(self.path))) is not None:
                self.notes.append(log.set_aside(log.path_of(self.path), at))
            try:
                self._con = _connect(self.path, read_only=False)
            except DamagedLog:
                self.notes.append(log.set_aside(log.path_of(self.path), 0))
                self._con = _connect(self.path, read_only=False)
            try:
                with said(self.path):
                    schema.prepare(self._con)
                    self._mark_cut_short()
            except BaseException:
                self._con.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        with _guard:
            _owned[self.path] = self

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own for one thread; never share one between threads. Closed by `close` too."""
        with self._making:
            made = self._con.cursor()
            self._cursors.add(made)
        return made

    @contextlib.contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for the calling thread, closed afterwards; what goes wrong within is said. Raises StoreError."""
        with said(self.path), self.cursor() as con:
            yield con

    def close(self, replacement: Path | None = None) -> None:
        """Checkpoints, closes the file and gives the lock back. Closing twice does nothing.

        What other threads still ask is interrupted.
        replacement: a closed database file of the same folder that takes this one's place while it is locked.
        Raises StoreError, and leaves the file, when that cannot be done safely.
        """
        with _guard:
            if _owned.pop(self.path, None) is None:
                return
        try:
            with contextlib.suppress(duckdb.Error):  # a full disk: the log stays, and is replayed on opening
                self._con.execute("CHECKPOINT")
            self._close_connection()
            if replacement is not None:
                self._replace(replacement)
        finally:
            self._lock.release()

    def _close_connection(self) -> None:
        """Close it and its cursors; DuckDB closes none while one is in use. Raises StoreError."""
        deadline = time.monotonic() + CLOSE_SECONDS
        while True:
            try:
                self._con.close()
                return
            except duckdb.OperationalError:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self.path} could not be closed while it is read: end this process."
                    ) from None
            with self._making:
                asked = list(self._cursors)
            for cursor in asked:
                with contextlib.suppress(duckdb.Error):
                    cursor.interrupt()
            time.sleep(0.02)

    def _replace(self, replacement: Path) -> None:
        if self.path.with_name(self.path.name + ".wal").exists():  # it would be replayed into the new file
            raise StoreError(f"{self.path} has a log that could not be written out: free disk space first.")
        with replacement.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(replacement, self.path)

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _mark_cut_short(self) -> None:
        open_runs = self._con.execute(
            f"SELECT run::VARCHAR FROM runs LEFT JOIN ({LAST_STATE}) AS last USING (run) "
            "WHERE last.state IS NULL OR last.state = 'resumed'"
        ).fetchall()
        for (run,) in open_runs:
            append_event(self._con, run, "cut short", "The lab ended before the run did.", level="warning")


def append_event(
    con: duckdb.DuckDBPyConnection,
    run: str,
    kind: str,
    text: str,
    level: str = "info",
) -> None:
    """Appends one event of the lab's own to a run."""
    con.execute(
        "INSERT INTO events BY NAME SELECT ?::UUID AS run, 'lab' AS origin, ? AS level, ? AS kind, "
        "? AS text, ?::DOUBLE AS wall",
        [run, level, kind, text, time.time()],
    )


def connect_reader(path: str | os.PathLike) -> duckdb.DuckDBPyConnection:
    """A read-only connection to a file that nobody writes, or a cursor where this process is the owner.

    Raises DatabaseHeld when another process owns the file, SchemaError for a foreign, older or newer one, and
    StoreError where there is no file.
    """
    path = _resolved(path)
    with _guard:
        owned = _owned.get(path)
    if owned is not None:
        return owned.cursor()
    if not path.is_file():
        raise NoDatabase(f"There is no database at {path}: `avlab run` makes one, or give another path.")
    if (at := log.damage(log.path_of(path))) is not None:
        log.refuse(log.path_of(path), at)
    con = _connect(path, read_only=True)
    try:
        with said(path):
            schema.require_current(con)
    except BaseException:
        con.close()
        raise
    return con


def owner_of(path: str | os.PathLike) -> str | None:
    """Who holds this database for writing, as "PID 12, since 2026-01-31 09:00:00"; None if nobody does."""
    lock_path = _lock_path(Path(path).expanduser().resolve())
    if not lock_path.exists():
        return None
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return lock_path.read_text().strip() or "another process"
    lock.release()
    return None


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


@contextlib.contextmanager
def reading(path: str | os.PathLike) -> Iterator[duckdb.DuckDBPyConnection]:
    """As `connect_reader`, closed afterwards; what goes wrong within is said too."""
    with connect_reader(path) as con, said(Path(path).expanduser().resolve()):
        yield con


def _resolved(path: str | os.PathLike) -> Path:
    """The real path of a file. Raises StoreError for a name that DuckDB does not take as it stands."""
    if wrong := next((sign for sign in "?\0" if sign in str(path)), None):
        raise StoreError(
            f"{str(path)!a} holds the character {wrong!a}, at which DuckDB would cut the name off: choose "
            "another name."
        )
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise StoreError(f"{str(path)!a} is no path of a file ({cause(error)}).") from None


def _refuse_foreign(path: Path) -> None:
    """Raise StoreError for a folder and for a file that is none of DuckDB's, before anything is put beside it."""
    if os.path.isdir(path):
        raise StoreError(f"{path} is a folder: give a file in it, such as {path / 'lab.duckdb'}.")
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC) + MAGIC_AT)
    except OSError:  # none yet, or none that may be read: opening it will tell
        return
    if head and head[MAGIC_AT:] != MAGIC:
        raise SchemaError(f"{path} is not a DuckDB file: choose another file.")


def _take_lock(path: Path) -> FileLock:
    with _guard:
        if path in _owned:
            raise DatabaseHeld(f"{path} is already open for writing in this process: close it first.")
    lock_path = _lock_path(path)
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise held_error(path, lock_path.read_text().strip()) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be locked: {not_written(lock_path, error)}") from None
    try:
        lock_path.write_text(f"PID {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
    except OSError as error:
        lock.release()
        raise StoreError(not_written(lock_path, error)) from None
    return lock


def held_error(path: Path, owner: str) -> DatabaseHeld:
    """The sentence for a file that another process holds."""
    return DatabaseHeld(
        f"{path} is held by another process ({owner or 'it left no name'}): close it, or choose another file."
    )


def _connect(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(path), read_only=read_only, config=SETTINGS)
    except duckdb.IOException as error:
        text = str(error)
        if "set lock on file" in text:
            found = re.search(r"PID \d+", text)
            pid, owner = found[0] if found else "", owner_of(path) or ""
            # the lock file names this very process, where a reader that takes no lock is in the way
            raise held_error(path, owner if owner.startswith(f"{pid},") else pid) from None
        if "not a valid DuckDB" in text:
            raise SchemaError(f"{path} is not a DuckDB file: choose another file.") from None
        if log.is_cause(error):
            raise DamagedLog(log.unread(log.path_of(path))) from None
        raise StoreError(f"{path} could not be opened ({cause(error)}): {remedy(error)}.") from None
    except duckdb.ConnectionException:
        raise DatabaseHeld(f"{path} is already open for reading in this process: close that first.") from None
    except duckdb.Error as error:
        if log.is_cause(error):
            raise DamagedLog(log.unread(log.path_of(path))) from None
        raise StoreError(f"{path} could not be opened ({cause(error)}): choose another file.") from None
