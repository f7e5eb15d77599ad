"""Pictures of every page with real data: `make screenshots`. Records runs for them first, with the default model.

All of them, wide and narrow, light and dark, go to build/screenshots; those that README and docs show, as WebP, to
docs/images. `--only NAME` takes one page; `--record` records the runs anew.
"""

import argparse
import time
from pathlib import Path

from PIL import Image

from avlab.bench.dashboard import PATIENCE, Dashboard, chromium
from avlab.config import RunConfig
from avlab.experiments.frontier import make_frontier
from avlab.experiments.plan import make_plan
from avlab.lab import Lab
from avlab.workers import messages as m
from avlab.workers.processes import PROJECT

FOLDER = PROJECT / "build" / "screenshots"
IMAGES = PROJECT / "docs" / "images"
DRIFTING = {
    "workload": "drift:code,essays@20s", "arrival": "closed:16", "context": 1024, "keep_text": True,
    "max_new_tokens": 200, "duration": 180,
}  # fmt: skip
PROMPT = "Write a Python function that returns the n-th Fibonacci number, with a short docstring."
PAGES = {  # address, and which of the recorded runs is on show
    "live": ("", 0),
    "coefficients": ("coefficients", 0),
    "calibration": ("calibration", 0),
    "budget": ("budget", 0),
    "ab": ("ab", 1),
    "frontier": ("frontier", 2),
    "playground": ("playground", 0),
    "sampling_bias": ("sampling_bias", 0),
    "runs": ("runs", 0),
}
WIDTHS = {"wide": 1280, "narrow": 390}
THEMES = ("light", "dark")
SHOWN = {  # picture of docs/images: page, width, theme, and how much of its height is shown
    "live": ("live", "wide", "light", 1130),
    "coefficients": ("coefficients", "wide", "dark", 1000),
    "ab": ("ab", "wide", "light", 1100),
    "playground": ("playground", "wide", "light", 1000),
    "calibration": ("calibration", "wide", "dark", 1000),
}
MOST_BYTES = 200_000
HEIGHT = "() => document.querySelector('[data-testid=stMain]').scrollHeight"
HIGHEST = 8000  # pixels
DRAWN = """() => !document.querySelector('[data-testid=stSkeleton]')
  && [...document.querySelectorAll('.avlab-chart')].every((chart) => chart.querySelector('.main-svg'))"""


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--only", choices=PAGES)
    given.add_argument("--record", action="store_true", help="record the runs anew")
    options = given.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    database = FOLDER / "lab.duckdb"
    if options.record:
        database.unlink(missing_ok=True)
    if not database.exists():
        record(database)
    with Dashboard(FOLDER) as served, chromium() as browser:
        served.wait()
        runs = recorded(served)
        for name in [options.only] if options.only else PAGES:
            for width in WIDTHS:
                for theme in THEMES:
                    print(take(browser, served.url, name, runs, width, theme), flush=True)
    if not options.only:
        publish()


def record(database: Path) -> None:
    """Three runs: one on drifting traffic with a window, a change of policy and a prompt; an A/B; a frontier."""
    quiet = RunConfig.make(context=1024, max_new_tokens=200)
    with Lab(database) as lab:
        print("recording a run on drifting traffic", flush=True)
        lab.run(RunConfig.make(DRIFTING))
        for share, command in (
            (0.3, m.Window(60)),
            (0.5, m.SetPolicy("fixed:4")),
            (0.7, m.SetPolicy("adaptive")),
            (0.9, m.Generate([{"role": "user", "content": PROMPT}], 60)),
        ):
            until(lambda when=share * DRIFTING["duration"]: lab.progress()["tally"]["seconds"] > when)
            lab.supervisor.send(command)
        lab.supervisor.wait()
        print("recording an A/B", flush=True)
        lab.run(*make_plan(quiet, ["adaptive", "fixed:5", "none"], rounds=12, block="4s", learn=300))
        lab.supervisor.wait()
        print("recording a frontier", flush=True)
        lab.run(*make_frontier(quiet, ["adaptive", "fixed:3", "none"], (1, 4, 16), 3, block="4s"))
        lab.supervisor.wait()


def until(condition) -> None:
    while not condition():
        time.sleep(0.2)


def recorded(served: Dashboard) -> list[str]:
    """The ids of the runs, oldest first."""
    from avlab.workers.owner import ask

    return [run["run_id"] for run in reversed(ask(served.database, "runs"))]


def take(browser, url: str, name: str, runs: list[str], width: str, theme: str) -> Path:
    """One page in one width and theme, as a whole."""
    path, run = PAGES[name]
    context = browser.new_context(
        viewport={"width": WIDTHS[width], "height": 900}, color_scheme=theme, device_scale_factor=1.5
    )
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(f"{url}/{path}?run={runs[run]}")
    page.wait_for_selector("[data-testid=stMain] h2")
    if name == "playground":
        choose(page, "Earlier prompts", 0)
    if name == "runs":
        tick_rows(page)
    unfold(page, WIDTHS[width])
    picture = FOLDER / f"{name}-{width}-{theme}.png"
    page.screenshot(path=picture)
    context.close()
    return picture


def unfold(page, width: int) -> None:
    """Make the window as high as the page, and wait until everything on it is drawn and stays as it is."""
    height, same = 0, 0
    while same < 3:
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(1000)
        now = min(page.evaluate(HEIGHT), HIGHEST)
        same = same + 1 if now == height else 0
        height = now
        page.set_viewport_size({"width": width, "height": height})


def choose(page, heading: str, place: int) -> None:
    """Pick an entry of the first list under a heading."""
    page.get_by_text(heading).wait_for()
    page.locator("[data-testid=stMain] [data-testid=stSelectbox] input").last.click()
    page.get_by_role("option").nth(place).click()
    page.wait_for_selector(".avlab-tokens li.step")


def tick_rows(page) -> None:
    """Tick the first two runs of the table, which is drawn on a canvas."""
    box = page.locator("[data-testid=stMain] [data-testid=stDataFrame]").first.bounding_box()
    for row in (1, 2):
        page.mouse.click(box["x"] + 15, box["y"] + 35 * row + 17)
        page.wait_for_timeout(1000)


def publish() -> None:
    """What README and docs show, small enough."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, (page, width, theme, height) in SHOWN.items():
        picture = Image.open(FOLDER / f"{page}-{width}-{theme}.png").convert("RGB")
        picture = picture.crop((0, 0, picture.width, min(picture.height, round(height * 1.5))))
        file = IMAGES / f"{name}.webp"
        for quality in (85, 75, 60, 45):
            picture.save(file, quality=quality, method=6)
            if file.stat().st_size < MOST_BYTES:
                break
        print(f"{file.relative_to(PROJECT)}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
