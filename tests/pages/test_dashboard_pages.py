"""Every page with no run, a finished run, a live run and a broken one."""

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from dashboard import PAGES, charts, finished_run, opened, page, said, steps_of, until
from places import ROOT

from avlab import sample
from avlab.config import RunConfig
from avlab.figures import coefficients
from avlab.policies.arm import DEFAULT_ARM, PolicyError
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.errors import TransferError
from avlab.store.export import export_run
from avlab.store.retention import delete_run
from avlab.ui import host, sidebar, transfer
from avlab.wire.commands import SetPolicy, SetWorkload
from avlab.workloads import WorkloadError

CHARTS = {
    "live": 9,
    "coefficients": 4,
    "calibration": 6,
    "budget": 5,
    "ab": 0,
    "frontier": 0,
    "playground": 0,
    "runs": 0,
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with a finished and then a broken run in it: its path and their ids."""
    path = tmp_path_factory.mktemp("lab") / "lab.duckdb"
    with opened(path) as lab:
        finished = finished_run(lab)
        return path, finished, finished_run(lab, target="failing", tokens=10**6)


@pytest.fixture
def recorded(database):
    path, finished, broken = database
    with opened(path):
        yield SimpleNamespace(finished=finished, broken=broken)


def test_the_dashboard_needs_no_torch():
    code = (
        "import sys, runpy; from avlab.ui import host, shell; import app; "
        "import avlab.store.queries, avlab.figures.live, avlab.figures.budget, avlab.figures.calibration; "
        "sys.exit(any(name.partition('.')[0] in ('torch', 'vllm') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("name", PAGES)
def test_with_no_run_a_page_says_what_to_do(name, tmp_path):
    with opened(tmp_path / "lab.duckdb"):
        app = page(name)
        assert not app.exception
        assert "Press **Start**" in said(app)


@pytest.mark.parametrize("name", PAGES)
def test_a_finished_run(name, recorded):
    app = page(name, recorded.finished)
    assert not app.exception and not app.main.error
    assert charts(app) == CHARTS.get(name, 0)
    if name != "runs":
        assert ":gray-badge[finished]" in said(app) and recorded.finished[-8:] in said(app)


@pytest.mark.parametrize("name", ["live", "coefficients"])
def test_a_slope_that_is_stuck_says_so(name, recorded, monkeypatch):
    assert "is stuck" not in said(page(name, recorded.finished))
    monkeypatch.setattr(coefficients, "dropped_in_a_row", lambda slopes, labels: 5)
    assert "slope is stuck at" in said(page(name, recorded.finished))


@pytest.mark.parametrize("name", PAGES)
def test_a_broken_run(name, recorded):
    app = page(name, recorded.broken)
    assert not app.exception
    if name == "runs":
        assert "failed" in set(app.dataframe[0].value["state"])
    else:
        assert "a fault in step 30" in said(app)


def test_a_broken_run_shows_its_log_and_can_be_started_again(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        host.start(RunConfig.make(target="failing", K=4))
        assert lab.supervisor.wait(120)
        app = page()
        again = next(button for button in app.button if button.label == "Start again")
        assert any("RuntimeError" in code.value for code in app.code)
        again.click().run()
        assert not app.exception and lab.supervisor.wait(120)
        assert len(host.run_list()) == 2


def test_a_live_run(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        lab.run({"workload": "code", "K": 4, "max_new_tokens": 40, "drafts": "all"})
        app = page()
        assert not app.exception and ("preparing" in said(app) or ":green-badge[live]" in said(app))
        until(lambda: steps_of(lab) > 150)
        for name in PAGES:
            app = page(name)
            assert not app.exception and not app.main.error, name
            assert charts(app) == CHARTS.get(name, 0)
        app = page()
        before = app.metric[0].value
        assert ":green-badge[live]" in said(app) and "adaptive" in said(app)
        until(lambda: page().metric[0].value != before)
        app = page()
        assert not app.exception
        stop = next(button for button in app.button if button.label == "Stop")
        stop.click().run()
        assert lab.supervisor.wait(120)
        assert ":gray-badge[stopped]" in said(page())


def test_an_unknown_run_in_the_address_is_said(recorded):
    app = page("live", "ffffffff-0000")
    assert not app.exception
    assert "No run answers to 'ffffffff-0000'" in said(app)


def test_a_link_to_an_earlier_run_shows_that_run(recorded):
    assert recorded.finished[-8:] in said(page("live", recorded.finished))
    assert recorded.broken[-8:] in said(page("live"))


def test_a_held_database_is_said_with_its_owner(tmp_path):
    with Database(tmp_path / "lab.duckdb"):
        host.open_lab(tmp_path / "lab.duckdb")
        app = page()
        assert not app.exception and "close" in app.error[0].value
    host.open_lab(tmp_path / "lab.duckdb")
    assert not page().error
    host.close_lab()


def test_shipped_runs_go_into_an_empty_database_only(database, tmp_path):
    path, finished, _ = database
    with opened(path) as lab, lab.database.cursor() as con:
        export_run(con, finished, tmp_path / "sample" / "one")
    with Database(tmp_path / "lab.duckdb") as fresh:
        for _ in range(2):
            sample.add(fresh, tmp_path / "sample")
        with fresh.cursor() as con:
            assert [run["run_id"] for run in queries.runs(con)] == [finished]
            delete_run(con, finished)
        sample.add(fresh, tmp_path / "sample")
        with fresh.cursor() as con:
            assert queries.runs(con) == []
    with Database(tmp_path / "other.duckdb") as other:
        sample.add(other, tmp_path / "nowhere")
        (tmp_path / "sample" / "one" / "steps.parquet").write_bytes(b"damaged")
        sample.add(other, tmp_path / "sample")
        with other.cursor() as con:
            assert queries.runs(con) == []


def test_a_zip_comes_back_as_the_same_run(database, tmp_path):
    path, finished, _ = database
    with opened(path):
        packed = transfer.exported(finished, "parquet")
    with opened(tmp_path / "lab.duckdb"):
        assert transfer.imported(io.BytesIO(packed)) == finished
        assert [run["run_id"] for run in host.run_list()] == [finished]
        for damaged in (b"no zip", packed[:1000]):
            with pytest.raises(TransferError, match="not a zip"):
                transfer.imported(io.BytesIO(damaged))


def pressed(app, label):
    next(button for button in app.button if button.label == label).click().run()


def test_the_playground_steps_runs_on_and_is_looked_at_again(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        run = lab.run({"workload": "code", "K": 4, "max_new_tokens": 40, "keep_text": True})
        until(lambda: steps_of(lab) > 20)
        app = page("playground")
        assert "the workload waits" in said(app) and "keeps text" in said(app)
        next(area for area in app.text_area if area.label == "Prompt").set_value("why is it so?")
        for number, button in ((1, "Step by step"), (2, "Step")):
            pressed(app, button)
            until(lambda: len(lab.generation.now.steps) == number)  # noqa: B023
            app.run()
            assert not app.exception and f"in {number} steps under **{DEFAULT_ARM}**" in said(app)
        assert lab.supervisor.status().state in ("serving", "playground")
        pressed(app, "Run on")
        until(lambda: lab.generation.now.state == "ended")
        app.run()
        assert "the workload goes on" in said(app) and "It reached its limit" in said(app)
        assert any(element.proto.component_name == "avlab_tokens" for element in app.get("bidi_component"))
        seen = steps_of(lab)
        until(lambda: steps_of(lab) > seen + 20)
        lab.supervisor.stop()
        app = page("playground", run)
        assert "The last answer" in said(app)
        chosen = next(box for box in app.selectbox if box.label == "Prompt")
        assert chosen.options == ["1: why is it so?"]
        chosen.select_index(0).run()
        assert not app.exception and "temperature 0.6 · top-p 0.95 · seed 0" in said(app)
        assert any(element.proto.component_name == "avlab_tokens" for element in app.get("bidi_component"))


def test_a_prompt_that_cannot_be_served_is_said_and_the_workload_goes_on(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        lab.run({"workload": "code", "K": 4, "max_new_tokens": 40})
        until(lambda: steps_of(lab) > 20 and lab.supervisor.status().state == "serving")
        app = page("playground")
        assert "keeps no text" in said(app)
        next(area for area in app.text_area if area.label == "Prompt").set_value("  ")
        pressed(app, "Straight through")
        until(lambda: lab.generation.now.state == "refused")
        app.run()
        assert [error.value for error in app.error] == ["The prompt is empty: type something first."]
        seen = steps_of(lab)
        until(lambda: steps_of(lab) > seen + 20)


@pytest.mark.parametrize("name", ["recorded", "broken"])
def test_without_a_worker_the_playground_says_what_to_do(name, recorded):
    app = page("playground", recorded.finished if name == "recorded" else recorded.broken)
    assert "press **Start a run**" in said(app) and "No prompts of the playground are stored" in said(app)
    assert any(button.label == "Start a run" for button in app.button)


def test_a_window_is_started_from_the_calibration_page(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        lab.run({"workload": "code", "K": 4, "max_new_tokens": 40})
        until(lambda: steps_of(lab) > 60)
        app = page("calibration")
        assert "untrimmed labels" not in said(app)
        next(field for field in app.text_input if field.label == "Steps").set_value("100001")
        pressed(app, "Start the window")
        assert "Steps is '100001': give a whole number from 1 to 100,000." in said(app)
        next(field for field in app.text_input if field.label == "Steps").set_value("100000")
        pressed(app, "Start the window")
        until(lambda: "A window of full verification is running" in said(page("calibration")))
        lab.supervisor.send(SetPolicy("adaptive"))  # ends the window
        until(lambda: "Windows of full verification gave" in said(page("calibration")))
        app = page("calibration")
        next(box for box in app.selectbox if box.label == "Labels of").select(
            "windows only (untrimmed)"
        ).run()
        assert not app.exception
        until(lambda: "None was trimmed" in said(app.run()))


def test_a_change_that_no_worker_could_follow_is_refused_where_it_was_asked_for(monkeypatch):
    asked = {"change-policy": "nonsense", "change-workload": "nonsense", "change-arrival": "closed:4"}
    monkeypatch.setattr(sidebar.st, "session_state", asked)
    sent = []
    serving = SimpleNamespace(status=lambda: SimpleNamespace(kind="reference"))
    monkeypatch.setattr(sidebar.host, "lab", lambda: SimpleNamespace(change=sent.append, supervisor=serving))
    with pytest.raises(PolicyError, match="there is no policy 'nonsense'"):
        sidebar._set_policy()
    with pytest.raises(WorkloadError, match="nonsense"):
        sidebar._set_workload()
    assert sent == []
    asked |= {"change-policy": "fixed:2", "change-workload": "code"}
    sidebar._set_policy()
    sidebar._set_workload()
    assert sent == [SetPolicy("fixed:2"), SetWorkload("code", "closed:4")]
