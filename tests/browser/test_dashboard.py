"""The real dashboard in a real browser: start, watch, zoom, kill, a second browser, stop."""

import json
import os
import signal

import psutil
import pytest
from conftest import PATIENCE

pytestmark = pytest.mark.browser

DRAWN = ".avlab-chart[data-key='throughput'] .main-svg"
RATE = "() => document.querySelector('[data-testid=stMain] [data-testid=stMetricValue]')?.innerText ?? ''"
RANGE = "() => document.querySelector(\".avlab-chart[data-key='throughput']\").layout.xaxis.range.map(Number)"
POINTS = """() => {
  const chart = document.querySelector(".avlab-chart[data-key='throughput']");
  return chart?.calcdata?.[0]?.length ?? 0;
}"""


ALL_STEPS = """() => {
  const said = document.querySelector("[data-testid=stMain]").innerText.match(/tokens in (\\d+) steps/);
  return said && document.querySelectorAll(".avlab-tokens li.step").length === Number(said[1]);
}"""


def sidebar(page):
    return page.get_by_test_id("stSidebarUserContent")


def start(page, url):
    page.goto(url)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text("live", exact=True).wait_for()  # until then the chart is of a shipped run
    page.wait_for_selector(DRAWN)


def changes(page, expression):
    """Wait until what an expression gives is another."""
    before = page.evaluate(expression)
    page.wait_for_function(
        f"before => JSON.stringify(({expression})()) !== before",
        arg=json.dumps(before, separators=(",", ":")),
    )


def zoom(page):
    """Drag over the middle of the throughput chart."""
    box = page.locator(".avlab-chart[data-key='throughput'] .nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
    page.mouse.up()


def test_start_watch_zoom_and_stop(dashboard, page):
    start(page, dashboard.url)
    changes(page, RATE)
    page.wait_for_function(f"() => ({POINTS})() > 5")
    page.evaluate("() => { document.querySelector(\".avlab-chart[data-key='throughput']\").marked = true }")
    zoom(page)
    page.wait_for_function(
        "() => document.querySelector(\".avlab-chart[data-key='throughput']\").layout.xaxis.autorange === false"
    )
    zoomed = page.evaluate(RANGE)
    for _ in range(2):
        changes(page, POINTS)
    assert page.evaluate(RANGE) == zoomed
    assert page.evaluate(
        "() => document.querySelector(\".avlab-chart[data-key='throughput']\").marked === true"
    )
    assert dashboard.workers()
    sidebar(page).get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Start", exact=True).wait_for()
    page.get_by_text("stopped").first.wait_for()
    psutil.wait_procs(dashboard.workers(), timeout=PATIENCE)
    assert dashboard.workers() == []


def test_a_killed_worker_is_said_and_started_again(dashboard, page):
    start(page, dashboard.url)
    for worker in dashboard.workers():
        worker.kill()
    page.get_by_text("was killed by signal 9").first.wait_for()
    page.get_by_role("button", name="Start again").click()
    page.get_by_text("live", exact=True).wait_for()
    changes(page, RATE)


def test_a_second_browser_finds_the_same_run_and_a_closed_tab_changes_nothing(dashboard, page, chromium):
    start(page, dashboard.url)
    page.wait_for_url("**run=*")
    other = chromium.new_context().new_page()
    other.set_default_timeout(1000 * PATIENCE)
    other.goto(dashboard.url)
    other.wait_for_selector(DRAWN)
    other.wait_for_url("**run=*")
    run = page.evaluate("() => new URLSearchParams(location.search).get('run')")
    assert other.evaluate("() => new URLSearchParams(location.search).get('run')") == run
    page.close()
    changes(other, RATE)
    other.context.close()
    assert dashboard.workers()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ending_the_server_leaves_no_process(dashboard, page, number):
    start(page, dashboard.url)
    workers = dashboard.workers()
    assert workers
    dashboard.stop(number)
    psutil.wait_procs(workers, timeout=PATIENCE)
    assert not any(worker.is_running() for worker in workers)
    assert "Traceback" not in dashboard.log.read_text()


@pytest.mark.model
def test_the_real_engine_from_start_to_tokens(real_dashboard, page):
    start(page, real_dashboard.url)
    page.get_by_text("live", exact=True).wait_for()
    changes(page, RATE)
    workers = real_dashboard.workers()
    os.kill(real_dashboard.process.pid, signal.SIGINT)
    real_dashboard.process.wait(PATIENCE)
    psutil.wait_procs(workers, timeout=PATIENCE)
    assert not any(worker.is_running() for worker in workers)


def steps_shown(page, number):
    page.wait_for_function("n => document.querySelectorAll('.avlab-tokens li.step').length >= n", arg=number)


def generate(page, url):
    """Start the lab, open the playground, step twice, look behind a slot by keyboard, run on to the end."""
    page.goto(url)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("link", name="Playground").click()
    page.get_by_role("button", name="Step by step").click()
    steps_shown(page, 1)
    page.locator(".stMarkdownBadge", has_text="the workload waits").wait_for()
    for number in (2, 3):
        page.get_by_role("button", name="Step", exact=True).click()
        steps_shown(page, number)
    slots = page.locator(".avlab-tokens li.step").first.locator(".slot")
    slots.first.focus()
    for _ in range(
        slots.count() - 1
    ):  # to the target's own token: how many drafts it verified is the policy's choice
        page.keyboard.press("ArrowRight")
    panel = page.locator(".avlab-tokens .panel")
    panel.get_by_text("target, p").wait_for()
    assert panel.locator(".choice").count() >= 2
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    page.get_by_role("button", name="Run on").click()
    page.locator(".stMarkdownBadge", has_text="the workload goes on").wait_for()
    page.wait_for_function(ALL_STEPS)
    fates = page.eval_on_selector_all(
        ".avlab-tokens .said .token", "all => all.map((token) => token.dataset.fate)"
    )
    look = "token => getComputedStyle(token).backgroundColor + getComputedStyle(token).textDecorationStyle"
    looks = {fate: page.eval_on_selector(f".avlab-tokens .said .token.{fate}", look) for fate in set(fates)}
    assert "accepted" in looks and len(looks) >= 2 and len(set(looks.values())) == len(looks)
    page.get_by_role("link", name="Live").click()
    page.wait_for_selector(DRAWN)
    changes(page, RATE)


def test_the_playground_step_by_step_and_the_workload_goes_on(dashboard, page):
    generate(page, dashboard.url)


def test_a_closed_playground_lets_the_workload_go_on(dashboard, page, chromium):
    page.goto(dashboard.url)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text("live", exact=True).wait_for()
    other = chromium.new_context().new_page()
    other.set_default_timeout(1000 * PATIENCE)
    other.goto(dashboard.url)
    other.get_by_role("link", name="Playground").click()
    other.get_by_role("button", name="Step by step").click()
    steps_shown(other, 1)
    other.context.close()
    page.get_by_text("The playground was left alone").wait_for()
    changes(page, RATE)


@pytest.mark.model
def test_the_playground_with_the_real_engine(real_dashboard, page):
    generate(page, real_dashboard.url)
