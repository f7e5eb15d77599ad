"""What the dashboard's pages ask of the database when they are opened and at every tick, timed."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from avlab.bench.large_run import STEP_SECONDS, extend, make_large_run
from avlab.commands.serve import APP
from avlab.store import feeds, queries
from avlab.ui import host, shown
from avlab.ui.page_files import page_files


@dataclass(slots=True)
class Asked:
    """Milliseconds of queries: on opening a page, and within each of its ticks; busy: their processor time."""

    opening: float = 0.0
    ticks: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Clock:
    """Seconds since `reset`: of all queries, and of those within ticks (`busy`: processor time).

    ticked: a page drew what it draws at every tick.
    """

    total: float = 0.0
    ticks: float = 0.0
    busy: float = 0.0
    depth: int = 0
    ticking: bool = False
    ticked: bool = False

    def reset(self) -> None:
        self.total = self.ticks = self.busy = 0.0
        self.ticked = False

    def add(self, seconds: float, busy: float) -> None:
        self.total += seconds
        if self.ticking:
            self.ticks += seconds
            self.busy += busy


def page_ticks(
    path: Path, rows: int, ticks: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Asked]:
    """Queries, by page that ticks, over a run of so many rows that grows by a second's steps before every tick.

    Every tick reads all that its page ever reads: also what is otherwise read every few seconds only. The results of
    an A/B are worked out anew when a round is over, which no tick here comes upon; `opening` has that. Takes the
    process's lab, which must not be open.
    """
    host.open_lab(path)
    try:
        with host.connection() as con, _timed() as clock:
            run, steps = make_large_run(con, rows)
            found: dict[str, Asked] = {}
            pages = page_files(APP.parent / "pages")
            for place, file in enumerate(pages):
                progress(place, len(pages))
                app = AppTest.from_file(str(APP), default_timeout=600)
                app.query_params["run"] = run
                app.run()
                clock.reset()
                app.switch_page(file.path).run()
                assert not app.exception, app.exception
                if not clock.ticked:
                    continue
                asked = found[file.name] = Asked(1e3 * clock.total)
                for _ in range(ticks):
                    grown = steps + round(shown.TICK_SECONDS / STEP_SECONDS)
                    extend(con, run, steps, grown)
                    steps = grown
                    clock.reset()
                    _refresh(clock, run)
                    app.run()
                    asked.ticks.append(1e3 * clock.ticks)
                    asked.busy.append(1e3 * clock.busy)
            return found
    finally:
        host.close_lab()


def _refresh(clock: _Clock, run: str) -> None:
    """Have the feed read what came: once a tick, which the fragments of a page share."""
    feeds.FRESH_SECONDS, clock.ticking = 0.0, True
    host.feed(run)
    feeds.FRESH_SECONDS, clock.ticking = float("inf"), False


@contextlib.contextmanager
def _timed() -> Iterator[_Clock]:
    """A clock that runs while one of the queries does. Feeds read when `_refresh` says so, and keep nothing back."""
    clock = _Clock()

    def timed(ask: Any) -> Any:
        @functools.wraps(ask)
        def asking(*arguments: Any, **named: Any) -> Any:
            clock.depth += 1
            begin, busy = time.perf_counter(), time.thread_time()
            try:
                return ask(*arguments, **named)
            finally:
                clock.depth -= 1
                if not clock.depth:
                    clock.add(time.perf_counter() - begin, time.thread_time() - busy)

        return asking

    original = shown.tick

    def tick(draw: Any, on_show: Any) -> None:
        @functools.wraps(draw)
        def drawing() -> None:
            clock.ticking = clock.ticked = True
            try:
                draw()
            finally:
                clock.ticking = False

        original(drawing, on_show)

    with contextlib.ExitStack() as stack:
        changes: list[tuple[Any, str, Any]] = [(shown, "tick", tick)]
        changes += [(feeds, "FRESH_SECONDS", 0.0), (feeds, "SLOW_SECONDS", 0.0)]
        asked = [name for name in queries.__all__ if callable(getattr(queries, name))]
        changes += [(queries, name, timed(getattr(queries, name))) for name in asked]
        for owner, name, value in changes:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield clock
