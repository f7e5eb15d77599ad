"""A kind of prompts is one file of `avlab/workloads`: it is listed, drawn from, mixed and served under its name."""

import sys

import pytest
from serving_loop import quick, serve  # noqa: F401  (quick is a fixture)

import avlab.workloads
from avlab.wire import frames
from avlab.workloads import Moment, WorkloadError, known_workloads, open_workload, registry

FILE = '''
"""Greetings, for a test."""

from avlab.workloads.base import Kind, own

KIND = Kind(
    name="greetings",
    description="short greetings",
    rung=9,
    max_new_tokens=8,
    build=lambda seed: [own("greetings", 8, (("user", f"Say hello to guest number {n}."),)) for n in range(200)],
)
'''


@pytest.fixture
def greetings(tmp_path, monkeypatch):
    (tmp_path / "greetings.py").write_text(FILE)
    monkeypatch.setattr(avlab.workloads, "__path__", [*avlab.workloads.__path__, str(tmp_path)])
    for known in (registry.kinds, registry._built):
        known.cache_clear()
    yield
    sys.modules.pop("avlab.workloads.greetings", None)
    monkeypatch.undo()
    for known in (registry.kinds, registry._built):
        known.cache_clear()


def test_one_file_is_a_workload(greetings):
    assert known_workloads()["greetings"] == "short greetings"
    for spec in ("greetings", "mixture:greetings=1", "drift:greetings,verse@60s"):
        arrived = open_workload(spec, "closed:3").due(Moment(0.0))
        assert {each.kind for each in arrived} == {"greetings"} and len(arrived) == 3
    wire, server = serve(workload="greetings", tokens=60, max_new_tokens=None)
    assert server.run() == "done"
    assert {request.kind for request in wire.of(frames.RequestDone)} == {"greetings"}


def test_it_was_there_for_that_test_alone():
    with pytest.raises(WorkloadError, match="no workload named 'greetings'"):
        open_workload("greetings")
