"""Recording a trace from the form of a replay: the settings of the next run are its options, and a refusal is said."""

from streamlit.testing.v1 import AppTest

from avlab.config import RunConfig
from avlab.lab import recording_job
from avlab.ui import record_trace


def page():
    from avlab.ui import record_trace

    record_trace.draw()


def test_settings_become_options_of_the_command():
    config = RunConfig.make(temperature=0.2, top_p=0.9, policy="fixed:3", arrival="closed:4", workload="code")
    words = record_trace.options(config)
    assert words[words.index("--temperature") + 1] == "0.2" and words[words.index("--workload") + 1] == "code"
    assert "--policy" not in words and "--arrival" not in words


def test_a_name_that_cannot_be_is_said_and_nothing_begins(monkeypatch, tmp_path):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    app = AppTest.from_function(page).run()
    app.text_input(key="record-name").set_value("../x")
    app.button(key="record-start").click().run()
    assert not app.exception and "no name of a trace" in app.error[0].value
    assert recording_job.current() is None or not recording_job.current().running


def test_what_is_asked_for_is_begun(monkeypatch, tmp_path):
    begun = []
    monkeypatch.setattr(recording_job, "start", lambda *given: begun.append(given))
    app = AppTest.from_function(page).run()
    app.text_input(key="record-name").set_value("mine")
    app.text_input(key="record-texts").set_value("20")
    app.button(key="record-start").click().run()
    assert not app.exception and begun[0][:2] == ("mine", 20)


def test_a_number_that_cannot_be_is_said_and_nothing_begins(monkeypatch, tmp_path):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    begun = []
    monkeypatch.setattr(recording_job, "start", lambda *given: begun.append(given))
    app = AppTest.from_function(page).run()
    app.text_input(key="record-name").set_value("mine")
    app.text_input(key="record-texts").set_value("many")
    app.button(key="record-start").click().run()
    assert not app.exception and not begun
