"""The Sampling bias page without a worker: every part, the quiz, and what a link restores."""

import threading

import pytest
from dashboard import charts, opened, said
from places import ROOT
from streamlit.testing.v1 import AppTest

from avlab.bias.grammar import KINDS
from avlab.bias.process import AuditProcess, RowsProcess, TextProcess
from avlab.bias.ready_made_scenes import SCENES
from avlab.bias.text_measures import MEASURES
from avlab.ui.bias import asked, words
from avlab.ui.bias import audit as engine_part
from avlab.ui.bias import texts as texts_part

PARTS = {
    "1 Two tokens": 3, "2 Any distributions": 3, "3 Positions and steps": 3, "4 Noise": 1,
    "5 The engine": 0, "6 Texts": 0,
}  # fmt: skip


@pytest.fixture
def lab(tmp_path):
    with opened(tmp_path / "lab.duckdb"):
        yield


def page(**address):
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
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
    assert charts(app) == 0 and "What it shows" not in said(app)
    question = app.button_group[-1]
    question.set_value(
        [question.options[0].content if hasattr(question.options[0], "content") else question.options[0]]
    )
    app.run()
    next(button for button in app.button if button.label == "Reveal").click().run()
    assert not app.exception and charts(app) == PARTS[part]
    assert "What it shows" in said(app) and ("Right." in said(app) or "Not quite." in said(app))


def test_none_of_them_is_an_answer_of_its_own(lab):
    app = page(part=list(PARTS)[2], quiz="true")
    question = app.button_group[-1]
    options = [getattr(option, "content", option) for option in question.options]
    question.set_value([options[0], "none of them"])
    app.run()
    assert next(button for button in app.button if button.label == "Reveal").disabled
    assert "stands alone" in said(app)


def test_the_articles_example_and_a_greedy_draft(lab):
    app = page()
    assert "a comes out at 0.4 instead of 0.5" in said(app) and "a = 0.1 + 0.3 = 0.4" in said(app)
    app = page(greedy="true")
    assert "sound" in said(app) and "a comes out at" not in said(app)


@pytest.mark.parametrize("p", ["0", "1"])
def test_a_certain_target_is_given_as_the_reason(p, lab):
    assert "The target is certain here" in said(page(p=p, q="0.2", t="0.5"))
    assert "both rules verify the same drafts, or none" in said(page(p="0.5", q="0.4", t="0.3"))


def test_the_page_explains_its_words_before_it_uses_them(lab):
    app = page()
    assert words.OPENING in said(app) and app.expander[0].label == "Words"
    assert all(f"**{word}**" in said(app) for word in words.WORDS)


def test_every_rule_of_the_engine_that_is_offered_has_a_sentence():
    offered = [*engine_part.SOUND_RULES, *engine_part.UNSOUND_RULES, *texts_part.SOUND, *texts_part.UNSOUND]
    for rule in offered:
        unsound = rule in (*engine_part.UNSOUND_RULES, *texts_part.UNSOUND)
        assert words.sentence_of(rule).startswith("UNSOUND") == unsound


def test_the_table_of_rules_says_what_each_decides_by_and_what_comes_out(lab):
    table = page(part="2 Any distributions").dataframe[0].value.set_index("rule")
    assert list(table.loc["due", ["P(a)", "P(b)", "P(c)"]]) == ["0.5000", "0.3000", "0.2000"]
    for kind in KINDS.values():
        row = table.loc[kind.name]
        assert row["decides by"] == kind.sentence and row["verdict"] == ("sound" if kind.sound else "UNSOUND")
        assert (list(row[["P(a)", "P(b)", "P(c)"]]) == ["0.5000", "0.3000", "0.2000"]) == kind.sound


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
    problem = app.main.error[0].value
    assert "sums to 1.2" in problem and "Normalise" in problem and "--" not in problem and charts(app) == 0
    app.toggle(key="normalise").set_value(True).run()
    assert not app.main.error and charts(app) == 3


def answered(kind, part, rows, order=None, done=True, **more):
    """A process that has said these rows, and ended unless it is not done, in the place of a part's own."""
    process = kind.__new__(kind)
    process.progress, process.error, process.done = ("", 0, 0), "", threading.Event()
    if done:
        process.done.set()
    process.rows = {tuple(row[name] for name in kind.key): row for row in rows}
    for name, value in more.items():
        setattr(process, name, value)
    asked._asked[part] = asked.Asked(process, order or {})
    return process


@pytest.fixture
def nothing_asked():
    yield
    for each in asked._asked.values():
        each.process.done.set()
    asked._asked.clear()


def predict(app, *options):
    """Answer the quiz's question and reveal."""
    app.button_group[-1].set_value(list(options))
    app.run()
    next(button for button in app.button if button.label == "Reveal").click().run()
    assert not app.exception
    return app


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
    "predictor": "maximum", "auc": 0.61, "ranking": {"drawn": 0.87, "maximum": 0.61},
    "labelled": 8000, "continuations": 2000, "one": FIT, "two": FIT,
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
    ranked = app.dataframe[1].value
    assert list(ranked["AUC here"]) == ["0.870", "0.610"] and list(ranked["AUC published"]) == ["0.847", "–"]
    assert "UNSOUND" in ranked.iloc[0, 0] and "52228" in said(app) and "8,000 first drafts" in said(app)


def test_the_quiz_hides_an_audit_and_judges_by_its_verdict(lab, nothing_asked):
    missed = BENT | {"rejected": False}
    answered(AuditProcess, "audit", [AUDITED, missed], rules=["adaptive", "drawn:0.2"])
    app = page(part="5 The engine", quiz="true")
    question = app.button_group[-1]
    assert charts(app) == 0 and "Which of these rules will the audit reject" in question.label
    assert not any("UNSOUND" in option for option in question.options)
    predict(app, "none of them")
    assert "Right." in said(app) and "More continuations are needed to notice drawn:0.2" in said(app)


def test_the_quiz_judges_nothing_while_the_audit_is_at_work(lab, nothing_asked):
    growing = BENT | {"done": False}
    process = answered(AuditProcess, "audit", [AUDITED, growing], done=False, rules=["adaptive", "drawn:0.2"])
    app = predict(page(part="5 The engine", quiz="true"), "drawn:0.2")
    assert charts(app) == 2 and "There is a verdict when" in said(app) and "Not quite." not in said(app)
    process.rows["drawn:0.2", 0] = BENT
    process.done.set()
    app.run()
    assert "**Right.** You said: drawn:0.2" in said(app)


def test_results_are_named_by_what_was_asked_for(lab, nothing_asked):
    order = {"rules": ["adaptive", "UNSOUND drawn:0.2"], "prompt": "“Say hello.”", "continuations": 2000}
    answered(AuditProcess, "audit", [AUDITED, BENT], order, rules=["adaptive", "drawn:0.2"])
    text = said(page(part="5 The engine", **{"audit-prompt": "Say nothing.", "audit-count": "50000"}))
    assert "Below: rules adaptive, UNSOUND drawn:0.2; prompt “Say hello.”; continuations 2,000." in text


def test_two_browsers_cannot_start_two_processes(lab, nothing_asked):
    first = answered(RowsProcess, "rows", [], done=False)

    def second():
        raise AssertionError("it started beside another")

    for part in ("rows", "audit"):  # the button was drawn before the first began
        asked._start(part, second, {})
    assert asked._asked["rows"].process is first and "audit" not in asked._asked
    first.done.set()
    asked._start("audit", lambda: first, {"rules": ["none"]})
    assert asked._asked["audit"].order == {"rules": ["none"]}


def test_nothing_starts_beside_a_worker_that_serves(lab, nothing_asked, monkeypatch):
    monkeypatch.setattr(asked, "_serving", lambda: True)
    asked._start("audit", lambda: pytest.fail("it started"), {})
    assert not asked._asked


WRITTEN = {
    "rule": "maximum:0.1", "label": "maximum:0.1", "sound": True, "requests": 16, "tokens": 900,
    "measures": {name: [-2.5, -2.7, -2.3] for name in MEASURES}, "difference": None,
    "texts": [{"prompt": "Say hello.", "text": "Hello."}],
}  # fmt: skip


def bent_text(**changed):
    """A second rule's texts, whose measures all differ by 0.2 but for those given."""
    change = {name: [0.2, 0.1, 0.3] for name in MEASURES} | changed
    return WRITTEN | {
        "rule": "drawn:0.1", "label": "UNSOUND drawn:0.1", "sound": False, "difference": change,
    }  # fmt: skip


def test_texts_are_shown_with_intervals_and_what_is_noise(lab, nothing_asked):
    answered(TextProcess, "texts", [WRITTEN, bent_text(repetition=[0.0, -0.1, 0.1])])
    app = page(part="6 Texts")
    assert charts(app) == 1 and "UNSOUND drawn:0.1 minus maximum:0.1" in said(app)
    assert list(app.dataframe[0].value["verdict"]) == ["higher"] * 3 + ["within the noise"]
    assert any(expander.label == "Say hello." for expander in app.expander)


def test_the_quiz_of_texts_waits_for_both_and_can_be_none_of_them(lab, nothing_asked):
    process = answered(TextProcess, "texts", [WRITTEN], {"rules": ["maximum:0.1", "drawn:0.1"]}, done=False)
    app = predict(page(part="6 Texts", quiz="true"), "none of them")
    assert "There is an answer when" in said(app) and "Not quite." not in said(app)
    process.rows["drawn:0.1",] = bent_text(**{name: [0.0, -0.1, 0.1] for name in MEASURES})
    process.done.set()
    app.slider(key="text-cut").set_value(0.5).run()  # another setting is another order, not another question
    assert "**Right.** You said: none of them" in said(app)


def test_another_threshold_is_another_question(lab):
    address = {"part": "3 Positions and steps", "scene": "random tables", "quiz": "true"}
    app = predict(page(**address), "none of them")
    assert charts(app) > 0
    app.slider(key="own-cut").set_value(0.7).run()
    assert charts(app) == 0 and any(button.label == "Reveal" for button in app.button)


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
    assert (
        "drafts; up to 30,000 are enumerated" in app.warning[0].value
        and "sampled 5,000 times instead" in app.warning[0].value
    )
    assert "a small bias may be missed" in app.warning[
        0
    ].value and "the noise floor of a correct sampler" in said(app)
    assert "Shown: the 64 of 81 outputs whose share changes most." in said(app)
