"""avlab.open(path) in a notebook."""

import os
import pickle
import subprocess
import sys

import pandas as pd
import pytest
import store_frames as frames
from places import ROOT

import avlab
from avlab.lab.lab import Lab
from avlab.store.errors import DatabaseHeld, StoreError, UnknownRun
from avlab.store.frames import FRAMES
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("notebook") / "lab.duckdb"


@pytest.fixture(scope="module")
def run(path):
    run = new_run_id()
    with Recorder(path) as recorder:
        for envelope in [
            *frames.envelopes(frames.whole_run()[:-1]),
            *frames.envelopes(frames.whole_run(), run),
        ]:
            recorder.record(envelope)
    return run


def test_every_table_is_a_frame_of_that_run_only(path, run):
    with avlab.open(path) as lab:
        found = lab.run(run)
        sizes = {
            name: len(getattr(found, name))
            for name in ("steps", "positions", "coefficients", "drafts", "requests", "cost_samples",
                         "cost_tables", "blocks", "events", "calibration")
        }  # fmt: skip
        calibration = sizes.pop("calibration")
        assert sizes == {
            "steps": 40, "positions": 120, "coefficients": 6, "drafts": 30, "requests": 3, "cost_samples": 5,
            "cost_tables": 15, "blocks": 3, "events": 2,
        }  # fmt: skip
        assert calibration > 100
        assert all(isinstance(getattr(found, name), pd.DataFrame) for name in sizes)
        assert "run" not in found.steps.columns
        assert len(lab.runs()) == 2 and set(lab.runs()["state"]) == {"finished", "cut short"}


def test_frames_hold_what_was_recorded(path, run):
    with avlab.open(path) as lab:
        found = lab.run(run[-9:])
        assert found.id == run and repr(found) == f"<run {run}>"
        assert found.steps["tokens"].sum() == 30 * 8 + 10 * 400
        assert found.steps["admitted"][0].tolist() == [4, 2, 1]
        assert found.positions.groupby("position")["accepted"].sum().tolist() == [120, 40, 0]
        assert found.positions["step"].nunique() == 40
        drafts = found.drafts
        assert (
            drafts["max_log_odds"].tolist()[:3] == [0.0, 0.125, 0.25] and drafts["head_log_odds"].isna().all()
        )
        assert drafts.columns.tolist()[3:6] == ["position", "max_log_odds", "head_log_odds"]
        labels = found.drafts.groupby("position")["label"]
        assert labels.count().tolist() == [10, 10, 0], "a censored slot has no label"
        assert found.drafts["label"].dropna().astype(float).mean() == 0.5
        assert found.blocks["kind"].tolist() == ["wash-out", "serve", "window"]
        assert found.summary()["tokens_per_s"] == pytest.approx(80.0)


def test_the_last_run_and_an_unknown_one(path, run):
    with avlab.open(path) as lab:
        assert lab.run().id == max(lab.runs()["run_id"])
        with pytest.raises(UnknownRun, match="No run answers to 'xyz'"):
            lab.run("xyz")


def test_reading_changes_nothing_and_a_missing_file_is_not_made(path, run, tmp_path):
    before = path.read_bytes()
    with avlab.open(str(path)) as lab:
        lab.run(run).summary()
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="There is no database at"):
        avlab.open(tmp_path / "none.duckdb")
    assert list(tmp_path.iterdir()) == []


def test_two_notebooks_may_read_at_once(path, run):
    code = f"import avlab; print(len(avlab.open({str(path)!r}).run({run!r}).steps))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with avlab.open(path):
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert said.stdout.strip() == "40", said.stderr


def test_a_notebook_is_told_who_writes_the_file(tmp_path):
    path = tmp_path / "lab.duckdb"
    code = f"import avlab\ntry: avlab.open({str(path)!r})\nexcept Exception as e: print(type(e).__name__, e)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with Recorder(path):
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert said.stdout.startswith(DatabaseHeld.__name__), said.stderr
    assert f"held by another process (PID {os.getpid()}, since" in said.stdout


def test_a_notebook_reads_through_the_lab_that_has_the_file(tmp_path):
    path, run = tmp_path / "lab.duckdb", new_run_id()
    with Recorder(path) as recorder:
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
    with avlab.open(path) as read:
        expected = {name: getattr(read.run(run), name) for name in FRAMES}
        summary = read.run(run).summary()
    code = (
        "import avlab, pickle, sys\n"
        f"lab = avlab.open({str(path)!r})\n"
        f"run = lab.run({run[-9:]!r})\n"
        f"found = {{name: getattr(run, name) for name in {tuple(FRAMES)!r}}}\n"
        "try: lab.run('xyz')\n"
        "except Exception as error: wrong = str(error)\n"
        "pickle.dump((found, run.summary(), len(lab.runs()), wrong), sys.stdout.buffer)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with Lab(path):
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert not told.returncode, told.stderr.decode()
    found, known, runs, wrong = pickle.loads(told.stdout)
    for name, frame in expected.items():
        pd.testing.assert_frame_equal(found[name], frame, check_dtype=False)
    assert known == summary and runs == 1 and "No run answers to 'xyz'" in wrong


def test_damage_is_a_sentence_in_a_notebook(path, run, tmp_path):
    damaged = tmp_path / "lab.duckdb"
    held = bytearray(path.read_bytes())
    for at in range(3 * 4096, len(held), 4096):
        held[at + 100 : at + 200] = bytes(100)
    damaged.write_bytes(held)
    with pytest.raises(StoreError) as told:
        found = avlab.open(damaged).run(run)
        for name in FRAMES:
            getattr(found, name)
    assert "lab.duckdb" in str(told.value)


def test_the_owner_reads_its_own_file_while_it_records(tmp_path):
    run = new_run_id()
    with Recorder(tmp_path / "lab.duckdb") as recorder, avlab.open(tmp_path / "lab.duckdb") as lab:
        for envelope in frames.envelopes([frames.hello(), frames.block(0), frames.steps(0, 5)], run):
            recorder.record(envelope)
        recorder.flush()
        assert len(lab.run().steps) == 5 and lab.runs()["state"].tolist() == ["running"]


def test_importing_avlab_is_light():
    code = "import sys, avlab; print(sorted({'duckdb', 'pandas', 'torch', 'numpy'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert said.stdout.strip() == "[]", said.stderr
