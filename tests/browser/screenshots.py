"""Pictures of every page with real data: `make screenshots`. Most show the runs that ship with avlab.

All of them, wide and narrow, light and dark, go to build/screenshots; those that README and docs show, as WebP, to
docs/images. `--only NAME` takes one page; `--record` records anew what no shipped run has: a prompt.
"""

import argparse
import json
import time
from pathlib import Path

from PIL import Image

from avlab import sample
from avlab.bench.dashboard import PATIENCE, Dashboard, chromium
from avlab.config import RunConfig
from avlab.installation import PROJECT
from avlab.lab.lab import Lab
from avlab.lab.owner import ask
from avlab.ui.page_files import page_files
from avlab.wire import commands

FOLDER = PROJECT / "build" / "screenshots"
IMAGES = PROJECT / "docs" / "images"
PROMPT = "Write a Python function that returns the n-th Fibonacci number, with a short docstring."
FILES = page_files(PROJECT / "pages")
RUNS = {
    "ab": "wins",
    "frontier": "frontier",
    "playground": "prompt",
}  # on show; on other pages the drifting one
PAGES = {  # address, and which of the runs is on show
    file.name: ("" if file is FILES[0] else file.name, RUNS.get(file.name, "drifting")) for file in FILES
}
FIRST = "first_minute"
PAGES[FIRST] = ("", "story")  # what a first visit has shown after a minute
WIDTHS = {"wide": 1280, "narrow": 390}
THEMES = ("light", "dark")
SHOWN = {  # picture of docs/images: page, width, theme, and how much of its height is shown
    "live": ("live", "wide", "light", 1415),
    FIRST: (FIRST, "wide", "light", 1470),
    "coefficients": ("coefficients", "wide", "dark", 1110),
    "calibration": ("calibration", "wide", "light", 1410),
    "ab": ("ab", "wide", "light", 1400),
    "playground": ("playground", "wide", "light", 1200),
    "sampling_bias": ("sampling_bias", "wide", "light", 1400),
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
    if not database.exists() and options.only != FIRST:  # which shows a run that ships
        record(database)
    with Dashboard(FOLDER) as served, chromium() as browser:
        served.wait()
        runs = recorded(served)
        for name in [options.only] if options.only else PAGES:
            for width in WIDTHS:
                for theme in THEMES:
                    print(take(browser, served.url, name, runs, width, theme), flush=True)
    publish([options.only] if options.only else SHOWN)


def record(database: Path) -> None:
    """The shipped runs, then a run with a prompt of the playground."""
    quiet = RunConfig.make(max_model_len=1024, max_new_tokens=200)
    with Lab(database) as lab:
        sample.add(lab.database)
        print("recording a prompt", flush=True)
        lab.run(quiet.changed(keep_text=True))
        until(lambda: lab.tally.snapshot()["steps"] > 150 or not lab.supervisor.status().alive)
        lab.generate(commands.Generate([{"role": "user", "content": PROMPT}], 60))
        until(lambda: not lab.generation.now.active)
        lab.stop()


def until(condition) -> None:
    while not condition():
        time.sleep(0.2)


def recorded(served: Dashboard) -> dict[str, str]:
    """The ids of the runs, by what they are for."""
    shipped = {
        name: json.loads((sample.FOLDER / name / "manifest.json").read_text())["run_id"]
        for name in sample.RECORDINGS
    }
    others = [run["run_id"] for run in ask(served.database, "runs") if run["run_id"] not in shipped.values()]
    return shipped | ({"prompt": others[0]} if others else {})


def take(browser, url: str, name: str, runs: dict[str, str], width: str, theme: str) -> Path:
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


def publish(names) -> None:
    """What README and docs show of these, small enough."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in [each for each in SHOWN if each in names]:
        page, width, theme, height = SHOWN[name]
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
