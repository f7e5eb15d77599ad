"""The lab that the dashboard's server owns: opened when the server starts, closed when it ends.

It belongs to the process, not to a browser's session or a script's run, so reruns, closed tabs and further browsers
leave it alone.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import streamlit as st

from avlab import plugins, sample, story
from avlab.config import RunConfig, default_database
from avlab.errors import is_ours
from avlab.kinds.base import Config
from avlab.lab import recording_job
from avlab.lab.lab import Lab
from avlab.store import queries, retention
from avlab.store.errors import StoreError
from avlab.store.feeds import Feed
from avlab.ui import streamlit_repairs
from avlab.wire.commands import Experiment

FEEDS_KEPT = 8  # runs whose rows stay in memory; each is some megabytes
M_ARENA_MAX, HEAPS = -8, 2  # of glibc's malloc.h; two threads seldom allocate at once here
STILL = "AVLAB_STORY"  # the environment variable that, as "no", lets a first visit start nothing

_lab: Lab | None = None
_problem = ""
_last: tuple[Config, Experiment | None] | None = None
_has_deleted = False
_unvisited = False  # whether the next visit is the first one to a database that holds the shipped runs alone
_feeds: dict[str, Feed] = {}
_lock = threading.RLock()


def open_lab(
    path: Path | None = None,
    worker_commands: Mapping[str, Sequence[str]] | None = None,
    with_sample: bool = False,
) -> None:
    """Open the lab, or keep the sentence that says why it could not be opened.

    with_sample: put the runs that ship with the project into a database that is still empty; a first visit to one that
    holds nothing else then begins with a replay (`avlab.story`).
    """
    global _lab, _problem, _unvisited
    with _lock:
        if _lab is not None:
            return
        try:
            plugins.load_named()
            _lab, _problem = Lab(path or default_database(), worker_commands=worker_commands), ""
            if with_sample:
                sample.add(_lab.database)
                known = {run["run_id"] for run in run_list()}
                _unvisited = os.environ.get(STILL) != "no" and known <= set(sample.shipped())
        except Exception as error:
            if not is_ours(error):
                raise
            _problem = str(error)
            print(_problem, file=sys.stderr)


def close_lab() -> None:
    """Stop the worker and give the file free; without the runs that were deleted meanwhile."""
    global _lab, _last, _has_deleted
    with _lock:
        lab, _lab, _last = _lab, None, None
        compact, _has_deleted = _has_deleted, False
        _feeds.clear()
    recording_job.stop()
    if lab is not None:
        lab.close()
        if compact:
            with contextlib.suppress(StoreError):  # no room, or somebody reads the file: another time
                retention.compact(lab.database.path)


def deleted() -> None:
    """A run was deleted: the file is to be rewritten without it when the lab closes."""
    global _has_deleted
    _has_deleted = True


@contextlib.asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[dict[str, object]]:
    """Start and end of the server."""
    streamlit_repairs.make()
    _share_heaps()
    open_lab(with_sample=True)
    try:
        yield {}
    finally:
        await asyncio.to_thread(close_lab)


def _share_heaps() -> None:
    """Have all threads share a few heaps, where the C library can (glibc): it gives each new thread one of its own, and
    every visit, tick and query has a thread, so that the process would grow by what lies idle in each.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, HEAPS)


def problem() -> str:
    """Why there is no lab, as a sentence; "" when there is one."""
    return "" if _lab is not None else _problem or "The lab is not open."


def lab() -> Lab:
    """The server's lab. Only where `problem` is ""."""
    assert _lab is not None
    return _lab


@contextlib.contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for the calling thread, closed afterwards."""
    with lab().database.reading() as con:
        yield con


def start(config: Config, experiment: Experiment | None = None) -> str:
    """Start a run and remember its settings for `start_again`; returns its id. Raises WorkerError.

    experiment: the plan of the A/B that the run is for.
    """
    global _last
    run = lab().run(config, experiment)
    _last = (config, experiment)
    return run


def begin_story() -> None:
    """On the first visit to a new database, start the replay that it opens on. A replay that cannot be started is left
    out: the shipped runs are there.
    """
    global _unvisited
    with _lock:
        first, _unvisited = _unvisited, False
    if first and not lab().supervisor.status().alive:
        try:
            story.play(lab())
        except Exception as error:
            if not is_ours(error):
                raise
            lab().notes.append(str(error))


def replace(config: Config) -> str:
    """Stop the worker, if one serves, and start a run in its place; returns its id. Raises WorkerError."""
    if lab().supervisor.status().alive:
        lab().stop()
    return start(config)


def start_again() -> str:
    """Start a run with the settings of the last one. Raises WorkerError."""
    return start(*(_last or (RunConfig.make(),)))


def feed(run: str) -> Feed:
    """The rows of a run, shared by all browsers; brought up to date when it is asked for."""
    with _lock:
        if run not in _feeds:
            while len(_feeds) >= FEEDS_KEPT:
                _feeds.pop(next(iter(_feeds)))
            _feeds[run] = Feed(run)
        found = _feeds[run]
    status = lab().supervisor.status()  # asked before the reading: what has ended by then is in the file
    with connection() as con:
        found.refresh(con, live=status.alive and status.run == run)
    return found


def run_list() -> list[dict[str, Any]]:
    """All runs, newest first, without their counts."""
    with connection() as con:
        return queries.run_list(con)
