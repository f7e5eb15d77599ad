"""Wherever a replayed run states a speed, it says that the speed is emulated: pages, command line, report, export."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from dashboard import PAGES, finished_run, opened, page, said
from replay_runs import VALUES, small_trace

from avlab.experiments.plan import make_plan
from avlab.kinds.registry import make_config
from avlab.store.database import connect_reader
from avlab.store.export import export_run

BADGE = "B300 × 4, DeepSeek-V4-Flash's costs, made up's text at temperature 1"
# a number with a unit of speed or time, or a name of one
STATED = r"\d ?(tokens/s|ms\b|min in all)|% \[.*\] (faster|slower)"
SPEED = re.compile(
    f"{STATED}|tokens/s|tokens a second|milliseconds|\\bThroughput\\b|\\bInteractivity\\b", re.IGNORECASE
)
STATED = re.compile(STATED)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with a replay, an A/B of replays and a run of the engine's stand-in in it."""
    folder = tmp_path_factory.mktemp("lab")
    trace, path = small_trace(folder), folder / "lab.duckdb"
    with opened(path) as lab:
        measured = finished_run(lab)
        plain = lab.run(VALUES | {"trace": trace, "duration": 4.0}, kind="replay")
        assert lab.supervisor.wait(120) and lab.supervisor.status().outcome == "done", lab.supervisor.status()
        config, plan = make_plan(
            make_config(VALUES | {"trace": trace}, "replay"), ["adaptive", "fixed:1", "fixed:3"],
            concurrency=8, rounds=12, block="30steps", learn=20,
        )  # fmt: skip
        ab = lab.run(config, plan)
        assert lab.supervisor.wait(120) and lab.supervisor.status().outcome == "done", lab.supervisor.status()
    return SimpleNamespace(path=path, plain=plain, ab=ab, measured=measured)


def statements(block, title=""):
    """Everything that a page says, each with the title that stands over it; over a table, with the caption too."""
    last = ""
    for element in block.children.values():
        if hasattr(element, "children"):
            yield from statements(element, title)
        elif element.type in ("markdown", "caption", "info", "warning", "error", "success"):
            text = str(element.value)
            title = text if text.startswith("#") else title
            yield element.type, text, f"{title} {text}"
        elif element.type == "metric":
            yield "metric", f"{element.label} {element.value}", element.label
        elif element.type in ("arrow_data_frame", "dataframe"):
            yield "table", " ".join(map(str, element.value.columns)), f"{title} {last}"
        last = getattr(element, "value", "") if element.type == "caption" else ""


def unsaid(app):
    """What states a speed and does not say that it is emulated."""
    found = [*statements(app.main), *statements(app.sidebar)]
    speeds = [each for each in found if (STATED if each[0] == "caption" else SPEED).search(each[1])]
    return [text for _, text, told in speeds if "emulated" not in told.lower()]


@pytest.mark.parametrize("run", ["plain", "ab"])
@pytest.mark.parametrize("name", [name for name in PAGES if name != "runs"])
def test_every_speed_on_a_page_is_said_to_be_emulated(name, run, database):
    with opened(database.path):
        app = page(name, getattr(database, run))
        assert not app.exception and not app.main.error
        assert BADGE in said(app).replace("\\", "")
        explained = [
            text for text in unsaid(app) if "</p>" not in text and "not tokens/s ÷ tokens/s" not in text
        ]
        assert explained == []


def test_the_walk_finds_what_is_not_said(database):
    with opened(database.path):
        app = page("live", database.measured)
        assert len(unsaid(app)) > 3
        assert not any("emulated" in text.lower() for _, text, _ in statements(app.main))


def test_lists_and_comparisons_name_what_is_emulated(database):
    with opened(database.path):
        app = page("runs")
        table = app.dataframe[0].value
        assert sorted(table["emulated"]) == [BADGE, BADGE, "no"]
        labels = next(box.options for box in page("live").sidebar.selectbox if box.label == "Run on show")
        assert sum("emulated" in label for label in labels) == 2


def told(database, *words):
    done = subprocess.run(
        [sys.executable, "-m", "avlab", *words, "--database", str(database.path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("run", ["plain", "ab"])
def test_the_command_line_says_it(run, database):
    name = getattr(database, run)
    shown = told(database, "show", name)
    assert BADGE in " ".join(shown.split())
    sentences = [
        line
        for line in shown.splitlines()
        if re.search(r"\d ?tokens/s|mean ms|faster|slower|between [+−]", line)
    ]
    assert sentences and all("emulated" in line.lower() for line in sentences if "÷" not in line)
    assert sum("finished, emulated" in line for line in told(database, "runs").splitlines()) == 2
    plain = json.loads(told(database, "show", name, "--json"))
    assert plain["emulated"].endswith(BADGE)
    if run == "ab":
        assert plain["ab"]["emulated"].endswith(BADGE)
        assert all(text.startswith("Emulated: ") for text in plain["ab"]["verdicts"])
    assert json.loads(told(database, "show", database.measured, "--json"))["emulated"] == ""


@pytest.mark.parametrize("run", ["plain", "ab"])
def test_reports_and_exports_say_it(run, database, tmp_path):
    from avlab.report import report

    with connect_reader(database.path) as con:
        text = report(con, getattr(database, run))
        manifest = export_run(con, getattr(database, run), tmp_path / "out")
    assert manifest["emulated"].endswith(BADGE)
    assert BADGE.replace("'", "&#x27;") in text
    before = text[: text.index("<h2>Settings</h2>")]
    parts = re.split(r"(?=<h2>|<p)", before)
    speeds = [part for part in parts if re.search(r"tokens/s|, ms|faster|slower|Throughput", part)]
    over = dict(zip(parts[1:], parts, strict=False))
    assert speeds and all("emulated" in (part + over.get(part, "")).lower() for part in speeds)
