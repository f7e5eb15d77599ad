"""What can go wrong with the database, said in one sentence: what was asked, what was found, what to do."""

import contextlib
from collections.abc import Iterator

from avlab.errors import cause


class StoreError(Exception):
    """Base of every error of the store. Page and command line show its message as it is."""


class DatabaseHeld(StoreError):
    """Another process holds the file."""


class SchemaError(StoreError):
    """The file is not one of ours, or is of a schema version that this code cannot use."""


class DamagedLog(StoreError):
    """The file that holds what is not yet in the database's own is damaged."""


class RecorderError(StoreError):
    """Frames could not be committed. Nothing that was acknowledged is affected."""


class NoDatabase(StoreError):
    """There is no file at the path."""


class UnknownRun(StoreError):
    """No run, or more than one, answers to the given id."""


class DamagedRun(StoreError):
    """A run holds a value that no run has, where something is to be made of it."""


class NoCosts(StoreError):
    """A run without timed steps was asked for their costs."""


class TransferError(StoreError):
    """A folder could not be exported to or imported from."""


@contextlib.contextmanager
def said(database: object) -> Iterator[None]:
    """The one door of every query's errors: what DuckDB raises inside becomes a StoreError that names the file."""
    import duckdb  # not at the top: the command line knows these errors and starts without the database

    try:
        yield
    except UnicodeDecodeError as error:
        raise _unreadable(database, error) from None
    except duckdb.InterruptException:
        raise StoreError(f"{database} was closed while it was read: ask again.") from None
    except duckdb.Error as error:
        raise _unreadable(database, error) from None


def _unreadable(database: object, error: Exception) -> StoreError:
    return StoreError(
        f"{database} cannot be read here ({cause(error)}): it is damaged, or its disk fails. Keep a copy of it; "
        "`avlab export` may still read its other runs."
    )
