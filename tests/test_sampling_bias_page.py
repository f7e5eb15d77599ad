"""The Sampling bias page without a worker: every part, the quiz, and what a link restores."""

import pytest
from dashboard import PROJECT, charts, opened, said
from streamlit.testing.v1 import AppTest

from avlab.teaching.scenes import SCENES

PARTS = {
    "1 Two tokens": 3, "2 Any distributions": 3, "3 Positions and steps": 3, "4 Noise": 1,
    "5 The engine": 0, "6 Texts": 0,
}  # fmt: skip


@pytest.fixture
def lab(tmp_path):
    with opened(tmp_path / "lab.duckdb"):
        yield


def page(**address):
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=120)
    app.run()
    app.switch_page("pages/sampling_bias.py")
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


@pytest.mark.parametrize("part", PARTS)
def test_every_part_says_what_to_try_and_what_it_shows(part, lab):
    app = page(part=part)
    assert charts(app) == PARTS[part] and not app.main.error
    assert "Try this" in said(app) and "What it shows" in said(app)
    assert any(expander.label == "Formulas" for expander in app.expander)


@pytest.mark.parametrize("part", [part for part, number in PARTS.items() if number])
def test_the_quiz_asks_before_it_shows(part, lab):
    app = page(part=part, quiz="true")
    assert charts(app) == 0
    question = app.button_group[-1]
    question.set_value(
        [question.options[0].content if hasattr(question.options[0], "content") else question.options[0]]
    )
    app.run()
    next(button for button in app.button if button.label == "Reveal").click().run()
    assert not app.exception and charts(app) == PARTS[part]
    assert "Right." in said(app) or "Not quite." in said(app)


def test_the_articles_example_and_a_greedy_draft(lab):
    app = page()
    assert "a comes out at 0.4 instead of 0.5" in said(app) and "a = 0.1 + 0.3 = 0.4" in said(app)
    app = page(greedy="true")
    assert "sound" in said(app) and "a comes out at" not in said(app)


def test_a_link_restores_the_sliders(lab):
    app = page(p="0.7", q="0.3", t="0.4")
    assert [slider.value for slider in app.slider] == [0.7, 0.3, 0.4]


@pytest.mark.parametrize("scene", SCENES)
def test_a_link_opens_a_scene(scene, lab):
    app = page(part="3 Positions and steps", scene=scene)
    assert app.selectbox(key="scene").value == scene and SCENES[scene]().name in said(app)
    assert "an auditor needs" in said(app)


def test_what_is_no_case_is_a_sentence(lab):
    app = page(part="2 Any distributions", target="0.5, 0.6, 0.1")
    assert "sums to 1.2" in app.main.error[0].value and charts(app) == 0
    app.toggle(key="normalise").set_value(True).run()
    assert not app.main.error and charts(app) == 3


def test_draws_come_by_the_thousand(lab):
    app = page()
    next(button for button in app.button if button.label == "Draw").click().run()
    assert "After 1,000 draws" in said(app)


def test_too_many_states_are_counted_and_sampled(lab):
    address = {"own-V": "3", "own-K": "3", "own-requests": "2", "own-length": "2"}
    app = page(part="3 Positions and steps", scene="random tables", **address)
    assert "would have to be enumerated" in app.warning[0].value and "sampled instead" in app.warning[0].value
