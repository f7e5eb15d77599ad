"""The real worker with the real target: greeted, served, recorded, obedient."""

import json

import pytest

from avlab.config import SPIN, RunConfig
from avlab.engine import fetch
from avlab.lab.lab import Lab
from avlab.wire import frames as fr

pytestmark = [pytest.mark.model, pytest.mark.slow]


def test_a_run_with_the_real_target(tmp_path):
    fetch.fetch()
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps({"draft": [], "verify": [[1, 20.0], [64, 60.0]]}))
    config = RunConfig.make(
        policy="none", drafter="none", max_num_seqs=2, max_model_len=512, arrival="closed:2", requests=3,
        max_new_tokens=6, temperature=0, costs=str(costs), threads=1, keep_text=True, workload="arithmetic",
    )  # fmt: skip
    frames = []
    with Lab(tmp_path / "lab.duckdb", frames.append) as lab:
        run = lab.run(config)
        assert lab.supervisor.wait(120), lab.supervisor.log_tail()
        status = lab.supervisor.status()
        assert (status.outcome, status.error) == ("done", ""), lab.supervisor.log_tail()
        summary = lab.show(run)
        with lab.database.cursor() as con:
            texts = con.execute("SELECT prompt, output, finish FROM requests").fetchall()
    assert (summary["state"], summary["requests"], summary["policy"]) == ("finished", 3, "none")
    assert summary["tokens_per_step"] == 1.0 and summary["ledger_ms"]["verify"] > 0
    assert all(prompt and output and finish in ("end", "length") for prompt, output, finish in texts)
    states = [frame.state for frame in frames if isinstance(frame, fr.Heartbeat)]
    assert "loading the target" in states
    hello = next(frame for frame in frames if isinstance(frame, fr.Hello))
    assert hello.machine["threads"] == 1 and hello.machine["spin"] == SPIN and len(hello.target_hash) == 16
    assert any(isinstance(frame, fr.CostProfile) and frame.source == str(costs) for frame in frames)
    assert frames[-1].complete


def test_it_stops_while_it_is_still_loading(tmp_path):
    with Lab(tmp_path / "lab.duckdb") as lab:
        lab.run(RunConfig.make(policy="none", drafter="none", max_num_seqs=2, max_model_len=512))
        assert not lab.supervisor.wait(2.0)
        status = lab.supervisor.stop()
        assert (status.outcome, status.error) == ("stopped", "")
        assert lab.runs() == []
