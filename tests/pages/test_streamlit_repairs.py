"""A click on a link, and a click just before it, hold against the timers of fragments."""

import time
from types import SimpleNamespace

import pytest
from places import ROOT, SUPPORT

from avlab.bench.dashboard import Dashboard
from avlab.bench.page_client import PageClient

APP = SUPPORT / "two_pages_app.py"
PATIENCE = 120.0  # seconds
QUIET = 2.5  # seconds without a message, after which a page is taken as drawn; a page takes one


@pytest.fixture(scope="module")
def repaired(tmp_path_factory):
    with Dashboard(tmp_path_factory.mktemp("app"), APP, REPAIRED="yes") as served:
        yield served.wait().url


def finished(message):
    return message.WhichOneof("type") == "script_finished"


def visit(client):
    """Open the first page: the hashes of both, the sidebar's fragment, its button."""
    client.ask()
    seen = SimpleNamespace(pages={}, fragment="", button="")
    for message in client.messages(finished):
        if message.WhichOneof("type") == "navigation":
            seen.pages = {page.page_name: page.page_script_hash for page in message.navigation.app_pages}
        elif message.WhichOneof("type") == "auto_rerun":
            seen.fragment = message.auto_rerun.fragment_id
        elif message.delta.new_element.HasField("button"):
            seen.button = message.delta.new_element.button.id
    assert set(seen.pages) == {"first", "second"} and seen.fragment and seen.button
    return seen


def drawn(client):
    """What the page says in the end."""
    end, said, quiet = time.monotonic() + PATIENCE, "", 0.0
    while (not said or quiet < QUIET) and time.monotonic() < end:
        message = client.receive(0.5)
        quiet = quiet + 0.5 if message is None else 0.0
        if message is not None and message.delta.new_element.markdown.body.startswith("drawn"):
            said = message.delta.new_element.markdown.body
    return said


def follow_a_link_under_a_timer(url):
    with PageClient(url, PATIENCE) as client:
        seen = visit(client)
        client.ask(seen.pages["second"])
        client.ask(seen.pages["first"], fragment=seen.fragment, automatic=True)
        return drawn(client)


def test_a_timer_does_not_take_the_reader_back(repaired):
    assert follow_a_link_under_a_timer(repaired) == "drawn: second with 0"


def test_the_fault_is_still_in_streamlit(tmp_path):
    with Dashboard(tmp_path, APP, REPAIRED="no") as served:
        assert follow_a_link_under_a_timer(served.wait().url) == "drawn: first with 0"


def test_a_click_in_a_fragment_after_a_link_counts_and_stays_on_the_new_page(repaired):
    with PageClient(repaired, PATIENCE) as client:
        seen = visit(client)
        client.ask(seen.pages["second"])
        client.ask(seen.pages["first"], fragment=seen.fragment, press=seen.button)
        assert drawn(client) == "drawn: second with 1"


def test_a_click_in_a_fragment_just_before_a_link_counts(repaired):
    with PageClient(repaired, PATIENCE) as client:
        seen = visit(client)
        client.ask(seen.pages["first"])
        client.ask(seen.pages["first"], fragment=seen.fragment, press=seen.button)
        client.ask(seen.pages["second"])
        assert drawn(client) == "drawn: second with 1"


def test_a_timer_of_the_page_that_is_shown_is_heard(repaired):
    with PageClient(repaired, PATIENCE) as client:
        seen = visit(client)
        client.ask(seen.pages["first"], fragment=seen.fragment, automatic=True)
        assert drawn(client) == "drawn: first with 0"


@pytest.mark.parametrize("folder", ["pages", "avlab/ui"])
def test_no_page_ends_by_st_stop_which_loses_the_clicks_that_wait(folder):
    for path in (ROOT / folder).rglob("*.py"):
        assert "st.stop()" not in path.read_text(encoding="utf-8"), path
