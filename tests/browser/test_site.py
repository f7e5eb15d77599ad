"""The tour and Sampling bias as a folder, in a browser from a disk: no request leaves it, every scene draws, soon."""

import time

import pytest

from avlab.tour import all_scenes, site
from avlab.tour.bias_scenes import bias_scenes

pytestmark = pytest.mark.browser

MOST_BYTES = 60_000_000
SOON = 10.0  # seconds to the first scene
DRAWN = "() => document.querySelector('.avlab-chart .main-svg') !== null"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return site.make(tmp_path_factory.mktemp("site") / "site")


@pytest.fixture
def visited(folder, page):
    """The page at the folder's file, and what it asked for; errors of its scripts fail the test."""
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    began = time.monotonic()
    page.goto((folder / "index.html").as_uri())
    page.wait_for_function(DRAWN)
    assert time.monotonic() - began < SOON
    yield page, asked
    assert errors == []


def test_the_folder_is_small(folder):
    assert sum(file.stat().st_size for file in folder.iterdir()) < MOST_BYTES


def test_every_scene_draws_and_nothing_is_fetched_from_elsewhere(visited):
    page, asked = visited
    for number, scene in enumerate([*all_scenes(), *bias_scenes()]):
        page.get_by_text(f"{number + 1} · {scene.title}").wait_for()
        if scene.quiz:
            assert not page.locator("#shown").is_visible()
            page.get_by_role("button", name=scene.quiz.answers[scene.quiz.right]).click()
            page.get_by_text(f"Right. {scene.quiz.answers[scene.quiz.right]}").wait_for()
        place = scene.control.at
        assert page.locator("#says").inner_text() == " ".join(scene.draw(place).says.split())
        page.wait_for_function(f"() => document.querySelector('.avlab-chart').dataset.key === '{scene.name}'")
        page.keyboard.press("ArrowRight")
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}


def test_a_link_leads_to_a_scene_whose_slider_moves(folder, page):
    page.goto((folder / "index.html").as_uri() + "#learning")
    page.get_by_text("4 · How K + 1 numbers learn").wait_for()
    before = page.locator("#says").inner_text()
    page.locator("#control input").fill("6")
    assert page.locator("#says").inner_text() != before
    page.get_by_role("button", name="Forget").click()
    assert page.locator("#says").inner_text() == before


def test_it_fits_a_phone(folder, chromium):
    context = chromium.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)
    page = context.new_page()
    page.goto((folder / "index.html").as_uri())
    page.wait_for_function(DRAWN)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    context.close()
