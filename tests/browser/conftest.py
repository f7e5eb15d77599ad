"""A dashboard of its own in a process of its own, and Debian's Chromium to look at it with."""

from pathlib import Path

import pytest

from avlab.bench import dashboard as helper
from avlab.bench.base import NotMeasured

STAND_IN = Path(__file__).with_name("stand_in_app.py")
PATIENCE = helper.PATIENCE


@pytest.fixture
def dashboard(tmp_path):
    with helper.Dashboard(tmp_path, STAND_IN) as found:
        yield found.wait()


@pytest.fixture
def real_dashboard(tmp_path):
    with helper.Dashboard(tmp_path) as found:
        yield found.wait()


@pytest.fixture(scope="session")
def chromium():
    try:
        with helper.chromium() as browser:
            yield browser
    except NotMeasured as reason:
        pytest.skip(str(reason))


@pytest.fixture
def page(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE * 1000)
    yield opened
    context.close()
