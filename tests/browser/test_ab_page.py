"""The A/B page in a real browser: set one up, start it, watch its verdict move, stop it."""

import pytest

from avlab.policies.arm import DEFAULT_ARM

pytestmark = pytest.mark.browser

VERDICT = "() => document.querySelector('[data-testid=stMain] h5')?.innerText ?? ''"
DRAWN = """key => {
  const chart = document.querySelector(`.avlab-chart[data-key='${key}']`);
  return chart?.calcdata?.some((trace) => trace.length > 1) ?? false;
}"""


def verdict(page, before=""):
    """The first verdict, once it is another than `before`."""
    page.wait_for_function(
        f"before => {{ const now = ({VERDICT})(); return now !== '' && now !== before; }}", arg=before
    )
    return page.evaluate(VERDICT)


def fill(page, label, value):
    field = page.get_by_label(label, exact=True)
    field.fill(value)
    field.press("Enter")


def test_an_ab_from_its_form_to_a_verdict_that_moves_and_a_stop(dashboard, page):
    page.goto(dashboard.url)
    page.get_by_role("link", name="A/B").click()
    page.get_by_role("button", name="Start the A/B").wait_for()
    fill(page, "Block", "3steps")
    fill(page, "Wash-out (steps)", "4")
    page.get_by_role("button", name="Start the A/B").click()
    page.get_by_text("no longer than its wash-out of 4 steps").wait_for()
    assert dashboard.workers() == []

    fill(page, "Wash-out (steps)", "1")
    fill(page, "Learning (steps)", "10")
    page.get_by_role("button", name="Start the A/B").click()
    first = verdict(page)
    assert first.startswith((f"{DEFAULT_ARM} against fixed:5", f"{DEFAULT_ARM} is ")), first
    assert verdict(page, first) != first
    for key in ("ab-ratios", "ab-ledger", "ab-drafts"):
        page.wait_for_function(DRAWN, arg=key)
    assert dashboard.workers()

    page.get_by_test_id("stSidebarUserContent").get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("Left out: round").wait_for()
    page.get_by_role("button", name="Start", exact=True).wait_for()
    assert dashboard.workers() == []
    assert "fixed:5" in page.evaluate(VERDICT)
