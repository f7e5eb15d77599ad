"""The dashboard under a path of its own, behind a proxy, and by links that lead straight to a page."""

import pytest
from conftest import STAND_IN
from prefix_proxy import PrefixProxy

from avlab.bench.dashboard import Dashboard

pytestmark = pytest.mark.browser

DRAWN = (
    "() => [...document.querySelectorAll('.avlab-chart')].some((chart) => chart.querySelector('.main-svg'))"
)


@pytest.fixture
def answers(page):
    """The addresses that were not answered, gathered while a test goes on."""
    missing = []
    page.on("response", lambda response: response.status >= 400 and missing.append(response.url))
    page.on("requestfailed", lambda request: "plotly" in request.url and missing.append(request.url))
    return missing


def look(page, url):
    page.goto(url)
    page.wait_for_function(DRAWN)


def test_a_link_to_a_page_asks_for_nothing_that_is_not_there(dashboard, page, answers):
    for name in ("", "/coefficients", "/calibration"):
        look(page, dashboard.url + name)
    assert answers == []
    page.get_by_role("link", name="Coefficients").click(timeout=30_000)
    page.wait_for_url("**/coefficients*")
    page.wait_for_function(DRAWN)
    page.reload()
    page.wait_for_function(DRAWN)
    assert answers == []


def test_a_path_of_its_own(tmp_path, page, answers):
    with Dashboard(tmp_path, STAND_IN, STREAMLIT_SERVER_BASE_URL_PATH="my/lab") as dashboard:
        dashboard.url += "/my/lab"
        dashboard.wait()
        for name in ("/", "/calibration"):
            look(page, dashboard.url + name)
        assert answers == []


def test_behind_a_proxy_that_adds_a_path(dashboard, page, answers):
    with PrefixProxy(dashboard.port, "/behind") as proxy:
        for name in ("/", "/calibration"):
            look(page, proxy.url + name)
        assert answers == []


def test_where_plotly_is_not_passed_on_the_chart_says_so(dashboard, page):
    page.route("**/plotly.min.js", lambda route: route.abort())
    page.goto(dashboard.url)
    page.get_by_text("This chart cannot be drawn").first.wait_for()
    assert "/avlab/plotly.min.js does not answer" in page.locator(".avlab-chart").first.inner_text()
