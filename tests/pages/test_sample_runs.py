"""The runs that ship with the project: they can be imported, every page draws them, and they name no machine."""

import getpass
import json
import re
import socket

import pyarrow as pa
import pyarrow.parquet
import pytest
from dashboard import ALL_PAGES, charts, opened, page, said, until

from avlab import sample, sample_answer, story
from avlab.figures import segments
from avlab.policies.arm import DEFAULT_ARM
from avlab.report import report
from avlab.speculation.sampling import USUAL
from avlab.store.feeds import Feed
from avlab.store.retention import tags_of
from avlab.ui import host

CHARTS = {
    "live": 9,
    "coefficients": 4,
    "calibration": 6,
    "budget": 5,
    "ab": 3,
    "frontier": 1,
}  # of a page with all its charts
EXPERIMENTS = {
    "ab": ("ab", "wins", "loses"),
    "frontier": ("frontier",),
}  # pages that show a run of one sort only
SHIPPED = sorted(folder.name for folder in sample.FOLDER.iterdir())
ABSOLUTE = re.compile(r"""(?:^|[\s"'(=:,])(?:/[\w.~-]+){1,}|[A-Za-z]:\\|\\\\\w|~/""")
MOST_BYTES = 9_500_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A lab that was opened for the first time: the ids of the shipped runs, by name."""
    with opened(tmp_path_factory.mktemp("lab") / "lab.duckdb") as lab:
        sample.add(lab.database)
        yield {name: manifest(name)["run_id"] for name in SHIPPED}


def manifest(name):
    return json.loads((sample.FOLDER / name / "manifest.json").read_text())


def texts(values):
    """Every text in what a parquet file holds, within lists and JSON too."""
    if isinstance(values, str):
        yield values
        if values.startswith(("{", "[")):
            yield from texts(json.loads(values))
    elif isinstance(values, dict):
        for name, value in values.items():
            yield name
            yield from texts(value)
    elif isinstance(values, list):
        for value in values:
            yield from texts(value)


def test_a_new_lab_has_the_shipped_runs_and_shows_the_story(runs):
    assert set(SHIPPED) == set(sample.RECORDINGS)
    listed = host.run_list()
    assert {run["run_id"] for run in listed} == set(runs.values())
    assert {run["state"] for run in listed} == {"finished"}
    app = page()
    assert runs["story"][-8:] in said(app) and charts(app) == CHARTS["live"]


@pytest.mark.parametrize("shipped", SHIPPED)
@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_page_draws_a_shipped_run(name, shipped, runs):
    app = page(name, runs[shipped])
    assert not app.exception and not app.main.error
    if name in CHARTS and shipped in EXPERIMENTS.get(name, SHIPPED):
        assert charts(app) == CHARTS[name]
        assert runs[shipped][-8:] in said(app)


@pytest.mark.parametrize(
    ("name", "button", "arms"),
    [
        ("ab", "Show the last A/B", [DEFAULT_ARM, "fixed:2", "fixed:7", "none"]),
        ("frontier", "Show the last frontier", [DEFAULT_ARM, "fixed:2", "fixed:7", "none"]),
    ],
)
def test_a_page_of_experiments_leads_from_the_drifting_run_to_the_shipped_one(name, button, arms, runs):
    app = page(name, runs["drifting"])
    next(each for each in app.button if each.label == button).click().run()
    assert not app.exception and charts(app) == CHARTS[name]
    assert list(dict.fromkeys(app.dataframe[0].value["arm"])) == arms


@pytest.mark.parametrize("shipped", SHIPPED)
def test_a_shipped_run_names_no_folder_user_or_machine(shipped):
    folder = sample.FOLDER / shipped
    found = {
        text for file in folder.glob("*.parquet") for text in texts(pa.parquet.read_table(file).to_pylist())
    }
    assert "SmolLM2-135M-Instruct" in found  # texts are read at all
    assert [text for text in found if ABSOLUTE.search(text)] == []
    about = pa.parquet.read_table(folder / "runs.parquet").to_pylist()[0]["machine"]
    words = {word.lower() for text in texts(about) for word in re.findall(r"[\w.-]+", text)}
    assert not words & {getpass.getuser().lower(), socket.gethostname().lower()}


@pytest.mark.parametrize(
    "text", ["/home/ann/lab.duckdb", "in /root", '{"a":"/x/y"}', r"C:\Users\ann", "~/lab"]
)
def test_a_folder_in_a_text_is_found(text):
    assert ABSOLUTE.search(text)


def test_the_shipped_runs_are_small():
    assert sum(file.stat().st_size for file in sample.FOLDER.rglob("*") if file.is_file()) < MOST_BYTES


def test_what_the_story_says_of_its_numbers_is_what_its_recording_shows(runs):
    with host.connection() as con:
        feed = Feed(runs["story"])
        feed.refresh(con, live=False)
    calm, busy, always, again, best, calm_again = segments.segments(feed.steps, feed.blocks)
    said = {scene.title: scene.says for scene in story.SCENES}
    assert "about three of them" in said["Few users, and the policy decides"] and 2.5 < calm["verified"] < 3.5
    assert "about two a request" in said["Load rises"] and 1.5 < busy["verified"] < 2.5
    told = said["The same load, always seven draft tokens"]
    assert "about a quarter" in told and 0.2 < always["tokens_per_s"] / busy["tokens_per_s"] < 0.32
    assert "five times as long" in told and 4.3 < always["step_ms"] / busy["step_ms"] < 5.7
    assert again["tokens_per_s"] == pytest.approx(busy["tokens_per_s"], rel=0.1)
    assert (
        1.0 < again["tokens_per_s"] / best["tokens_per_s"] < 1.3 and calm_again["verified"] > busy["verified"]
    )


def test_a_report_has_headline_coefficients_calibration_and_ledger(runs):
    with host.connection() as con:
        text = report(con, runs["story"])
    for title in ("Headline, emulated", "Where a step", "Slope of", "Intercepts of", "Calibration, emulated"):
        assert f"<h2>{title}" in text
    for name in ("throughput, tokens/s", "accepted / admitted", "tokens per step"):
        assert f"<th>{name}</th>" in text


def test_tags_are_words_of_notes():
    assert tags_of(["#quiet and #b300.", "no#tag here", "# alone, #quiet"]) == ["#quiet", "#b300"]


def test_the_answer_that_ships_can_be_drawn_and_names_what_its_steps_took():
    answer = sample_answer.shipped()
    assert len(answer.steps) > 10 and answer.arm == DEFAULT_ARM
    assert (answer.temperature, answer.top_p) == (USUAL.temperature, USUAL.top_p)
    assert all((step.verify_ms or 0) > 0 for step in answer.steps)
    fates = {slot.fate for step in answer.steps for slot in step.draft}
    assert {"accepted", "rejected", "trimmed"} <= fates
    assert not ABSOLUTE.search("".join(text for step in answer.steps for text in step.texts))


def test_while_the_story_runs_pages_of_experiments_lead_to_shipped_ones(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        sample.add(lab.database)
        run = story.play(lab)
        until(lambda: run in {each["run_id"] for each in host.run_list()})
        for name, sort in (("ab", "A/B"), ("frontier", "frontier")):
            app = page(name)
            assert not app.exception and f"Show the last {sort}" in [each.label for each in app.button]
            assert "Ships with avlab." in said(app)
