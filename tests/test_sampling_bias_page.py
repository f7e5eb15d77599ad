"""The Sampling bias page without a worker: every part, the quiz, and what a link restores."""

import threading

import pytest
from dashboard import PROJECT, charts, opened, said
from streamlit.testing.v1 import AppTest

from avlab.audit import AuditProcess, RowsProcess, TextProcess
from avlab.speculation.texts import MEASURES
from avlab.teaching.scenes import SCENES
from avlab.ui.bias import asked

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


def answered(kind, part, rows, **more):
    """A process that has said these rows and ended, in the place of a part's own."""
    process = kind.__new__(kind)
    process.progress, process.error, process.done = ("", 0, 0), "", threading.Event()
    process.done.set()
    process.rows = {tuple(row[name] for name in kind.key): row for row in rows}
    for name, value in more.items():
        setattr(process, name, value)
    asked._asked[part] = process


@pytest.fixture
def nothing_asked():
    yield
    asked._asked.clear()


FIT = {
    "cells": 9,
    "statistic": 4.0,
    "p_value": 0.4,
    "corrected": 1.0,
    "total_variation": 0.02,
    "noise_floor": 0.02,
}
AUDITED = {
    "rule": "adaptive", "label": "adaptive", "sound": True, "seed": 0, "exact_total_variation": 0.0, "tests": 4,
    "predictor": "maximum", "auc": 0.61, "labelled": 8000, "continuations": 2000, "one": FIT, "two": FIT,
    "rejected": False, "prefixes": 9, "history": [[1000, 0.5, 0.6, 0.03, 0.03], [2000, 0.4, 0.4, 0.02, 0.02]],
    "per_second": 2000.0, "done": True,
}  # fmt: skip
BENT = AUDITED | {
    "rule": "drawn:0.2",
    "label": "UNSOUND drawn:0.2",
    "sound": False,
    "auc": 0.87,
    "rejected": True,
}


def test_an_audit_is_shown_with_its_auc_beside_the_published_ones(lab, nothing_asked):
    answered(AuditProcess, "audit", [AUDITED, BENT], rules=["adaptive", "drawn:0.2"])
    app = page(part="5 The engine")
    table = app.dataframe[0].value
    assert charts(app) == 2 and list(table["rule"]) == ["adaptive", "UNSOUND drawn:0.2"]
    assert list(table["AUC"]) == ["0.610", "0.870"] and list(table["verdict"]) == ["not rejected", "rejected"]
    assert "0.847" in said(app) and "52228" in said(app) and "8,000 labelled slots" in said(app)


def test_the_quiz_hides_an_audit_too(lab, nothing_asked):
    answered(AuditProcess, "audit", [AUDITED, BENT], rules=["adaptive", "drawn:0.2"])
    app = page(part="5 The engine", quiz="true")
    assert charts(app) == 0 and "Which of these rules will the audit reject?" in app.button_group[-1].label


def test_texts_are_shown_with_intervals_and_what_is_noise(lab, nothing_asked):
    some = {name: [-2.5, -2.7, -2.3] for name in MEASURES}
    change = {name: [0.2, 0.1, 0.3] for name in MEASURES} | {"repetition": [0.0, -0.1, 0.1]}
    texts = [{"prompt": "Say hello.", "text": "Hello."}]
    row = {"rule": "maximum:0.1", "label": "maximum:0.1", "sound": True, "requests": 16, "tokens": 900,
           "measures": some, "difference": None, "texts": texts}  # fmt: skip
    bent = row | {"rule": "drawn:0.1", "label": "UNSOUND drawn:0.1", "sound": False, "difference": change}
    answered(TextProcess, "texts", [row, bent])
    app = page(part="6 Texts")
    assert charts(app) == 1 and "UNSOUND drawn:0.1 less maximum:0.1" in said(app)
    assert list(app.dataframe[0].value["verdict"]) == ["higher"] * 3 + ["within the noise"]
    assert any(expander.label == "Say hello." for expander in app.expander)


def test_rows_at_a_prompt_of_the_readers_own(lab, nothing_asked):
    address = {
        "part": "2 Any distributions",
        "rows": "rows of the real model",
        "prompt": "a prompt of your own …",
    }
    app = page(**address)
    assert charts(app) == 0 and any(button.label == "Ask the model" for button in app.button)
    row = {
        "prompt": "Say hello.",
        "names": list("ABCDEFGH"),
        "target": [0.3] + [0.1] * 7,
        "draft": [0.65] + [0.05] * 7,
    }
    answered(RowsProcess, "rows", [row])
    app = page(**address, **{"own-prompt": "Say hello."})
    assert charts(app) == 3 and not app.main.error


def test_draws_come_by_the_thousand(lab):
    app = page()
    next(button for button in app.button if button.label == "Draw").click().run()
    assert "After 1,000 draws" in said(app)


def test_too_many_states_are_counted_and_sampled(lab):
    address = {"own-V": "3", "own-K": "3", "own-requests": "2", "own-length": "2"}
    app = page(part="3 Positions and steps", scene="random tables", **address)
    assert "would have to be enumerated" in app.warning[0].value and "sampled instead" in app.warning[0].value
