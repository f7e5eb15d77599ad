"""How long a reader waits: for the first page, and for the first tokens after Start was pressed."""

import statistics
import tempfile
import time
from pathlib import Path

from avlab.bench.base import Bar, Context, Measure, Result, Table

BARS = (
    Bar("first-page", "dashboard's server started to first page drawn in a browser", "s", 3.0, "<="),
    Bar("first-tokens", "Start pressed to first tokens on the chart", "s", 20.0, "<="),
)
PATIENCE = 300_000  # ms
HEADING = "[data-testid=stMain] h2"
SCRIPT = Path(__file__).parents[1] / "chart_points.js"


def measure(context: Context) -> Result:
    """Servers one after the other, each over an empty database, in one browser that waits for them."""
    from avlab.bench.dashboard import Dashboard, chromium

    pages: list[float] = []
    tokens: list[float] = []
    servers = context.pick(3, 9)
    context.folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for number in range(servers):
            context.progress("servers", number, servers)
            with tempfile.TemporaryDirectory(dir=context.folder) as folder, Dashboard(Path(folder)) as served:
                page = browser.new_page()
                page.set_default_timeout(PATIENCE)
                page.add_init_script(path=SCRIPT)
                # asked from outside whether it answers: a browser that tries takes the server's processor time
                page.goto(served.wait().url, wait_until="commit")
                page.wait_for_selector(HEADING)
                pages.append(time.monotonic() - served.began)
                if number % 3 == 0:
                    tokens.append(_start(page))
                page.close()
    columns = ["wait", "times", "least s", "median s", "most s"]
    rows = [
        [name, len(waits), *(round(of(waits), 2) for of in (min, statistics.median, max))]
        for name, waits in (("first page", pages), ("first tokens", tokens))
    ]
    values = {"first-page": statistics.median(pages), "first-tokens": statistics.median(tokens)}
    return Result(values, [Table("Waiting for the dashboard", columns, rows)])


def _start(page) -> float:
    """Press Start; seconds until other points than those of the recorded run are on the chart."""
    page.wait_for_function("avlabPoints() !== '' || avlabNothing()")
    before = page.evaluate("avlabPoints()")
    page.get_by_role("button", name="Start", exact=True).click()
    began = time.monotonic()
    page.wait_for_function("before => avlabNews(before)", arg=before)
    return time.monotonic() - began


MEASURES = (Measure("dashboard-start", "the dashboard's start", BARS, measure, 84, alone=True),)
