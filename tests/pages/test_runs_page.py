"""The Runs page: runs are ticked, compared, noted and deleted, and asked in SQL."""

import shutil
from types import SimpleNamespace

import pytest
import streamlit as st
from dashboard import charts, finished_run, opened, page, said

from avlab.store import queries
from avlab.store.errors import NoCosts
from avlab.ui import again, host


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with two finished runs in it, which no test changes."""
    path = tmp_path_factory.mktemp("lab") / "lab.duckdb"
    with opened(path) as lab:
        for policy in ("adaptive", "fixed:2"):
            finished_run(lab, policy=policy, tokens=400)
    return path


@pytest.fixture
def runs(database, tmp_path):
    """The page's runs, newest first, in a copy of the file."""
    path = shutil.copy(database, tmp_path / "lab.duckdb")
    with opened(path):
        yield [run["run_id"] for run in host.run_list()]


@pytest.fixture
def tick(monkeypatch):
    """Tick rows of the table: `AppTest` cannot."""
    plain, ticked = st.dataframe, []

    def dataframe(*given, **more):
        shown = plain(*given, **more)
        return SimpleNamespace(selection=SimpleNamespace(rows=ticked)) if "on_select" in more else shown

    monkeypatch.setattr(st, "dataframe", dataframe)
    return lambda *rows: ticked.__setitem__(slice(None), rows)


def press(app, label):
    next(button for button in app.button if button.label == label).click().run()
    assert not app.exception


def test_ticked_runs_are_compared_with_the_chosen_baseline(runs, tick):
    tick(0, 1)
    app = page("runs")
    assert not app.exception and charts(app) == 2
    baseline = next(box for box in app.selectbox if box.label == "Baseline")
    assert baseline.options == [f"{runs[0][-8:]} fixed:2", f"{runs[1][-8:]} adaptive"]
    assert "run an A/B: alternating blocks" in said(app) and "What differs in their settings" in said(app)
    table = app.dataframe[0].value
    with host.connection() as con:
        rates = [queries.run_summary(con, run)["tokens_per_s"] for run in runs]
    assert list(table["tokens/s"]) == pytest.approx(rates)
    differs = app.dataframe[2].value
    assert "policy" in list(differs["setting"])


def test_a_filter_keeps_the_rows_that_hold_all_words(runs, tick):
    app = page("runs")
    next(field for field in app.text_input if field.label == "Filter").set_value("FIXED:2 finished").run()
    assert list(app.dataframe[0].value["run"]) == [runs[0][-8:]]
    assert "1 of 2 runs hold these words" in said(app)


def test_a_run_is_started_again_with_its_settings_and_its_costs(runs):
    with host.connection() as con:
        description = queries.describe(con, runs[1])
        try:
            queries.cost_samples(con, runs[1])
            timed = True
        except NoCosts:
            timed = False
    costs = again._costs(runs[1])
    assert (costs is not None) == timed
    config = again.settings_of(description, costs)
    for name in ("seed", "policy", "workload", "tokens"):
        assert getattr(config, name) == description["config"][name]
    assert config.costs == (None if costs is None else str(costs))


def test_a_ticked_run_is_noted_and_deleted(runs, tick):
    tick(1)
    app = page("runs")
    assert f"Run `{runs[1]}`" in said(app)
    next(field for field in app.text_input if field.label == "Note").set_value("a slow machine")
    press(app, "Add the note")
    assert list(app.dataframe[0].value["notes"]) == ["", "a slow machine"]
    tick(0)
    app.run()
    press(app, "Delete this run")
    assert [run["run_id"] for run in host.run_list()] == runs[1:]
    assert list(app.dataframe[0].value["run"]) == [runs[1][-8:]]


def test_a_question_in_sql_is_answered_or_refused_in_a_sentence(runs):
    app = page("runs")
    next(area for area in app.text_area if area.label == "SQL").set_value(
        "SELECT sum(tokens) AS n FROM steps"
    )
    press(app, "Ask")
    assert not app.error and app.dataframe[1].value["n"][0] == app.dataframe[0].value["tokens"][0]
    next(area for area in app.text_area if area.label == "SQL").set_value("DROP TABLE runs")
    press(app, "Ask")
    assert len(app.error) == 1 and len(app.dataframe) == 1


def test_keeping_less_deletes_no_young_run(runs):
    app = page("runs")
    age = next(field for field in app.text_input if "older than" in field.label)
    age.set_value("0").run()
    assert "runs would go" not in said(app) and "is '0': give a whole number from 1 to" in said(app)
    age.set_value("1").run()
    assert "0 of 2 runs would go" in said(app) and not app.exception
