"""A sweep as command lines that vLLM reads, and settings from replayed cells."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.experiments.advice import advise
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.sweep_plan import PlanError, capture_size, importing, plan

LINE = ServeLine.parse(["org/model", "--speculative-config", '{"method": "eagle3", "model": "org/head"}'])


def test_a_server_a_length_and_a_benchmark_a_load():
    servers = plan(LINE, [0, 3], [16, 1])
    assert [each.arm for each in servers] == ["none", "fixed:3"]
    none, three = (ServeLine.parse(each.serve.replace("\\\n", " ")) for each in servers)
    assert not none.speculative and none.arguments["max-num-seqs"] == 16
    assert three.speculative == {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
    assert (
        three.arguments["compilation-config"] == {"max_cudagraph_capture_size": 64}
        and capture_size(3, 16) == 64
    )
    words = shlex.split(servers[1].benches[1])
    assert words[:3] == ["vllm", "bench", "serve"] and words[words.index("--max-concurrency") + 1] == "16"
    assert words[-1] == "fixed-3-c16.json"
    assert "--arm fixed:3=fixed-3-c16.json" in importing(servers) and "none=none-c1.json" in importing(
        servers
    )


@pytest.mark.parametrize(
    ("line", "lengths", "loads", "words"),
    [
        (ServeLine.parse(["org/model"]), [3], [1], "does not speculate"),
        (LINE, [], [1], "needs a length"),
        (LINE, [99], [1], "Lengths are 0 to"),
        (LINE, [1], [0], "loads 1 to"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(line, lengths, loads, words):
    with pytest.raises(PlanError, match=words):
        plan(line, lengths, loads)


def row(arm, load, rate):
    return {"arm": arm, "requests": load, "tokens_per_s": rate, "tokens_per_s_per_user": rate / load}


ROWS = [
    row("none", 1, 100.0), row("fixed:3", 1, 240.0), row("none", 16, 1100.0), row("fixed:3", 16, 1900.0),
    row("none", 64, 2500.0), row("fixed:3", 64, 2400.0), row("none", 128, 2550.0), row("fixed:3", 128, 2300.0),
]  # fmt: skip


def test_settings_from_cells():
    free = advise(ROWS)
    assert (free.max_num_seqs, free.K, free.capture, free.enough) == (64, 0, 256, True)
    assert [each.K for each in free.loads] == [3, 3, 0, 0] and free.loads[0].over_next == 2.4
    wished = advise(ROWS, 100.0)
    assert (wished.max_num_seqs, wished.K, wished.capture) == (16, 3, 64)
    assert advise(ROWS, 1000.0).enough is False


def test_the_command_plans_and_advises():
    words = ["vllm", "plan", "org/model", "--lengths", "0,3", "--concurrency", "1,16", "--json"]
    tail = ["--", "--speculative-config", '{"method": "eagle3", "model": "org/head"}']
    told = json.loads(CliRunner().invoke(app, [*words, *tail]).stdout)
    assert len(told["servers"]) == 2 and told["advice"] is None
    by_replay = [
        *words,
        "--machine",
        "b300-deepseek-v4-flash-tp4",
        "--repeats",
        "1",
        "--processes",
        "1",
        *tail,
    ]
    result = CliRunner().invoke(app, by_replay)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["advice"]["max_num_seqs"] in (1, 16) and "emulated" in told["emulated"]
    assert told["advice"]["capture"] == capture_size(max(each["K"] for each in told["advice"]["loads"]), 16)
