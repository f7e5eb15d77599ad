"""The Frontier page in a real browser: start one, see its cells fill, stop it, go on where it was stopped."""

import contextlib

import psutil
import pytest
from conftest import PATIENCE
from playwright.sync_api import TimeoutError as TooLate

pytestmark = pytest.mark.browser

CELLS = """() => {
  const chart = document.querySelector(".avlab-chart[data-key='frontier-cells']");
  chart?.scrollIntoView({ block: "center" });  // what is not in sight is not drawn
  return (chart?.data ?? []).reduce((sum, trace) => sum + (trace.x?.length ?? 0), 0);
}"""


def cells(page, at_least):
    """Points of the chart, once there are so many."""
    page.wait_for_function(f"least => ({CELLS})() >= least", arg=at_least)
    return page.evaluate(CELLS)


def test_a_frontier_fills_is_stopped_and_goes_on(dashboard, page):
    page.goto(dashboard.url)
    page.get_by_role("link", name="Frontier").click()
    page.get_by_role("button", name="Start the frontier").wait_for()
    for label, value in (("Cell", "5steps"), ("Learning (steps)", "5"), ("Repeats", "3")):
        field = page.get_by_test_id("stMain").get_by_label(label, exact=True)
        field.fill(value)
        field.press("Enter")
    start = page.get_by_test_id("stMain").get_by_role("button", name="Start the frontier")
    start.click()
    few = cells(page, 2)
    before = cells(page, few + 1)
    page.get_by_test_id("stSidebarUserContent").get_by_role("button", name="Stop", exact=True).click()
    page.get_by_test_id("stSidebarUserContent").get_by_role("button", name="Start", exact=True).wait_for()
    psutil.wait_procs(dashboard.workers(), timeout=PATIENCE)
    assert dashboard.workers() == []

    page.get_by_text("Measure a frontier").click()
    start.click()
    page.get_by_text("live", exact=True).wait_for()
    assert cells(page, before) >= before  # those of the run that was stopped are there still
    cells(page, before + 1)
    page.get_by_text("Continues 1 earlier run").wait_for()


REPLAYED = """() => {
  const chart = document.querySelector(".avlab-chart[data-key='frontier-replayed']");
  chart?.scrollIntoView({ block: "center" });
  return (chart?.data ?? []).length;
}"""


def test_a_frontier_is_replayed_and_redrawn_on_another_machine(dashboard, page):
    page.goto(f"{dashboard.url}/frontier?frontier-how=Replay")
    page.wait_for_function(f"() => ({REPLAYED})() >= 2")
    page.get_by_text("emulated: B300 × 4", exact=False).first.wait_for()
    box = page.get_by_test_id("stSelectbox").filter(has_text="Machine").first
    for patience in (5, 5, 5, 60):  # a list that is open closes where the page is drawn again
        box.get_by_role("combobox").click()
        with contextlib.suppress(TooLate):
            page.get_by_role("option", name="H100, Llama-3.1-8B's costs").click(timeout=patience * 1000)
            break
    page.get_by_text("emulated: H100", exact=False).first.wait_for()
    page.wait_for_function(f"() => ({REPLAYED})() >= 2")
    page.get_by_test_id("stMain").get_by_text("Measure", exact=True).click()
    page.get_by_role("button", name="Start the frontier").wait_for()
