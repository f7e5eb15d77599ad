"""The tour on its page: steps, addresses, the quiz, Forget, classroom mode."""

import pytest
from dashboard import charts, opened, page, said

from avlab.tour import all_scenes


@pytest.fixture(scope="module", autouse=True)
def lab(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("lab") / "lab.duckdb") as found:
        yield found


def button(app, label):
    return next(each for each in app.button if each.label == label)


@pytest.mark.parametrize("scene", all_scenes(), ids=lambda scene: scene.name)
def test_every_scene_has_a_link(scene):
    app = page("tour", scene=scene.name)
    assert not app.exception and f"{scene.order} · {scene.title}" in said(app)
    if scene.quiz:
        assert charts(app) == 0
        asked = next(each for each in app.button_group if each.label == scene.quiz.asked)
        asked.set_value(scene.quiz.answers[0]).run()
    assert charts(app) == 1 and scene.notes[0] in said(app)
    if scene.emulated:
        assert "Speeds are emulated" in said(app)


def test_next_and_back_step_through_the_scenes():
    app = page("tour")
    assert button(app, "Back").disabled
    button(app, "Next").click().run()
    assert f"2 · {all_scenes()[1].title}" in said(app)
    button(app, "Back").click().run()
    assert f"1 · {all_scenes()[0].title}" in said(app)


def test_forget_goes_back_to_the_bad_start():
    app = page("tour", scene="learning")
    app.select_slider[0].set_value("5").run()
    assert "The bad start" not in said(app)
    button(app, "Forget").click().run()
    assert not app.exception and "The bad start" in said(app)


def test_classroom_mode_is_in_the_address():
    app = page("tour", classroom="true")
    assert not app.exception and charts(app) == 1
