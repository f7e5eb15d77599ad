"""The process that audits, writes texts and computes rows, over a tiny model: what it says and takes up again."""

import json

import numpy as np
import pytest
from tiny_models import write_block_drafter, write_llama, write_tokenizer
from typer.testing import CliRunner

from avlab.bias.process import AuditFailed, AuditProcess, RowsProcess, TextProcess
from avlab.bias.text_measures import MEASURES
from avlab.commands.audit import UNFINISHED
from avlab.commands.bias import app
from avlab.config import RunConfig
from avlab.training.model import DrafterShape

PATIENCE = 300


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    target = write_llama(
        folder / "target", seed=3, sharpness=2.0, eos_token_id=1, max_position_embeddings=1024
    )
    write_tokenizer(target)
    shape = DrafterShape(
        K=4, key_layers=(1, 2, 3), state_layers=(1, 2), input_width=24, markov_rank=8, draft_vocabulary=32
    )
    drafter = write_block_drafter(folder / "block", target, shape)
    return RunConfig.make(
        target=str(target),
        drafter=str(drafter),
        dtype="float32",
        threads=1,
        workload="chat",
        max_model_len=1024,
    )


def finished(process):
    assert process.done.wait(PATIENCE)
    process.close()
    assert not process.error, process.error
    return process.rows


def test_an_audit_says_what_it_found(config):
    rows = finished(AuditProcess(["maximum:0.2", "drawn:0.2"], [0, 1], 1500, "you and it", config))
    assert set(rows) == {(rule, seed) for rule in ("maximum:0.2", "drawn:0.2") for seed in (0, 1)}
    for (rule, _), row in rows.items():
        assert row["done"] and row["continuations"] == 1500 and row["tests"] == 8
        assert row["label"].startswith("UNSOUND") == (rule == "drawn:0.2") == (not row["sound"])
        assert row["predictor"] == rule.partition(":")[0] and 0 < row["auc"] < 1 and row["labelled"] > 1000
        assert (row["exact_total_variation"] > 1e-9) == (rule == "drawn:0.2")


def test_finished_audits_are_not_made_again(config, tmp_path):
    kept = tmp_path / "audit.jsonl"
    first = finished(AuditProcess(["none"], [0], 600, "you", config, results=kept))
    lines = kept.read_text().splitlines()
    assert len(lines) == 1
    kept.write_text(lines[0] + "\n" + lines[0][:40] + "\n")  # the last one was cut short
    both = finished(AuditProcess(["none"], [0, 1], 600, "you", config, results=kept))
    assert set(both) == {("none", 0), ("none", 1)} and len(kept.read_text().splitlines()) == 3
    again, before = both["none", 0], first["none", 0]
    assert again["history"] == before["history"] and (again["tests"], before["tests"]) == (4, 2)
    other = finished(AuditProcess(["none"], [0], 700, "you", config, results=kept))
    assert other["none", 0]["continuations"] == 700  # another case: made, not read


def test_a_kept_verdict_is_corrected_for_the_tests_of_this_audit(config, tmp_path):
    kept = tmp_path / "audit.jsonl"
    finished(AuditProcess(["none"], [0], 600, "you", config, results=kept))
    row = json.loads(kept.read_text())
    row["one"]["p_value"] = row["two"]["p_value"] = 0.004
    kept.write_text(json.dumps(row) + "\n")
    assert finished(AuditProcess(["none"], [0], 600, "you", config, results=kept))["none", 0]["rejected"]
    two = finished(AuditProcess(["none"], [0, 1], 600, "you", config, results=kept))
    assert not two["none", 0]["rejected"]  # 0.004 times 4


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "cannot be written"), ("missing/audit.jsonl", "cannot be written"), ("binary", "holds no results")],
)
def test_a_file_of_results_that_is_none_is_said_before_anything_starts(config, tmp_path, name, sentence):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AuditFailed, match=sentence):
        AuditProcess(["none"], [0], 600, "you", config, results=tmp_path / name)


def test_an_audit_ends_with_a_sentence_when_its_results_cannot_be_kept_any_more(config, tmp_path):
    kept = tmp_path / "folder" / "audit.jsonl"
    kept.parent.mkdir()
    process = AuditProcess(["none"], [0], 600, "you", config, results=kept)
    kept.unlink()
    kept.parent.rmdir()
    assert process.done.wait(PATIENCE)
    assert "cannot be written" in process.error and process._process.poll() is not None


def test_results_of_audits_of_another_form_are_made_again(config, tmp_path):
    kept = tmp_path / "audit.jsonl"
    finished(AuditProcess(["none"], [0], 600, "you", config, results=kept))
    row = json.loads(kept.read_text())
    del row["case"]["form"]
    kept.write_text(json.dumps(row) + "\n")
    finished(AuditProcess(["none"], [0], 600, "you", config, results=kept))
    assert len(kept.read_text().splitlines()) == 2


def test_texts_are_measured_and_compared(config):
    rows = list(finished(TextProcess(["maximum:0.15", "drawn:0.15"], 24, 24, config, K=3)).values())
    sound, bent = rows
    assert sound["difference"] is None and bent["label"] == "UNSOUND drawn:0.15"
    assert set(sound["measures"]) == set(bent["difference"]) == set(MEASURES)
    for name in MEASURES:
        change = bent["measures"][name][0] - sound["measures"][name][0]
        assert bent["difference"][name][0] == pytest.approx(change, abs=1e-9)
    assert len(sound["texts"]) == 3 and sound["texts"][0]["prompt"] == bent["texts"][0]["prompt"]


def test_rows_at_a_prompt(config):
    row = finished(RowsProcess("you and it", config))[("you and it",)]
    assert len(row["names"]) == len(row["target"]) == len(row["draft"]) == 8
    np.testing.assert_allclose([sum(row["target"]), sum(row["draft"])], 1, atol=1e-4)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (lambda c: AuditProcess(["best"], [0], 600, "you", c), "no rule 'best'"),
        (lambda c: AuditProcess(["fixed:5"], [0], 600, "you", c), "5 drafts"),
        (lambda c: AuditProcess(["none"], [0], 600, "you " * 600, c), "shorten it"),
        (lambda c: TextProcess(["budget:same-step"], 8, 8, c), "cost that is set for one prompt"),
        (lambda c: TextProcess(["none"], 8, 8, c.changed(workload="nonsense")), "nonsense"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(config, order, sentence):
    process = order(config)
    assert process.done.wait(PATIENCE)
    assert sentence in process.error and "Traceback" not in process.error


def command(config, *arguments):
    return CliRunner().invoke(app, [*arguments, "--target", config.target, "--drafter", config.drafter])


def test_the_commands_print_tables(config):
    result = command(
        config, "audit", "--rule", "drawn:0.2", "--continuations", "3000", "--prompt", "you and it"
    )
    assert result.exit_code == 0 and "UNSOUND" in result.output and "Published" in result.output
    options = ["--rule", "maximum:0.15", "--rule", "drawn:0.15", "--requests", "6", "--max-new-tokens", "12"]
    result = command(config, "text", *options, "--K", "3", "--workload", "chat")
    assert result.exit_code == 0 and "6 requests" in result.output and "UNSOUND" in result.output


def test_an_audit_that_ran_out_of_time_says_so(config, tmp_path):
    options = ["--rule", "none", "--continuations", "1000000", "--duration", "0", "--prompt", "you"]
    result = command(config, "audit", *options, "--results", str(tmp_path / "audit.jsonl"))
    assert result.exit_code == UNFINISHED and "the same command goes on" in result.output


def test_a_failed_order_is_an_error_of_ours(config):
    result = command(config, "audit", "--rule", "best")
    assert isinstance(result.exception, AuditFailed) and "no rule 'best'" in str(result.exception)
