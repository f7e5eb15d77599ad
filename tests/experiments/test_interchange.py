"""Results, acceptance and step costs of other tools: read with checks, and written so that theirs is read back."""

import json

import pytest
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.experiments.acceptance_profile import ProfileError, profile, read_profile
from avlab.experiments.foreign_results import ForeignPoint, ForeignResultError, as_csv, read_result
from avlab.experiments.published import read_frontier
from avlab.machines import DEFAULT_MACHINE, MachineError, machine
from avlab.machines.exported import exported, sizes
from avlab.machines.imported import read_table

VLLM = {
    "backend": "openai-chat", "max_concurrency": 16, "completed": 880, "output_throughput": 2037.0,
    "mean_tpot_ms": 8.0, "median_tpot_ms": 7.5,
}  # fmt: skip
GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.7.0"},
    "benchmarks": [
        {
            "type": "generative_benchmark",
            "config": {"strategy": {"type_": "concurrent", "streams": streams}},
            "metrics": {
                "output_tokens_per_second": {"successful": {"mean": 100.0 * streams}},
                "inter_token_latency_ms": {"successful": {"median": 5.0 * streams, "mean": 6.0}},
            },
        }
        for streams in (1, 4)
    ],
}
AIPERF = {
    "output_token_throughput": {"unit": "tokens/sec", "avg": 900.0},
    "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 120.0, "p50": 118.0},
    "input_config": {"loadgen": {"concurrency": 8}},
}


def written(folder, told, name="result.json"):
    path = folder / name
    path.write_text(told if isinstance(told, str) else json.dumps(told))
    return path


def test_results_of_three_generators_are_points(tmp_path):
    [mine] = read_result(written(tmp_path, VLLM), "fixed:7")
    assert mine == ForeignPoint("fixed:7", 16, 2037.0, pytest.approx(1000 / 7.5), "vllm bench serve")
    two = read_result(written(tmp_path, GUIDELLM), "none")
    assert [(p.load, p.tokens_per_s, p.interactivity) for p in two] == [(1, 100.0, 200.0), (4, 400.0, 50.0)]
    [last] = read_result(written(tmp_path, AIPERF), "adaptive")
    assert (last.load, last.tokens_per_s, last.interactivity, last.tool) == (8, 900.0, 118.0, "AIPerf")


def test_a_synchronous_benchmark_is_one_request_and_lines_are_results(tmp_path):
    alone = json.loads(json.dumps(GUIDELLM))
    alone["benchmarks"] = [alone["benchmarks"][0] | {"config": {"strategy": {"type_": "synchronous"}}}]
    assert read_result(written(tmp_path, alone), "none")[0].load == 1
    lines = "\n".join(json.dumps(VLLM | {"max_concurrency": load}) for load in (1, 2))
    assert [point.load for point in read_result(written(tmp_path, lines), "none")] == [1, 2]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("no JSON {", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ({"something": 1}, "no result of vllm bench serve"),
        (VLLM | {"max_concurrency": None}, "how many requests were under way"),
        (VLLM | {"max_concurrency": 1e300}, "not a whole number"),
        (VLLM | {"output_throughput": -4}, "not a number above 0"),
        (VLLM | {"output_throughput": "<b>"}, "not a number above 0"),
        (VLLM | {"median_tpot_ms": 0, "mean_tpot_ms": 0}, "were its answers streamed"),
        ({"benchmarks": [{"metrics": []}]}, "another kind"),
        (
            {"benchmarks": [GUIDELLM["benchmarks"][0] | {"config": {"strategy": {"type_": "poisson"}}}]},
            "poisson",
        ),
        (AIPERF | {"input_config": {"loadgen": {"request_rate": 3}}}, "how many requests were under way"),
        ('{"output_throughput": Infinity, "max_concurrency": 1, "mean_tpot_ms": 3}', "not a number above 0"),
    ],
)
def test_a_result_that_cannot_be_a_point_is_one_sentence(tmp_path, told, words):
    with pytest.raises(ForeignResultError, match=words) as caught:
        read_result(written(tmp_path, told), "none")
    assert "\n" not in str(caught.value)


def test_the_csv_is_what_the_frontier_page_reads_and_names_the_tool(tmp_path):
    files = [(written(tmp_path, VLLM, "a.json"), "none"), (written(tmp_path, VLLM, "b.json"), "fixed:7")]
    text = as_csv([point for path, arm in files for point in read_result(path, arm)])
    assert text.startswith("# foreign: measured by vllm bench serve\n")
    assert [(p.arm, p.load, p.tokens_per_s) for p in read_frontier(text)] == [
        ("fixed:7", 16, 2037.0), ("none", 16, 2037.0),
    ]  # fmt: skip
    with pytest.raises(ForeignResultError, match="arm none"):
        as_csv(read_result(files[1][0], "fixed:7"))


def summary(**changes):
    rows = [{"conditional_acceptance": rate, "labelled": 100} for rate in (0.8, 0.7, 0.6)]
    return {
        "K": 3, "positions": rows, "drafter": "/models/some-eagle3", "target": "org/target", "kind": "reference",
        "workload": "mixed",
    } | changes  # fmt: skip


def test_a_profile_is_written_and_read_back(tmp_path):
    told = profile(summary())
    assert told["marginal_accept_rates"] == [0.8, 0.56, 0.336] and told["mean_accept_length"] == 2.696
    assert (
        told["draft_checkpoint"] == {"id": "some-eagle3"} and told["accept_length_model"] == "chain_analytic"
    )
    assert read_profile(written(tmp_path, told)) == (0.8, 0.7, 0.6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measured": False}, "stub that nobody has measured"),
        (
            {"conditional_accept_rates": [0.7, 0.7, 0.7], "marginal_accept_rates": None},
            "one rate at every position",
        ),
        ({"marginal_accept_rates": [0.8, 0.7, 0.6]}, "contradict each other"),
        ({"conditional_accept_rates": [0.8, 1.7, 0.6]}, "no rate from 0 to 1"),
        ({"conditional_accept_rates": []}, "no list of 1"),
        ({"schema_version": "2.0"}, "of schema '2.0'"),
        ({"verification_method": "block"}, "block verification"),
    ],
)
def test_a_profile_that_says_nothing_is_refused(tmp_path, changes, words):
    with pytest.raises(ProfileError, match=words):
        read_profile(written(tmp_path, profile(summary()) | changes))
    with pytest.raises(ProfileError, match="lacks conditional"):
        read_profile(written(tmp_path, {"token_counts": [1]}))


def test_a_run_whose_acceptance_is_not_known_has_no_profile():
    with pytest.raises(ProfileError, match="does not tell conditional acceptance"):
        profile(summary(positions=[{"conditional_acceptance": None, "labelled": None}] * 3))
    with pytest.raises(ProfileError, match="no drafts"):
        profile(summary(K=0, positions=[]))


@pytest.mark.parametrize("engine", ["sglang", "tensorrt"])
def test_a_machine_s_costs_are_read_back_from_the_other_engines_files(tmp_path, engine):
    found = machine(DEFAULT_MACHINE, 5)
    told = read_table(written(tmp_path, exported(found, 5, engine)))
    rest = found.milliseconds(1, 0, 1)[2] if engine == "sglang" else 0.0
    for tokens, ms in told.verify:
        assert ms == pytest.approx(found.milliseconds(0, 0, tokens)[1] + rest, abs=1e-6)
    if engine == "sglang":
        for load, _, ms in told.draft:
            assert ms == pytest.approx(found.milliseconds(load, 5, 1)[0], abs=1e-6)


def test_flat_tables_and_unknown_engines_are_refused(tmp_path):
    for told in (
        {"sample_batch_tokens": [1], "sample_steps_per_sec": [1.0]},
        {"token_counts": [0, 8], "step_time_ms": [1.0, 1.0]},
    ):
        with pytest.raises(MachineError, match="flat, a placeholder"):
            read_table(written(tmp_path, told))
    with pytest.raises(MachineError, match="choose sglang or tensorrt"):
        exported(machine(DEFAULT_MACHINE, 5), 5, "vllm")
    assert sizes(3) == [1, 2, 3] and sizes(100)[-1] == 100


def test_the_commands(tmp_path):
    path = written(tmp_path, VLLM)
    out = tmp_path / "own.csv"
    words = ["interchange", "results", "--arm", f"none={path}", "--arm", f"fixed:3={path}", "-o", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0 and len(read_frontier(out.read_text())) == 2
    told = CliRunner().invoke(
        app, ["interchange", "costs", DEFAULT_MACHINE, "--to", "sglang", "--depth", "5"]
    )
    assert json.loads(told.stdout)["bs_probes"][0] == 1
    file = written(tmp_path, profile(summary()), "profile.json")
    assert CliRunner().invoke(app, ["interchange", "rates", str(file)]).stdout == "0.8,0.7,0.6\n"
