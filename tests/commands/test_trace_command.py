"""`avlab trace`: what ships, what a file holds, traces from rates alone, and what is refused."""

import json

import pytest
from traces import made_up
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.errors import is_ours
from avlab.kinds.replay import ReplayConfig
from avlab.replay.trace import read_trace, write_trace


def answer(*arguments):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


def test_what_ships_is_listed():
    traces = json.loads(answer("list", "--json").stdout)
    assert traces["reasoning"]["temperature"] == 0.6 and traces["greedy"]["temperature"] == 0
    assert "temperature 0.6, top-p 0.95" in answer("list").output


def test_what_a_file_holds_is_shown(tmp_path):
    write_trace(made_up(texts=12), tmp_path / "own.parquet")
    shown = answer("show", tmp_path / "own.parquet")
    assert "12 texts" in shown.output and "max_log_odds" in shown.output
    plain = json.loads(answer("show", tmp_path / "own.parquet", "--json").stdout)
    assert plain["origin"] == "recorded" and len(plain["rates"]) == 3


def test_a_recording_is_of_texts_that_can_be_and_overwrites_nothing(tmp_path):
    there = tmp_path / "there.parquet"
    there.write_bytes(b"kept")
    assert "is there already" in str(answer("record", there).exception) and there.read_bytes() == b"kept"
    new = tmp_path / "new.parquet"
    assert "give 1 to" in str(answer("record", new, "--texts", "0").exception)
    assert "draws is 0" in str(answer("record", new, "--draws", "0").exception)
    assert "greedy draft" in str(answer("record", new, "--draws", "2", "--temperature", "0").exception)


METRICS = """
vllm:num_requests_running{engine="0",model_name="m"} 1.0
vllm:generation_tokens_total{engine="0",model_name="m"} 240.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 140.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 20.0
"""
PROFILE = {"schema_version": "1.0", "measured": True, "marginal_accept_rates": [0.8, 0.4, 0.2]}


def sources(folder):
    (folder / "metrics.txt").write_text(METRICS)
    (folder / "marginal.json").write_text(json.dumps(PROFILE))
    (folder / "profile.json").write_text(json.dumps(PROFILE | {"conditional_accept_rates": [0.8, 0.5, 0.5]}))
    return {
        "typed": ("--rates", "0.8,0.5,0.5"),
        "a page of metrics": ("--metrics", folder / "metrics.txt"),
        "a profile": ("--profile", folder / "profile.json"),
        "a profile with marginal rates": ("--profile", folder / "marginal.json"),
    }


@pytest.mark.parametrize(
    "source", ["typed", "a page of metrics", "a profile", "a profile with marginal rates"]
)
def test_rates_from_everywhere_make_a_trace(tmp_path, source):
    made = tmp_path / "made.parquet"
    given = sources(tmp_path)[source]
    shown = answer("parametric", made, *given, "--texts", "20", "--tokens", "30", "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["rates"] == pytest.approx([0.8, 0.5, 0.5])
    assert read_trace(made).about.origin == "parametric"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "one of --rates, --profile and --metrics"),
        (("--rates", "0.5", "--profile", "x.json"), "one of --rates, --profile and --metrics"),
        (("--rates", "a,b"), "numbers with commas"),
        (("--rates", "0.5,nan"), "from 0 to 1"),
        (("--rates", "0.5", "--auc", "1.5"), "below 1"),
        (("--rates", "0.5", "--texts", "0"), "1 to 100,000 texts"),
        (("--profile", "absent.json"), "cannot be read"),
        (("--metrics", "http://127.0.0.1:1"), "Nothing listens"),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path, given, sentence):
    refused = answer("parametric", tmp_path / "made.parquet", *given)
    assert refused.exit_code and is_ours(refused.exception) and sentence in str(refused.exception)
    assert not (tmp_path / "made.parquet").exists()


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ("[1]", "holds no object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"measured": false}', "placeholder"),
        ('{"verification_method": "block"}', "block verification"),
        ("{}", "neither"),
        ('{"conditional_accept_rates": ["x"]}', "list of numbers"),
        ('{"conditional_accept_rates": [2]}', "from 0 to 1"),
        ('{"marginal_accept_rates": [0.2, 0.4]}', "never rise"),
    ],
)
def test_a_profile_that_is_none_is_one_sentence(tmp_path, profile, sentence):
    (tmp_path / "profile.json").write_text(profile)
    refused = answer("parametric", tmp_path / "made.parquet", "--profile", tmp_path / "profile.json")
    assert refused.exit_code and is_ours(refused.exception) and sentence in str(refused.exception)


def test_a_trace_of_ones_own_has_a_name_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    file, back = tmp_path / "Own Text.parquet", tmp_path / "back.parquet"
    write_trace(made_up(texts=12), file)
    kept = json.loads(answer("import", file, "--json").stdout)
    assert kept["name"] == "own-text" and kept["texts"] == 12
    assert "own-text" in json.loads(answer("list", "--json").stdout)
    assert "12 texts" in answer("show", "own-text").output
    assert ReplayConfig.make(trace="own-text", policy="none").K == 3
    assert json.loads(answer("export", "own-text", back, "--json").stdout)["sha256"] == kept["sha256"]
    assert back.read_bytes() == file.read_bytes()
    assert "is there already" in str(answer("export", "own-text", back).exception)
    assert "trace own-text already" in str(answer("import", file).exception)
    (tmp_path / "traces" / "broken.parquet").write_bytes(b"PAR1")
    listed = answer("list", "--json")
    assert listed.exit_code == 0 and "own-text" in listed.stdout and "broken" in listed.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("../x", "no name of a trace"), ("card", "ships with avlab"), ("", "no name"), ("mine", "damaged")],
)
def test_what_cannot_be_kept_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, name, sentence):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    (tmp_path / "own.parquet").write_bytes(b"PAR1 and no more")
    refused = answer("import", tmp_path / "own.parquet", "--name", name)
    assert refused.exit_code and is_ours(refused.exception) and sentence in str(refused.exception)
    assert not list((tmp_path / "traces").glob("*"))
