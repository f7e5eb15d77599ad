"""Step costs go from a run to a file and back, to the last digit."""

import json

import pytest
import store_frames as frames
from command_line import avlab, one_sentence
from places import ROOT

from avlab.cost_file import read_samples
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.errors import NoCosts
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder

DRAFT, VERIFY = [(4, 3, 1 / 3), (1, 1, 2.2), (1, 3, 0.1 + 0.2)], [(8, 22.000000000000004), (1, 19.0)]


def record(database, *sent):
    run = new_run_id()
    with Recorder(database) as recorder:
        for envelope in frames.envelopes(sent, run):
            recorder.record(envelope)
    return run


def profile():
    plain = frames.cost_profile()
    return type(plain)("profiled", DRAFT, VERIFY, plain.draft_table, plain.verify_table, "cc")


def test_the_samples_of_a_run_come_back_in_their_order(tmp_path):
    with Database(tmp_path / "lab.duckdb") as database:
        run = record(database, frames.hello(), frames.cost_profile(), profile(), frames.bye())
        other = record(database, frames.hello(), frames.bye())
        con = database.cursor()
        assert queries.cost_samples(con, run) == {"cost_hash": "cc", "draft": DRAFT, "verify": VERIFY}
        with pytest.raises(NoCosts, match="has timed no steps"):
            queries.cost_samples(con, other)


def test_the_command_line_writes_a_file_that_a_run_can_be_given(tmp_path, monkeypatch):
    path = tmp_path / "lab.duckdb"
    monkeypatch.setenv("AVLAB_DATABASE", str(path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with Database(path) as database:
        record(database, frames.hello(), profile(), frames.bye())
    written = avlab("costs", "last", str(tmp_path / "costs.json"), "--json")
    assert json.loads(written.stdout) == {"file": str(tmp_path / "costs.json"), "cost_hash": "cc"}
    assert read_samples(tmp_path / "costs.json") == (DRAFT, VERIFY)
    assert "is there already" in one_sentence(avlab("costs", "last", str(tmp_path / "costs.json")))
