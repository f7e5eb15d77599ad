"""The estimator lab: scores of texts not learnt from, what is lost to what, wrong cost tables, and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
from traces import made_up
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.experiments import cost_drift, estimator_learning, estimator_losses, estimator_scores
from avlab.machines import machine
from avlab.replay.about import TraceError
from avlab.replay.trace import write_trace
from avlab.speculation.features import probability

B300 = machine("b300-deepseek-v4-flash-tp4", 3)


@pytest.fixture(scope="module")
def trace():
    return made_up(texts=40, tokens=(20, 60))


def sharpened(trace, by):
    """The same texts with features that are `by` times too large, as at a low temperature."""
    behind = None if trace.behind is None else trace.behind * by
    return replace(trace, features=trace.features * by, behind=behind)


def test_slots_are_those_that_full_verification_meets(trace):
    slots = estimator_learning.fully_verified(trace)
    first = slots.text == 0
    at, met = 0, []
    while at < trace.output_tokens[0] - 1:
        met.append(trace.features[trace.first[0] + at, :, 0])
        at += trace.accepted[trace.first[0] + at] + 1
    assert (slots.features.values[first][..., 0] == np.array(met)).all()
    assert slots.labels.label.sum() == (slots.labels.label * slots.labels.labelled).sum()
    assert 0.5 < slots.labels.label[slots.labels.labelled].mean() < 0.75


def test_every_text_is_judged_by_one_that_has_not_learnt_from_it(trace):
    fold = estimator_learning.folds(trace)
    assert sorted(np.bincount(fold)) == [20, 20]
    (found,) = estimator_scores.judge(trace, B300, ["online"], steps=200)
    slots = estimator_learning.fully_verified(trace)
    assert found.overall.labels == slots.labels.labelled.sum()
    assert sum(each.labels for each in found.by_position) == found.overall.labels
    assert found.curve[0][0] == 0 and len(found.curve) == 3


def test_the_raw_score_of_honest_features_is_calibrated_and_that_of_sharp_ones_is_not(trace):
    (honest,) = estimator_scores.judge(trace, B300, ["raw"])
    (sharp,) = estimator_scores.judge(sharpened(trace, 4.0), B300, ["raw"])
    assert honest.overall.ece.value < 2 * honest.overall.ece_floor + 0.02 < sharp.overall.ece.value
    assert sharp.overall.auc.value == pytest.approx(honest.overall.auc.value, abs=0.01)
    assert honest.own is None and honest.curve == ()
    low, high = sharp.overall.ece.low, sharp.overall.ece.high
    assert low < sharp.overall.ece.value < high + 0.02


def test_a_calibration_is_worth_what_a_perfect_one_adds():
    trace = sharpened(made_up(texts=40, tokens=(20, 60)), 6.0)
    rungs = {each.name: each for each in estimator_losses.losses(trace, B300, "raw", 64, repeats=3)}
    assert list(rungs) == list(estimator_losses.RUNGS)
    assert rungs["arm"].gain == 1.0 and rungs["calibration"].gain > 1.02
    assert rungs["anticipation"].tokens_per_s >= 0.99 * rungs["ranking"].tokens_per_s


def test_perfect_calibration_keeps_the_order_and_hits_the_mean(trace):
    sharp = sharpened(trace, 4.0)
    estimator = estimator_learning.learn(sharp, B300, "raw", np.arange(40))[-1][1]
    found, _ = estimator_losses.perfectly_calibrated(sharp, estimator)
    raw = sharp.features[:, 0, 0]
    assert (np.diff(found[np.argsort(raw), 0]) >= -1e-6).all()
    assert probability(found[:, 0]).mean() == pytest.approx(sharp.acceptance[:, 0].mean(), abs=0.01)


def test_a_true_table_costs_nothing_and_none_at_all_costs_something(trace, monkeypatch):
    same = {"as it is": lambda verify, full: verify, **cost_drift.DRIFTS}
    monkeypatch.setattr(cost_drift, "DRIFTS", same)
    found = {each.name: each for each in cost_drift.drift(trace, B300, "raw", 64, repeats=3)}
    assert found["as it is"].ratio == 1.0
    assert found["no costs known (flat)"].ratio < 0.99


def test_what_was_not_recorded_is_one_sentence(trace):
    with pytest.raises(TraceError, match=r"^The estimator drawn reads drawn_log_odds, .*only max_log_odds: "):
        estimator_scores.judge(trace, B300, ["drawn"])
    with pytest.raises(TraceError, match=r"^There is no estimator 'x'; known are online, "):
        estimator_scores.judge(trace, B300, ["x"])


def test_one_that_looks_at_drawn_tokens_is_judged_and_says_so(trace):
    about = replace(trace.about, features=("max_log_odds", "drawn_log_odds"))
    seen = replace(trace, about=about, features=np.repeat(trace.features, 2, -1), behind=None)
    (found,) = estimator_scores.judge(seen, B300, ["drawn"])
    assert not found.sound and "UNSOUND" in found.title and found.overall.labels


def test_what_was_learnt_elsewhere_is_unlearnt(trace):
    ((name, at_once, later),) = estimator_scores.transfer(sharpened(trace, 4.0), trace, B300, ["cut"])
    assert name == "cut" and later.ece.value < at_once.ece.value


@pytest.fixture
def path(trace, tmp_path):
    write_trace(trace, tmp_path / "own.parquet")
    return str(tmp_path / "own.parquet")


def answer(*arguments):
    return CliRunner().invoke(app, ["lab", *arguments])


def test_the_command_judges(path):
    asked = ("judge", "--trace", path, "--steps", "100", "--estimators", "online,raw")
    shown = answer(*asked, "--positions")
    assert shown.exit_code == 0, shown.output
    assert "ECE floor" in shown.stdout and "raw maximum probability" in shown.stdout
    plain = json.loads(answer(*asked, "--json").stdout)
    assert [each["name"] for each in plain["estimators"]] == ["online", "raw"]
    assert plain["estimators"][0]["overall"]["auc"]["value"] > 0.6 and plain["trace"]["texts"] == 40


@pytest.mark.parametrize("what", ["losses", "drift"])
def test_the_command_says_whose_speed_it_is(path, what, monkeypatch):
    monkeypatch.setattr(estimator_losses, "LEARN", 100)
    asked = (what, "--trace", path, "--estimators", "raw", "--concurrency", "64")
    shown = answer(*asked)
    assert shown.exit_code == 0, shown.output
    assert "emulated: B300" in shown.stdout and "raw" in shown.stdout
    assert json.loads(answer(*asked, "--json").stdout)["emulated"].startswith("emulated: ")


def test_the_command_transfers(path):
    shown = answer("transfer", "--learnt-on", path, "--judged-on", path, "--estimators", "raw")
    assert shown.exit_code == 0 and "ECE at once" in shown.stdout
