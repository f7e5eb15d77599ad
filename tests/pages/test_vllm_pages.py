"""The pages around vLLM: a server is watched, a deployment examined; other pages say what they lack."""

import numpy as np
import pytest
from dashboard import charts, opened, page, said, steps_of, until
from vllm_stand_in import growing, metrics_text, serving

from avlab.figures import watched
from avlab.store import queries
from avlab.store.database import connect_reader


def field(app, kind, label):
    return next(each for each in getattr(app, kind) if each.label == label)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A database with a run that watched a server: its path, the run's id."""
    path = tmp_path_factory.mktemp("lab") / "lab.duckdb"
    with serving() as server, growing(server), opened(path) as lab:
        run = lab.run(
            {"url": server.url, "interval": 0.2, "tokens": 900, "verification": "adaptive"}, kind="attach"
        )
        assert lab.supervisor.wait(120)
    return path, run


def test_the_live_page_of_a_watched_server_shows_what_its_counters_tell(recorded):
    path, run = recorded
    with opened(path):
        app = page("live", run)
    assert not app.exception and not app.main.error
    assert charts(app) == 6
    text = said(app)
    assert "trimming looks like rejection here" in text and "some/model" in text
    assert "every 0.2 s" in text and "temperature" not in text
    assert field(app, "metric", "Running, waiting").value == "1, 2"


@pytest.mark.parametrize("name", ["coefficients", "calibration", "budget", "playground"])
def test_pages_that_counters_cannot_fill_say_so(recorded, name):
    path, run = recorded
    with opened(path):
        app = page(name, run)
    assert not app.exception and charts(app) == 0
    assert "its counters do not cover this page" in said(app)


def test_a_server_is_watched_from_the_page(tmp_path):
    path = tmp_path / "lab.duckdb"
    with serving() as server, growing(server), opened(path) as lab:
        app = page("vllm")
        assert not app.exception
        field(app, "text_input", "Server").set_value("nowhere")
        field(app, "button", "Watch").click().run()
        assert "'nowhere' is no server's address" in said(app)
        field(app, "text_input", "Server").set_value(server.url + "/v1")
        field(app, "text_input", "Engine").set_value(" 0 ")
        field(app, "button", "Watch").click().run()
        assert not app.exception
        until(lambda: steps_of(lab) > 1)
        app = page("live")
        assert ":green-badge[live]" in said(app) and "Policy in force" not in said(app)
        assert "Whether verification is adaptive is not known" in said(app)
        assert "whether it has the worker extension cannot be asked" in said(app)
        lab.stop()
        [run] = lab.runs()
    con = connect_reader(path)
    assert queries.describe(con, run["run_id"])["config"]["engine"] == "0"
    con.close()


def test_a_deployment_is_examined_on_the_page(tmp_path):
    with opened(tmp_path / "lab.duckdb"):
        app = page("vllm")
        field(app, "selectbox", "System").set_value("muse-glimmer-dflash2")
        field(app, "selectbox", "GPU").set_value("a100").run()
        assert not app.exception
        assert "**1 check of " in said(app) and "--attention-backend TRITON_ATTN" in said(app)
        field(app, "selectbox", "GPU").set_value("h100").run()
        assert "No check would stop vLLM" in said(app)
        field(app, "selectbox", "System").set_value("a command of my own").run()
        field(app, "text_area", "Command").set_value(
            "vllm serve m \\\n --enable-lora -sc.method dspark -sc.enable_adaptive_verification true"
        ).run()
        assert "Adapters are mapped" in said(app)
        field(app, "text_area", "Command").set_value("vllm serve --oops").run()
        assert "names no model" in said(app) and not app.exception


def test_the_page_takes_what_the_command_takes_of_machine_and_traffic(tmp_path):
    with opened(tmp_path / "lab.duckdb"):
        app = page("vllm")
        field(app, "selectbox", "System").set_value("llama-3.1-8b-eagle3")
        field(app, "selectbox", "GPU").set_value("h100").run()
        text = said(app)
        assert "size of the weights or of the GPU's memory is not known" in text
        assert "coefficients learnt in one way" in text
        for words in ("random tokens", "bad_words", "requests at a time: in one"):
            assert words not in text
        for label, value in (
            ("GPUs", "1"), ("Memory of one (GiB)", "20"), ("Weights (GiB)", "60.0"), ("Requests at a time", "8"),
        ):  # fmt: skip
            field(app, "text_input", label).set_value(value)
        app.text_input(key="preflight-temperature").set_value("11").run()
        assert "Temperature is '11': give a number from 0 to 10." in app.error[0].value
        assert "would stop vLLM" not in said(app)
        app.text_input(key="preflight-temperature").set_value("0")
        field(app, "text_input", "Data set").set_value("random")
        field(app, "multiselect", "Sampling parameters").set_value(["bad_words"])
        field(app, "text_input", "vLLM").set_value("0.20.0").run()
        text = said(app)
        assert not app.exception
    assert "60.0 GiB of weights" in text and "on 1 × H100" in text
    assert "neither DSpark nor adaptive" in text
    assert "coefficients learnt in one way" not in text
    for words in ("random tokens", "bad_words", "8 requests at a time: in one"):
        assert words in text


def test_a_running_server_is_examined_on_the_page(tmp_path):
    with serving() as server, opened(tmp_path / "lab.duckdb"):
        server.answers["/metrics"] = metrics_text(1000, drafts=300, by_position=(240, 120, 40), K=3)
        app = page("vllm")
        field(app, "selectbox", "System").set_value("a server that runs").run()
        assert "answers" not in said(app)
        field(app, "text_input", "Address").set_value("nowhere")
        field(app, "button", "Examine").click().run()
        assert "'nowhere' is no server's address" in said(app)
        field(app, "text_input", "Address").set_value(server.url)
        field(app, "button", "Examine").click().run()
        assert "vLLM 0.33.0 answers" in said(app) and "300 drafts of 3.00 tokens" in said(app)
        assert "Choose a system above, or write a command" in said(app) and not app.exception


def rows(**columns):
    plain = {
        "step": [0, 0], "time": [1.0, 1.0], "model": ["m", "m"], "engine": ["0", "1"], "seconds": [1.0, 1.0],
        "running": [3.0, 1.0], "waiting": [0.0, 2.0], "cache_usage": [0.5, 0.25], "tokens": [80.0, 20.0],
        "first_tokens": [2.0, 0.0], "first_token_seconds": [0.3, 0.0], "later_outputs": [40.0, 10.0],
        "later_seconds": [2.0, 0.5], "engine_steps": [10.0, 10.0], "drafts": [40.0, 10.0], "draft_tokens": [80.0, 20.0],
        "accepted": [40.0, 10.0], "accepted_by_position": [[30, 10], [10, 0]],
    }  # fmt: skip
    return {
        name: np.array(values, dtype=object if name == "accepted_by_position" else None)
        for name, values in (plain | columns).items()
    }


def test_numbers_of_several_engines():
    numbers = watched.headline(rows())
    assert numbers["tokens_per_s"] == 100.0 and numbers["accepted_per_scheduled"] == 0.5
    assert (numbers["later_output_ms"], numbers["first_token_ms"], numbers["engine_steps_per_s"]) == (
        50.0,
        150.0,
        10.0,
    )
    assert (numbers["tokens_per_draft"], numbers["running"], numbers["waiting"]) == (2.0, 4.0, 2.0)
    assert watched.position_shares(rows()) == [0.8, 0.2]
    table = watched.engines(rows())
    assert [row["tokens/s"] for row in table] == [80.0, 20.0] and table[1]["cache in use"] == 0.25


def test_without_drafts_or_rows_the_figures_say_so():
    none = rows(
        drafts=[np.nan] * 2, draft_tokens=[np.nan] * 2, accepted=[np.nan] * 2, accepted_by_position=[[], []]
    )
    assert watched.headline(none)["accepted_per_scheduled"] is None and watched.position_shares(none) == []
    for figure in (watched.acceptance(none), watched.by_position(none), watched.latency({})):
        assert figure.layout.annotations
    assert watched.headline({})["tokens_per_s"] is None and watched.engines({}) == []
