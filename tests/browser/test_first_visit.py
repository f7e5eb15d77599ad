"""A first visit: a replay that moves, or the shipped runs, on every page, on a desk and on a phone."""

import time

import pytest
from conftest import PATIENCE
from dashboard import ALL_PAGES

from avlab.bench import dashboard as helper

pytestmark = pytest.mark.browser

PAGES = ("", *ALL_PAGES[1:])  # addresses: the first page is at the root
DRAWN = (
    "() => [...document.querySelectorAll('.avlab-chart')].some((chart) => chart.querySelector('.main-svg'))"
)
BUTTONS = "() => [...document.querySelectorAll('.modebar-btn')].map((button) => button.dataset.title)"
# what reaches beyond the right edge of the page and does not scroll by itself
WIDER = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  return main.scrollWidth > main.clientWidth + 1 ? main.scrollWidth : 0;
}"""


@pytest.fixture
def phone(chromium):
    context = chromium.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, device_scale_factor=2
    )
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE * 1000)
    yield opened
    context.close()


def open_page(page, url):
    page.goto(url)
    page.wait_for_selector("[data-testid=stMain] h2")
    page.wait_for_selector("[data-testid=stStatusWidget]", state="detached")


def test_a_first_visit_shows_a_shipped_run_and_sends_charts_nowhere(dashboard, page):
    page.goto(dashboard.url)
    page.get_by_text("This recorded run ships with avlab").wait_for()
    page.wait_for_function(DRAWN)
    buttons = page.evaluate(BUTTONS)
    assert "Reset axes" in buttons
    assert not [title for title in buttons if "hare" in title or "loud" in title]
    assert dashboard.workers() == []


# what the first chart of an emulated run draws, as its x; "" while there is none
MOVING = """() => {
  const titles = [...document.querySelectorAll('h4')];
  const replayed = titles.some((title) => title.textContent.includes('Throughput, emulated'));
  const chart = document.querySelector('.avlab-chart');
  return replayed && chart && chart._fullData && chart._fullData.length ? [...(chart._fullData[0].x || [])].join() : '';
}"""
SOON = 30.0  # seconds; on a quiet machine it is a few


def test_a_replay_moves_soon_after_the_click_without_a_model(dashboard, page):
    page.goto(dashboard.url)
    page.get_by_text("This recorded run ships with avlab").wait_for()
    page.wait_for_function(DRAWN)
    sidebar = page.get_by_test_id("stSidebarUserContent")
    sidebar.get_by_role("button", name="Replay", exact=True).click()
    began = time.monotonic()
    page.wait_for_function(f"({MOVING})() !== ''")
    first = page.evaluate(MOVING)
    page.wait_for_function(f"({MOVING})() !== {first!r}")
    assert time.monotonic() - began < SOON
    page.get_by_text("emulated: B300 × 4").first.wait_for()
    sidebar.get_by_role("button", name="Stop", exact=True).click()
    sidebar.get_by_role("button", name="Replay", exact=True).wait_for()


@pytest.fixture
def fresh_dashboard(tmp_path):
    with helper.Dashboard(tmp_path, AVLAB_STORY="yes") as found:
        yield found.wait()


def test_a_first_visit_opens_on_a_replay_that_moves_and_whose_policy_changes(fresh_dashboard, page):
    page.goto(fresh_dashboard.url)
    page.wait_for_function(f"({MOVING})() !== ''")
    first = page.evaluate(MOVING)
    page.wait_for_function(f"({MOVING})() !== {first!r}")
    page.get_by_text("1 of 6: Few users, and the policy decides").wait_for()
    page.get_by_text("2 of 6: Load rises").wait_for()
    page.get_by_text("By segment, emulated").wait_for()
    page.evaluate("() => { document.querySelector(\".avlab-chart[data-key='throughput']\").marked = true }")
    top = "() => document.querySelector(\".avlab-chart[data-key='throughput']\").getBoundingClientRect().top"
    before = page.evaluate(top)
    page.get_by_text("3 of 6").wait_for()
    assert page.evaluate(top) == before
    assert page.evaluate(
        "() => document.querySelector(\".avlab-chart[data-key='throughput']\").marked === true"
    )
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Start", exact=True).wait_for()
    page.get_by_role("button", name="Once more", exact=True).wait_for()


def test_on_a_phone_no_page_is_wider_than_the_screen_and_charts_let_it_scroll(dashboard, phone):
    for path in PAGES:
        open_page(phone, f"{dashboard.url}/{path}")
        assert phone.evaluate(WIDER) == 0, path
    open_page(phone, dashboard.url)
    phone.wait_for_function(DRAWN)
    assert phone.evaluate(BUTTONS) == []
    assert phone.evaluate("() => document.querySelector('.avlab-chart').layout.dragmode") is False
