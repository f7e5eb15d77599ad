"""What a dashboard that somebody looks at costs the worker, which shares the machine with it."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from avlab.bench.base import Bar, Context, Measure, NotMeasured, Result, Table
from avlab.bench.rounds import Block, interval, rates, round_ratios, switchback

BARS = (
    Bar("dashboard-effect", "throughput that a client on Live takes from the worker", "%", 5.0, "<="),
    Bar("browser-effect", "throughput that a browser on Live takes from the worker", "%"),
    Bar("browser-cpu", "processor time of a browser on Live", "cores"),
)
ALONE, CLIENT, BROWSER = "nobody looks", "a client that draws nothing", "Chromium"
SETTLE_SECONDS = 2.0  # after somebody came or went
START_SECONDS = 300.0  # a worker's start may take so long
Look = Callable[
    [], AbstractContextManager[Callable[[float], None]]
]  # gives what waits for some seconds, looking on
LEAST_TICKS = 0.5  # a second: a client that gets fewer was not served


def measure(context: Context) -> Result:
    """One run served throughout; by turns nobody, a client or a browser looks at it, in an order of chance."""
    from avlab.bench.dashboard import Dashboard, chromium

    rounds, seconds = context.pick(3, 12), context.pick(6.0, 20.0)
    context.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=context.folder))
        served = stack.enter_context(Dashboard(Path(folder))).wait()
        _serve(served.database, context)
        client = _Client(served.url)
        looks: dict[str, Look] = {ALONE: _nobody, CLIENT: client.look}
        notes = [
            "With nobody looking the dashboard's server does what `avlab run` does: it records. "
            f"{CLIENT.capitalize()} receives every message that a browser would."
        ]
        browser = None
        try:
            browser = _Browser(stack.enter_context(chromium()), served.url)
            looks[BROWSER] = browser.look
        except NotMeasured as reason:
            notes.append(f"No browser looked: {reason}")

        def serve(arm: str, number: int) -> Block:
            with looks[arm]() as watch:
                watch(SETTLE_SECONDS)
                before = _tally(served.database)
                watch(seconds)
                after = _tally(served.database)
            return Block(
                arm, number, *(after[name] - before[name] for name in ("tokens", "seconds", "steps"))
            )

        blocks = switchback(
            list(looks), rounds, serve, lambda done, total: context.progress("blocks", done, total)
        )
    notes.append(
        f"The client received {client.ticks / client.seconds:.2f} runs of fragments and "
        f"{client.bytes / client.seconds / 1e3:.0f} kB a second."
    )
    lost = {name: 100 * (1 - round_ratios(blocks, name, ALONE)) for name in looks if name != ALONE}
    table = Table(
        f"One run, {rounds} rounds of blocks of {seconds:g} s",
        ["who looks", "tokens/s", "throughput lost, % by round [90 %]"],
        [[name, round(float(np.median(rates(blocks, name))), 1), _spread(lost.get(name))] for name in looks],
    )
    values = {
        "dashboard-effect": float(np.median(lost[CLIENT])),
        "browser-effect": float(np.median(lost[BROWSER])) if browser else None,
        "browser-cpu": browser.spent / browser.seconds if browser else None,
    }
    return Result(values, [table], notes)


def _spread(values: np.ndarray | None) -> str:
    if values is None:
        return ""
    low, high = interval(values)
    return f"{np.median(values):.1f} [{low:.1f}, {high:.1f}]"


def _tally(database: Path) -> dict:
    from avlab.lab.owner import ask

    return ask(database, "progress")["tally"]


def _serve(database: Path, context: Context) -> None:
    """Have the dashboard start a run, and wait until it serves."""
    from avlab.lab.owner import ask

    ask(database, "run", config=context.config.model_dump(mode="json", exclude={"database"}))
    end = time.monotonic() + START_SECONDS
    while _tally(database)["steps"] < 100:
        status = ask(database, "progress")["status"]
        if status["state"] == "ended" or time.monotonic() > end:
            raise RuntimeError(status["error"] or "the worker did not begin to serve")
        time.sleep(0.5)


@contextlib.contextmanager
def _nobody() -> Iterator[Callable[[float], None]]:
    yield time.sleep


class _Client:
    """Visits Live, and adds up what it received while it watched."""

    def __init__(self, url: str):
        self.url, self.seconds, self.ticks, self.bytes = url, 0.0, 0, 0

    @contextlib.contextmanager
    def look(self) -> Iterator[Callable[[float], None]]:
        from avlab.bench.page_client import PageClient

        with PageClient(self.url) as client:
            client.ask()

            def watch(seconds: float) -> None:
                before = client.received
                ticks = client.watch(seconds)
                if ticks < LEAST_TICKS * seconds:
                    raise RuntimeError(f"a client on Live was sent {ticks} ticks in {seconds:.0f} s")
                self.seconds, self.ticks = self.seconds + seconds, self.ticks + ticks
                self.bytes += client.received - before

            yield watch


class _Browser:
    """Shows Live, and adds up the processor time of its processes while it is watched."""

    def __init__(self, browser: Any, url: str):
        self.browser, self.url, self.seconds, self.spent = browser, url, 0.0, 0.0

    @contextlib.contextmanager
    def look(self) -> Iterator[Callable[[float], None]]:
        page = self.browser.new_page()
        page.goto(self.url)

        def watch(seconds: float) -> None:
            before = self._processor_seconds()
            page.wait_for_timeout(1e3 * seconds)
            self.spent += self._processor_seconds() - before
            self.seconds += seconds

        yield watch
        page.close()

    @staticmethod
    def _processor_seconds() -> float:
        """Of all processes of the browser that this process started."""
        total = 0.0
        for process in psutil.Process().children(recursive=True):
            try:
                if "chrom" in process.name():
                    times = process.cpu_times()
                    total += times.user + times.system
            except psutil.NoSuchProcess:
                pass
        return total


MEASURES = (Measure("dashboard-effect", "what a dashboard costs the worker", BARS, measure, 83, alone=True),)
