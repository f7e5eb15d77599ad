"""Replays for pages: in processes beside the app, kept by what they depend on, given up when a reader asks for another.

A cell depends on trace, machine, arm, load and seed alone, so a reader who adds an arm waits for that arm only, and one
who goes back waits for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_pool import Pool
from avlab.experiments.replay_sweep import Case
from avlab.machines import path_of
from avlab.processes import idle_cores

PASSES = (1, 2, 7)  # blocks: a first picture without intervals, a coarse one, and the whole
MOST_CELLS = 5000  # kept; each is some kilobytes
MOST_AT_ONCE = 4  # replays of different readers

Wanted = tuple[str, int]
Key = tuple[str, str, int, int]  # trace, machine, when its file was, seed


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands by now. cells: in the order asked for. share: of the work done. error: why it ended, or ""."""

    cells: list[Cell]
    share: float
    error: str = ""

    @property
    def done(self) -> bool:
        return self.share >= 1 or bool(self.error)


@dataclass(slots=True)
class _Job:
    key: Key
    wanted: frozenset[Wanted]
    pool: Pool


_lock = threading.Lock()
_cells: dict[tuple[Key, Wanted], Cell] = {}
_jobs: dict[str, _Job] = {}  # by reader


def seen(reader: str, case: Case, wanted: Sequence[Wanted]) -> Seen:
    """The cells of a case that stand by now; what is missing is replayed from now on, in place of what this reader
    had asked for before. reader: who asks. Returns at once; within a second where a replay begins on a busy machine.
    """
    key = _key(case)
    with _lock:
        job = _jobs.get(reader)
        if job is not None:
            _keep(job)
        missing = [each for each in wanted if not _whole(key, each)]
        if job is not None and (job.key != key or not job.wanted >= set(missing)):
            _give_up(reader)
            job = None
        if job is None and missing:
            while len(_jobs) >= MOST_AT_ONCE:
                _give_up(next(iter(_jobs)))
            pool = Pool(case.trace, case.machine, case.seed, missing, PASSES, idle_cores())
            job = _jobs[reader] = _Job(key, frozenset(missing), pool)
        found = [_cells[key, each] for each in wanted if (key, each) in _cells]
        if job is None or not missing:
            return Seen(found, 1.0)
        error = job.pool.error
        if error:
            del _jobs[reader]
        blocks = sum(len(cell.blocks) for cell in found)
        return Seen(found, min(blocks / (sum(PASSES) * len(wanted)), 0.99), error)


def give_up(reader: str) -> None:
    """This reader asks no more."""
    with _lock:
        _give_up(reader)


def _key(case: Case) -> Key:
    path = path_of(case.machine)
    return case.trace, case.machine, path.stat().st_mtime_ns, case.seed


def _whole(key: Key, wanted: Wanted) -> bool:
    cell = _cells.get((key, wanted))
    return cell is not None and len(cell.blocks) >= sum(PASSES)


def _keep(job: _Job) -> None:
    """Take over what a job has by now."""
    for wanted, cell in list(job.pool.cells.items()):
        before = _cells.get((job.key, wanted))
        if before is None or len(before.blocks) < len(cell.blocks):
            _cells[job.key, wanted] = cell
    while len(_cells) > MOST_CELLS:
        _cells.pop(next(iter(_cells)))


def _give_up(reader: str) -> None:
    job = _jobs.pop(reader, None)
    if job is not None:
        threading.Thread(target=job.pool.close, daemon=True).start()  # ending processes may take a moment
