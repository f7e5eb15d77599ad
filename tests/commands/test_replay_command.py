"""`avlab replay`: a shipped trace on another machine's costs, its JSON, and what it refuses."""

import json

import pytest
from pyarrow import csv, parquet
from traces import made_up
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.errors import is_ours
from avlab.replay.trace import write_trace

QUICK = ("--processes", "1", "--repeats", "2", "--concurrency", "2,64", "--arms", "none,fixed:2,adaptive")


def answer(*arguments):
    return CliRunner().invoke(app, ["replay", *arguments])


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "own.parquet"
    write_trace(made_up(texts=12), path)
    return str(path)


def test_a_frontier_says_what_it_emulates_and_what_is_best(trace):
    shown = answer("frontier", "--trace", trace, *QUICK)
    assert shown.exit_code == 0, shown.output
    for word in (
        "emulated: B300 × 4",
        "adaptive",
        "fixed:2",
        "95 % interval by text",
        "Source of the costs: vLLM blog",
    ):
        assert word in " ".join(shown.output.split())
    plain = json.loads(answer("frontier", "--trace", trace, *QUICK, "--json").stdout)
    assert plain["emulated"].startswith("emulated: ") and plain["trace"]["K"] == 3
    assert [(c["arm"], c["requests"]) for c in plain["cells"]] == [
        (arm, load) for load in (2, 64) for arm in ("none", "fixed:2", "adaptive")
    ]
    assert {each["over"] for each in plain["over_best_fixed"]} <= {"none", "fixed:2"}
    assert all(each["low"] < each["ratio"] < each["high"] for each in plain["over_best_fixed"])


def test_an_ab_says_who_is_faster_and_how_many_repeats_that_takes(trace):
    asked = ("ab", "--trace", trace, "--arms", "none,fixed:3,adaptive", "--repeats", "4", "--processes", "1")
    shown = " ".join(answer(*asked).output.split())
    assert (
        "none is" in shown
        and "slower than fixed:3" in shown
        and "repeats" in shown
        and "(emulated: B300" in shown
    )
    plain = json.loads(answer(*asked, "--json").stdout)
    assert plain["baseline"] == "fixed:3" and [each["arm"] for each in plain["ratios"]] == [
        "none",
        "adaptive",
    ]
    assert "needs two arms" in str(answer("ab", "--trace", trace, "--arms", "none").exception)


def test_a_sweep_is_a_table_of_every_machine_and_trace(trace, tmp_path):
    machines = "b300-deepseek-v4-flash-tp4,h100-llama-3.1-8b-eagle3"
    asked = ("sweep", "--trace", trace, "--machine", machines, *QUICK)
    plain = json.loads(answer(*asked, "--json").stdout)["cells"]
    assert len(plain) == 2 * 2 * 3 and {row["machine"] for row in plain} == set(machines.split(","))
    assert {row["emulated"].rpartition(", ")[0] for row in plain} == {
        "emulated: B300 × 4, DeepSeek-V4-Flash's costs", "emulated: H100, Llama-3.1-8B's costs"
    }  # fmt: skip
    for name in ("own.csv", "own.parquet"):
        path = tmp_path / f"table-{name}"
        assert answer("sweep", str(path), *asked[1:]).exit_code == 0
        read = csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
        assert read.column_names == list(plain[0]) and read["tokens_per_s"].to_pylist() == pytest.approx(
            [row["tokens_per_s"] for row in plain]
        )
        assert "is there already" in str(answer("sweep", str(path), *asked[1:]).exception)
    assert "ends in .csv or .parquet" in str(answer("sweep", str(tmp_path / "own.txt"), *asked[1:]).exception)


def test_the_ratios_are_a_table_of_the_documentation(trace):
    asked = ("frontier", "--trace", trace, *QUICK)
    plain = json.loads(answer(*asked, "--json").stdout)["over_best_fixed"]
    lines = answer(*asked, "--markdown").stdout.splitlines()
    assert lines[0].startswith("emulated: ") and lines[2] == "| requests | 2 | 64 |"
    row = next(line for line in lines if line.startswith(f"| `{plain[0]['arm']}` |"))
    assert f"{plain[0]['ratio']:.3f}" in row and row.count("±") == 2


def test_a_plan_is_text_json_and_flags(trace):
    asked = ("plan", "--trace", trace, *QUICK)
    shown = " ".join(answer(*asked).output.split())
    for word in ("On B300 × 4", "emulated: ", "With 2", "vllm serve MODEL", "Source of the costs"):
        assert word in shown
    plain = json.loads(answer(*asked, "--json", "--serve", "vllm serve a/model --port 8001").stdout)
    assert plain["plan"][0]["first"] == 2 and plain["plan"][-1]["last"] == 64
    assert all(each["serve"][:5] == ["vllm", "serve", "a/model", "--port", "8001"] for each in plain["vllm"])
    assert 0 < plain["vllm_one_setting"]["worst"] <= 1
    assert "names no model" in str(answer(*asked, "--serve", "vllm serve --port 1").exception)


def test_the_same_command_gives_the_same_numbers(trace):
    one, two = (answer("frontier", "--trace", trace, *QUICK, "--json").stdout for _ in range(2))
    assert one == two


def test_what_ships_is_listed():
    machines = json.loads(answer("machines", "--json").stdout)
    assert machines["b300-deepseek-v4-flash-tp4"]["gpus"] == 4
    assert "B300 × 4" in answer("machines").output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--machine", "tpu"), "There is no machine 'tpu'"),
        (("--trace", "nothing"), "There is no trace 'nothing'"),
        (("--trace", "missing.parquet"), "cannot be read"),
        (("--concurrency", "4,x"), "concurrency needs whole numbers"),
        (("--concurrency", "1000"), "serves 1 to 256 requests at once, not 1000"),
        (("--arms", "fixed:9"), "asks for 9 draft tokens"),
        (("--arms", "sometimes"), "there is no policy 'sometimes'"),
    ],
)
def test_what_cannot_be_replayed_is_one_sentence(trace, options, sentence):
    given = ["--trace", trace, *QUICK]
    if options[0] in given:
        given[given.index(options[0]) + 1] = options[1]
        options = ()
    refused = answer("frontier", *given, *options)
    assert refused.exit_code and is_ours(refused.exception) and sentence in str(refused.exception)


def test_the_published_frontier_stands_beside_its_replay():
    asked = ("published", "--concurrency", "1,16", "--repeats", "2", "--processes", "1")
    plain = json.loads(answer(*asked, "--json").stdout)
    assert "DeepSeek-V4-Pro" in plain["published"] and "parametric acceptance" in plain["emulated"]
    found = {(each["arm"], each["load"]): each for each in plain["ratios"]}
    assert len(found) == 2 * 6
    assert found["adaptive", 16]["over"] == "fixed:5"
    assert found["adaptive", 16]["published"] == pytest.approx(2037 / 1939)
    assert found["none", 1]["replayed"]["ratio"] < 0.6  # drafts that 72 % follow are worth having
    assert "serves 1 to 256" in str(answer("published", "--concurrency", "1000").exception)
