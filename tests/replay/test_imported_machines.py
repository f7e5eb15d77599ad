"""Tables from elsewhere as machines: the lab's, SGLang's and TensorRT-LLM's, from files and from recorded runs."""

import json

import numpy as np
import pytest
import store_frames as frames
from command_line import avlab, one_sentence
from places import ROOT

from avlab.machines import MachineError, machine
from avlab.machines.imported import read_table, text_of
from avlab.machines.in_serving import prompt_saving, rest_line, served_draft, served_verify
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.errors import NoCosts
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder

B300 = "b300-deepseek-v4-flash-tp4"
OWN = {"draft": [[1, 1, 0.5], [1, 7, 2.0], [16, 1, 1.5], [16, 7, 9.0]], "verify": [[1, 10.0], [64, 40.0]]}
DIAGONAL = {
    "sample_batch_tokens": [8, 16, 64],
    "sample_steps_per_sec": [100.0, 95.0, 50.0],
    "max_batch_tokens": 64,
}
# of a test of TensorRT-LLM's, in SGLang's additive form
ADDITIVE = {
    "bias_seconds": 0.025244,
    "bs_probes": [32, 64, 128, 256],
    "alpha_seconds": [0, 0.00218, 0.01146, 0.01934],
    "m_probes": [64, 96, 1536],
    "theta_seconds": [0.00968, 0.01108, 0.10564],
}
WHOLE = {"token_counts": [8, 100], "step_time_ms": [5.0, 9.0], "_meta": {"lookup": "interp"}}


def imported(tmp_path, plain, **settings):
    (tmp_path / "table.json").write_text(json.dumps(plain))
    table = read_table(tmp_path / "table.json")
    (tmp_path / "machine.toml").write_text(text_of(table, "A", "B", "C", **settings), encoding="utf-8")
    return table, machine(str(tmp_path / "machine.toml"), 7)


def test_the_labs_own_file(tmp_path):
    _, found = imported(tmp_path, OWN, step_ms=1.5, row_ms=0.1, prefill_tokens=256)
    assert found.milliseconds(16, 7, 64, prefill=4) == (9.0, 40.0, pytest.approx(1.5 + 6.0))
    assert found.milliseconds(1, 4, 1)[0] == pytest.approx(1.25)  # between depths 1 and 7
    assert found.executed().step(16, 7, 64) == pytest.approx(sum(found.milliseconds(16, 7, 64)))
    assert found.about.prefill_tokens == 256 and found.about.most_requests == 16


def test_sglangs_rates_of_whole_steps(tmp_path):
    table, found = imported(tmp_path, DIAGONAL)
    assert found.milliseconds(1, 7, 8)[:2] == (0.0, 10.0) and found.milliseconds(1, 7, 64)[1] == 20.0
    assert "part of every step" in table.missing[0] and "Inert" in " ".join(found.notes)


def test_sglangs_additive_table(tmp_path):
    table, found = imported(tmp_path, ADDITIVE)
    draft, verify, _ = found.milliseconds(128, 7, 96)
    assert (draft, verify) == (pytest.approx(11.46), pytest.approx(25.244 + 11.08))
    assert "by requests" in table.missing[0]


def test_tensorrts_table_of_whole_steps(tmp_path):
    _, found = imported(tmp_path, WHOLE)
    assert found.milliseconds(3, 7, 54)[1] == pytest.approx(7.0)


def test_a_profiled_machine_decides_by_the_convex_curve_and_is_timed_by_its_medians(tmp_path):
    plain = {"draft": OWN["draft"], "verify": [[1, 10.0], [2, 90.0], [3, 12.0], [3, 14.0], [3, 13.0]]}
    _, found = imported(tmp_path, plain, trust="profiled here")
    assert [found.milliseconds(1, 0, n)[1] for n in (1, 2, 3)] == [10.0, 90.0, 13.0]
    np.testing.assert_allclose(found.table().verify[1:], [10.0, 11.25, 12.5])
    _, foreign = imported(tmp_path, plain)
    assert foreign.table().verify[2] == 90.0


def test_what_steps_take_besides_is_a_line_by_requests():
    assert rest_line([]) == (0.0, 0.0)
    assert rest_line([(4, 2.0, 10)]) == (2.0, 0.0)
    base, each = rest_line([(1, 1.5, 100), (4, 3.0, 100), (16, 9.0, 10)])
    assert (base, each) == (pytest.approx(1.0), pytest.approx(0.5))
    assert rest_line([(1, 5.0, 10), (4, 1.0, 10)])[1] == 0.0


def test_prompt_tokens_need_no_logits():
    verify = [(1, 10.0), (101, 110.0)]
    # in serving passes are a tenth dearer than timed, and a prompt token is 0.25 ms cheaper than another
    plain, prompt = (11, 0, 22.0, 5), (61, 40, 1.1 * (70.0 - 0.25 * 40), 2)
    assert prompt_saving(verify, [plain, prompt]) == pytest.approx(0.25)
    assert prompt_saving(verify, [plain]) == prompt_saving(verify, [prompt]) == 0.0
    assert prompt_saving(verify, [plain, (61, 40, 90.0, 2)]) == 0.0


def test_steps_of_a_run_raise_its_timed_costs_to_what_serving_takes():
    verify = [(1, 10.0), (16, 20.0), (64, 60.0)]
    served = [(1, 0, 10.5, 100), (16, 0, 22.0, 50), (17, 0, 22.7, 50), (64, 0, 66.0, 10), (64, 30, 90.0, 500)]
    raised = served_verify(verify, served)
    assert [size for size, _ in raised] == [1, 16, 64]
    np.testing.assert_allclose(
        [ms for _, ms in raised], [10.5, 22.0, 66.0], rtol=0.01
    )  # too few at 64: as at 16
    assert served_verify(verify, served[4:]) == verify == served_verify(verify, [])
    draft = [(1, 1, 1.0), (1, 7, 3.0), (16, 1, 2.0), (16, 7, 8.0)]
    drafts = [(1, 7, 3.3, 40), (16, 7, 10.0, 40), (16, 5, 99.0, 40)]  # no draft of depth 5 was timed
    np.testing.assert_allclose([ms for *_, ms in served_draft(draft, drafts)], [1.1, 3.3, 2.5, 10.0])
    assert served_draft(draft, []) == draft


def test_a_step_with_prompts_is_cheaper_by_what_they_save(tmp_path):
    _, found = imported(tmp_path, OWN, prompt_saves_ms=0.2)
    assert found.milliseconds(4, 0, 64, prefill=30)[1] == pytest.approx(40.0 - 6.0)
    assert found.milliseconds(4, 0, 64)[1] == 40.0


BAD = {
    "no file": (None, "cannot be read"),
    "not JSON": (b"{", "no JSON"),
    "deep": (b"[" * 100_000, "no JSON"),
    "a list": ([], "no JSON object"),
    "unknown": ({"costs": []}, "known here"),
    "a hole": (OWN | {"verify": [[1]]}, "does not hold 2"),
    "text": (OWN | {"verify": [[1, "slow"]]}, "no number"),
    "nan": (OWN | {"verify": [[1, float("nan")]]}, "no number"),
    "a million rows": (OWN | {"verify": [[1, 1]] * 30_000}, "at most 20,000"),
    "negative": (OWN | {"verify": [[1, -3.0]]}, "above 0"),
    "a free pass": (OWN | {"verify": [[1, 0]]}, "above 0"),
    "half a token": (OWN | {"verify": [[1.5, 3.0]]}, "whole number"),
    "a huge size": (OWN | {"verify": [[10**9, 3.0]]}, "0 to 1,000,000"),
    "a huge number": (OWN | {"verify": [[1, 10**400]]}, "no number"),
    "no rate": (DIAGONAL | {"sample_steps_per_sec": [1.0, 0.0, 1.0]}, "above 0"),
    "sizes without rates": (DIAGONAL | {"sample_steps_per_sec": [1.0]}, "3 sizes have 1"),
    "costs without sizes": (ADDITIVE | {"m_probes": [1]}, "1 sizes"),
    "no numbers": (WHOLE | {"token_counts": "many"}, "no list"),
    "nothing": (WHOLE | {"token_counts": [], "step_time_ms": []}, "no list of 1"),
    "too large": (b" " * 2_100_000, "more than 2,000,000 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_table_is_one_sentence(tmp_path, name):
    content, said = BAD[name]
    path = tmp_path / "table.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(MachineError, match=said) as refused:
        read_table(path)
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


def test_a_run_becomes_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    sent = frames.cost_profile()
    with Database(tmp_path / "lab.duckdb") as database:
        run, bare = new_run_id(), new_run_id()
        with Recorder(database) as recorder:
            for each in frames.envelopes((frames.hello(), sent, frames.bye()), run):
                recorder.record(each)
            for each in frames.envelopes((frames.hello(), frames.bye()), bare):
                recorder.record(each)
        told = queries.step_costs(database.cursor(), run)
        with pytest.raises(NoCosts, match="has timed no steps"):
            queries.step_costs(database.cursor(), bare)
    assert told["verify"] and told["draft"] and told["rest"] == []
    answer = json.loads(avlab("machine", "import", str(run), "--json").stdout)
    assert answer["name"] == "this-machine"
    found = machine("this-machine", 3)
    assert found.about.trust == "profiled here" and found.verify.max() > 0
    assert "is there already" in one_sentence(avlab("machine", "import", str(run)))
    assert avlab("machine", "import", str(run), "--replace").returncode == 0
    shown = json.loads(avlab("machine", "show", "this-machine", "--json").stdout)
    assert shown["name"] == "this-machine" and shown["verify_ms"]
    assert "ships with avlab" in one_sentence(
        avlab("machine", "import", str(run), "--name", "h100-llama-3.1-8b-eagle3")
    )
    assert "is no name" in one_sentence(avlab("machine", "import", str(run), "--name", "../x"))


@pytest.mark.parametrize(
    ("sizes", "table", "captured"),
    [
        ([2, 4, 8], [1, 1, 1, 2, 2, 3, 3, 3, 3], 8),
        ([2, 4, 8, 12], [1, 1, 1, 2, 2, 3, 3, 3, 3, 3.5, 4, 4.5, 5], 8),
        ([1, 3, 5], [1, 1, 1.5, 2, 2.5, 3], 0),
    ],
)
def test_captured_sizes_show_in_a_table(sizes, table, captured):
    from avlab.store.step_costs import _captured

    assert _captured(sizes, table) == captured


def test_own_machines_are_listed_and_serve_replays(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    (tmp_path / "own.json").write_text(json.dumps(OWN))
    assert avlab("machine", "import", str(tmp_path / "own.json"), "--name", "mine").returncode == 0
    listed = json.loads(avlab("replay", "machines", "--json").stdout)
    assert listed["mine"]["trust"] == "imported" and B300 in listed
    replayed = avlab(
        "replay", "frontier", "--machine", "mine", "--arms", "none,fixed:2", "--concurrency", "4", "--json"
    )
    assert "mine" in json.loads(replayed.stdout)["emulated"]
