"""`avlab bias`: exact answers, and one sentence for every case that is none."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from avlab.bias import cases
from avlab.bias.grammar import CaseError
from avlab.commands.bias import app

EIGHT = ",".join(["0.125"] * 8)


def answer(*arguments):
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(*arguments):
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


@pytest.mark.parametrize(
    "arguments",
    [["two-token"], ["exact", "--target", "0.5,0.5", "--draft", "0.2,0.8", "--rule", "drawn:0.5"]],
)
def test_the_articles_example(arguments):
    found = answer(*arguments)
    assert (found["target"], found["draft"]) == ([0.5, 0.5], [0.2, 0.8])
    np.testing.assert_allclose(found["output"], [0.4, 0.6], rtol=0, atol=1e-12)
    assert found["total_variation"] == pytest.approx(0.1, abs=1e-12)
    assert found["auditor_needs"] == 372 and found["sound"] is False


def test_a_rule_of_the_row_keeps_the_target():
    for rule in (
        "maximum:0.5",
        "entropy:0.9",
        "margin:0.7",
        "head-prefix:0.8",
        "maximum:chance",
        "random:0.3",
        "all",
        "none",
    ):
        found = answer("exact", "--target", "0.5,0.3,0.2", "--draft", "0.2,0.7,0.1", "--rule", rule)
        np.testing.assert_allclose(found["output"], [0.5, 0.3, 0.2], rtol=0, atol=1e-12)
        assert found["sound"] is True and found["auditor_needs"] is None


def test_even_a_perfect_head_that_knows_the_token_bends_the_output():
    for rule in ("head-drawn:0.9", "head-drawn:chance", "drawn:chance"):
        found = answer("exact", "--target", "0.5,0.3,0.2", "--draft", "0.2,0.7,0.1", "--rule", rule)
        assert found["total_variation"] > 0.01 and found["sound"] is False


def test_a_greedy_draft_makes_the_drawn_token_rule_harmless():
    found = answer("two-token", "--target", "0.5", "--draft", "1", "--rule", "drawn:0.5")
    np.testing.assert_allclose(found["output"], [0.5, 0.5], rtol=0, atol=1e-12)
    assert "is the target's here" in shown("two-token", "--draft", "1")


def test_it_reads_well_without_json():
    text = shown("two-token")
    assert "+0.1000" in text and "UNSOUND: an auditor needs 372 outputs" in text


def test_sampled_where_asked():
    case = ["exact", "--target", EIGHT, "--draft", "0.3,0.1,0.1,0.1,0.1,0.1,0.1,0.1", "--rule", "drawn:0.2"]
    found = answer(*case, "--K", "3", "--tokens", "2", "--sample", "20000")
    exact = answer(*case, "--K", "3", "--tokens", "2")
    assert found["draws"] == 20000 and len(found["output"]) == 64
    assert np.abs(np.subtract(found["output"], exact["output"])).max() < 0.01 and found["p_value"] < 1e-6
    assert "G-test on 64 cells" in shown(*case, "--tokens", "2", "--sample", "20000")


@pytest.mark.parametrize(
    ("target", "draft", "rule", "sentence"),
    [
        ("0.5,0.6", "0.2,0.8", "all", "sums to 1.1"),
        ("0.5,0.5", "0.2,0.9", "all", "--normalise"),
        ("0.5,0.5", "-0.2,1.2", "all", "cannot be negative"),
        ("0.5,0.5", "0,0", "all", "zero everywhere"),
        ("1,0", "0,1", "all", "a token in common"),
        ("0.5,0.5", "0.2,0.3,0.5", "all", "as many"),
        ("1", "1", "all", "two or more"),
        ("nan,1", "0.2,0.8", "all", "finite"),
        ("half,half", "0.2,0.8", "all", "write it as"),
        ("1e308,1e308", "0.2,0.8", "all", "normalised to 0.5,0.5"),
        ("0.5,0.5", "0.2,0.8", "drawn:1.5", "from 0 to 1"),
        ("0.5,0.5", "0.2,0.8", "drawn:-0.1", "from 0 to 1"),
        ("0.5,0.5", "0.2,0.8", "drawn:high", "from 0 to 1"),
        ("0.5,0.5", "0.2,0.8", "drawn", "needs a number"),
        ("0.5,0.5", "0.2,0.8", "random:chance", "from 0 to 1"),
        ("0.5,0.5", "0.2,0.8", "best:0.5", "There is no rule"),
    ],
)
def test_what_is_no_case_is_said_in_a_sentence(target, draft, rule, sentence):
    with pytest.raises(CaseError, match=sentence):
        answer("exact", "--target", target, "--draft", draft, "--rule", rule)


def test_more_than_can_be_enumerated_is_counted_and_sampling_offered():
    with pytest.raises(CaseError, match=r"299,\d\d\d states.*--sample"):
        answer("exact", "--target", EIGHT, "--draft", EIGHT, "--K", "3", "--tokens", "4")


@pytest.mark.parametrize("more", [("--tokens", "15"), ("--K", "40")])
def test_sampling_is_offered_only_where_it_would_end(more):
    case = ["exact", "--target", "0.5,0.3,0.2", "--draft", "0.2,0.7,0.1", *more]
    with pytest.raises(CaseError, match=r"take fewer\.$"):
        answer(*case)
    with pytest.raises(CaseError, match="too many to sample"):
        answer(*case, "--sample", "1000")


def test_many_outputs_are_sampled_some_at_a_time(monkeypatch):
    monkeypatch.setattr(cases, "AT_ONCE", 3000)
    found = answer(*["exact", "--target", "0.5,0.5", "--draft", "0.2,0.8", "--sample", "20000"])
    assert found["draws"] == 20000 and sum(found["output"]) == pytest.approx(1)
    np.testing.assert_allclose(found["output"], [0.4, 0.6], atol=0.02)


@pytest.mark.parametrize("rule", ["drawn:0.2", "drawn:0.8", "maximum:0.8"])
def test_a_score_that_misses_the_threshold_by_rounding_reaches_it(rule):
    assert 1 - 0.8 < 0.2
    found = answer("two-token", "--draft", "0.8", "--rule", rule)
    typed = answer("exact", "--target", "0.5,0.5", "--draft", "0.8,0.2", "--rule", rule)
    np.testing.assert_allclose(found["output"], typed["output"], rtol=0, atol=1e-12)
    assert (found["total_variation"] < 1e-12) == (rule != "drawn:0.8")


def test_more_draws_than_memory_or_patience_would_bear_are_refused():
    result = CliRunner().invoke(
        app, ["exact", "--target", "0.5,0.5", "--draft", "0.2,0.8", "--sample", "100000000000"]
    )
    assert result.exit_code == 2 and "100000000" in result.output


def test_huge_weights_are_normalised():
    found = answer(
        *["exact", "--target", "1e308,1e308", "--draft", "1e-310,3e-310", "--rule", "all", "--normalise"]
    )
    np.testing.assert_allclose((found["target"], found["draft"]), ([0.5, 0.5], [0.25, 0.75]), rtol=1e-9)


def test_normalised_on_request():
    found = answer("exact", "--target", "1,2,3", "--draft", "2,2,2", "--rule", "all", "--normalise")
    np.testing.assert_allclose(found["output"], [1 / 6, 2 / 6, 3 / 6], atol=1e-12)


@pytest.mark.parametrize("prompt", ["", "  "])
def test_an_audit_needs_a_prompt(prompt):
    with pytest.raises(CaseError, match="--prompt is empty"):
        answer("audit", "--prompt", prompt)
