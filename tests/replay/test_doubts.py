"""A trace and a machine that do not go together, or a trace that is short for a load, are said to be so."""

import dataclasses

import pytest
from traces import made_up

from avlab.config import ConfigError
from avlab.experiments.replay_cells import Block, Cell
from avlab.experiments.replay_sweep import Case
from avlab.kinds.replay import ReplayConfig
from avlab.machines import MachineError, machine
from avlab.machines.imported import Imported, text_of
from avlab.replay.doubts import doubts, drawn_again
from avlab.replay.trace import write_trace


def timed(folder, depth, model="made up", trust="profiled here"):
    """A machine whose drafts were timed to this depth."""
    table = Imported([(1, depth, 1.0), (8, depth, 2.0)], [(1, 5.0), (64, 9.0)], True, "avlab")
    path = folder / "own.toml"
    path.write_text(text_of(table, "Own", model, "a test", trust=trust, most_requests=8))
    return str(path)


def test_a_trace_that_drafts_deeper_than_was_timed_is_refused(tmp_path):
    name = timed(tmp_path, depth=3)
    assert machine(name, 3).milliseconds(1, 3, 1)[0] == 1.0
    write_trace(made_up(K=4), tmp_path / "deep.parquet")
    sentence = "up to 3 positions were timed, and the trace drafts 4"
    with pytest.raises(MachineError, match=sentence):
        Case(str(tmp_path / "deep.parquet"), name).opened()
    with pytest.raises(ConfigError, match=sentence):
        ReplayConfig.make(machine=name, trace=str(tmp_path / "deep.parquet"), policy="none")


def test_costs_of_another_model_are_said(tmp_path):
    about = made_up().about
    assert doubts(machine(timed(tmp_path, 3), 3), about) == []
    other = doubts(machine(timed(tmp_path, 3, model="another"), 3), about)
    assert len(other) == 1 and "timed here with another, and the trace is made up's" in other[0]
    parametric = dataclasses.replace(about, origin="parametric")
    assert doubts(machine(timed(tmp_path, 3, model="another"), 3), parametric) == []
    # whose costs a published machine's are stands in every badge
    assert doubts(machine(timed(tmp_path, 3, model="another", trust="imported"), 3), about) == []


def test_a_trace_that_is_short_for_a_load_says_how_often_texts_are_drawn_again(tmp_path):
    assert drawn_again(16, 48, 140) == ""
    assert "texts are drawn again, 4.5 times each" in drawn_again(256, 768, 140)
    write_trace(made_up(texts=6), tmp_path / "own.parquet")
    case = Case(str(tmp_path / "own.parquet"), timed(tmp_path, 3))
    block = Block(1, 1.0, 1, 1, 1, 1, 1, 1)
    cells = [Cell("none", load, 3 * load, 6, (block,)) for load in (1, 8)]
    assert any(
        "short for 8 requests: a repeat serves 24 texts and the trace has 6" in d for d in case.doubts(cells)
    )
    assert case.doubts(cells[:1]) == case.doubts() == []
