"""What an A/B claims, and when it takes a claim back: from throughputs by round to sentences."""

from dataclasses import fields, replace
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
import store_frames as frames
from answers import ab_answer, recorded_plan, seen

from avlab.experiments import analysis, words
from avlab.experiments.analysis import against_fixed, analyse, result_of, standing_of
from avlab.experiments.answers import BestFixed, Comparison, Dropped, Within
from avlab.experiments.slo import best_within
from avlab.experiments.statistics import sequence
from avlab.figures.ab import table
from avlab.report import _table, report
from avlab.store.database import Database
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import commands as cm
from avlab.wire import frames as fr

ROUNDS = 40


def rates(seed=0, rounds=ROUNDS, **levels):
    """Throughputs by round of arms: their level, with 3 % of noise. A level is a number or one a round."""
    draw = np.random.default_rng(seed)
    return {
        arm.replace("_", ":"): 100 * np.asarray(level) * np.exp(0.03 * draw.normal(size=rounds))
        for arm, level in levels.items()
    }


def best_fixed(found):
    """Of throughputs by arm, as of blocks of a second."""
    tokens = np.array(list(found.values()))
    return analysis.best_fixed(list(found), tokens, np.ones_like(tokens))


def answer(found, baseline, **changes):
    """The parts of an analysis that words are made of."""
    arms = list(found)
    results = [result_of(arm, found[arm], found[baseline], 12.0) for arm in arms if arm != baseline]
    parts = {"plan": recorded_plan(arms, baseline, ROUNDS), "results": results, "rounds": ROUNDS}
    parts |= {"adaptive": against_fixed(found, arms, baseline, 12.0), "best_fixed": best_fixed(found)}
    return ab_answer(**parts | changes)


MOVING = np.repeat([1.4, 0.7], [40, 160])  # against 1: faster at first, slower later


def test_beating_every_fixed_length_is_said_with_their_names():
    told = answer(rates(adaptive=1.2, fixed_5=1.0, none=0.9, verify_3=2.0), "fixed:5")
    (beats,) = told.adaptive
    assert beats.declared and beats.fixed == ["fixed:5", "none"] and 1 < beats.least_low < 1.2
    least, after = words.percent(beats.least_low), beats.declared_at
    assert (
        f"adaptive beats every fixed length compared: fixed:5, none; each by at least {least} % (declared after "
        f"{after} rounds)." in words.verdicts(told)
    )


@pytest.mark.parametrize("others", [{"fixed_5": 1.0}, {"fixed_5": 1.0, "verify_3": 1.0}])
def test_one_fixed_length_is_not_every(others):
    told = answer(rates(adaptive=1.5, **others), "fixed:5")
    assert not told.adaptive[0].declared and "every fixed" not in " ".join(words.verdicts(told))


def test_a_ratio_that_moved_takes_every_claim_back():
    found = rates(rounds=200, adaptive=MOVING, fixed_5=1.0, none=1.0)
    told = answer(found, "fixed:5")
    adaptive = told.results[0]
    assert adaptive.moved and adaptive.declared_at and not adaptive.declared
    assert adaptive.rounds_to_2_percent is None
    (beats,) = told.adaptive
    assert not beats.declared and beats.least_low is beats.declared_at is None
    assert beats.beaten_by == []
    said = " ".join(words.verdicts(told))
    assert "the ratio changed during the run" in said and "beats every" not in said


@pytest.mark.parametrize("levels", [(2.0, 1.3), (0.5, 0.8)])
def test_a_ratio_that_moved_claims_nothing_on_either_side_of_1(levels):
    found = rates(rounds=160, adaptive=np.repeat(levels, [60, 100]), fixed_5=1.0, none=1.0)
    told = answer(found, "fixed:5")
    result, (beats,) = told.results[0], told.adaptive
    assert result.moved and not result.low <= 1 <= result.high and not result.declared
    assert not beats.declared and beats.beaten_by == []


def test_declared_means_an_interval_beside_it_without_1():
    for found in (
        rates(adaptive=1.2, none=1.0),
        rates(adaptive=1.0, none=1.0),
        rates(adaptive=0.8, none=1.0),
    ):
        result = result_of("adaptive", found["adaptive"], found["none"])
        assert result.declared == (not result.low <= 1 <= result.high)


def test_the_best_fixed_length_is_named_with_its_own_rate_or_not_settled():
    found = rates(adaptive=1.0, fixed_1=1.2, fixed_5=1.0, verify_3=1.5)
    best = best_fixed(found)
    assert best.arm == "fixed:1" and best.tokens_per_s == pytest.approx(found["fixed:1"].mean())
    assert "The best fixed length compared is fixed:1, 1" in " ".join(
        words.verdicts(answer(found, "fixed:5"))
    )
    turns = np.tile([1.3, 0.7], ROUNDS // 2)  # one half of the rounds would choose each
    found = rates(fixed_1=turns, fixed_5=1.0, none=0.5)
    assert best_fixed(found) == BestFixed(None, None, ["fixed:1", "fixed:5"])
    said = " ".join(words.verdicts(answer(found, "fixed:5")))
    assert "The best fixed length is undecided: fixed:1 or fixed:5." in said and "tokens/s" not in said


def test_losses_to_an_adaptive_baseline_count_too():
    found = rates(**{"adaptive": 1.2, "adaptive+depth": 1.0, "none": 0.8})
    beaten = {row.arm: row.beaten_by for row in against_fixed(found, list(found), "adaptive")}
    assert beaten == {"adaptive": [], "adaptive+depth": ["adaptive"]}
    beaten = {row.arm: row.beaten_by for row in against_fixed(found, list(found), "adaptive+depth")}
    assert beaten == {"adaptive": [], "adaptive+depth": ["adaptive"]}


def test_how_often_one_of_several_comparisons_is_wrong():
    told = answer(rates(none=1.0, fixed_1=1.0, fixed_3=1.0, fixed_5=1.0, adaptive=1.0), "none")
    assert words.errors_together(told) == (
        "Each of 7 comparisons (with the baseline, and of adaptive arms with each other fixed length) is wrong "
        "in at most 5 % of A/Bs, and at least one of them in up to 35 % (errors added up)."
    )
    assert words.errors_together(answer(rates(none=1.0, fixed_1=1.0, fixed_3=1.0), "none")) == (
        "Each of these 2 comparisons is wrong in at most 5 % of A/Bs, and at least one of them in up to 10 % (errors "
        "added up)."
    )
    assert words.errors_together(answer(rates(none=1.0, adaptive=1.0), "none")) == ""


def test_how_long_until_is_told_in_minutes_and_of_every_arm():
    told = answer(rates(none=1.0, fixed_1=1.0, adaptive=1.0), "none")
    for result in told.results:
        assert result.minutes_to_2_percent == pytest.approx(result.rounds_to_2_percent * 12 / 60)
    sooner = Comparison(arm="fixed:1", rounds=ROUNDS, rounds_to_2_percent=41, minutes_to_2_percent=8.2)
    later = Comparison(arm="adaptive", rounds=ROUNDS, rounds_to_2_percent=80, minutes_to_2_percent=16.0)
    assert words.until(ab_answer(results=[sooner, later])) == (
        "Every ratio is known to ± 2 % after about 80 rounds, 16 min in all."
    )
    assert (
        words.until(ab_answer(results=[sooner]))
        == "The ratio is known to ± 2 % after about 41 rounds, 8.2 min in all."
    )
    later = replace(later, rounds_to_2_percent=None, minutes_to_2_percent=None)
    assert (
        words.until(ab_answer(results=[sooner, later])) == "The time to ± 2 % is not known yet for adaptive."
    )
    assert words.until(answer(rates(rounds=0, none=1.0, adaptive=1.0), "none")) == ""


def test_the_best_within_a_limit_says_that_values_are_compared():
    arms = {"a": seen(tokens_per_s=10.0, p95_tpot_ms=9.0), "b": seen(tokens_per_s=11.0, p95_tpot_ms=11.0)}
    assert best_within(arms, ("p95_tpot_ms", 10.0)).text == (
        "Within p95_tpot_ms ≤ 10 ms, a is the fastest, by the measured values, errors ignored: 10.0 tokens/s "
        "at 9.0 ms."
    )


def test_an_arm_without_a_figure_is_neither_within_a_limit_nor_beyond_it():
    arms = {
        "a": seen(tokens_per_s=10.0, p50_ttft_ms=90.0),
        "b": seen(tokens_per_s=11.0),
        "none": seen(tokens_per_s=12.0),
    }
    why = "no finished request had its first token within a counted block: use longer blocks"
    found = best_within(arms, ("p50_ttft_ms", 100.0))
    assert (found.arm, found.unmeasured) == ("a", ["b", "none"])
    assert "a is the fastest of those measured, by" in found.text
    assert found.text.endswith(f" Not measured for b, none ({why}).")
    beyond = best_within(arms, ("p50_ttft_ms", 80.0))
    assert beyond.text == (
        f"No arm of those measured keeps p50_ttft_ms within 80 ms at this load. Not measured for b, none ({why})."
    )
    del arms["a"]
    assert best_within(arms, ("p50_ttft_ms", 80.0)) == Within(
        measure="p50_ttft_ms",
        limit_ms=80.0,
        arm=None,
        unmeasured=["b", "none"],
        text=f"p50_ttft_ms ≤ 80 ms cannot be judged: it is not measured for any arm ({why}).",
    )


def test_adaptive_against_the_best_fixed_length_is_said_whatever_the_baseline():
    found = rates(adaptive=1.0, fixed_5=1.2, none=0.8)
    told = answer(found, "none")
    assert not told.adaptive[0].declared
    slower = result_of("adaptive", found["adaptive"], found["fixed:5"], 12.0)
    sentence = words.verdict(replace(slower, baseline="fixed:5"), told.plan)
    assert " slower than fixed:5 at 16 requests." in sentence and sentence in words.verdicts(told)
    (standing,) = (each for each in told.adaptive[0].against if each.baseline == "fixed:5")
    assert all(
        getattr(standing, field.name) == getattr(slower, field.name)
        for field in fields(standing)
        if field.name != "baseline"
    )
    open_ = words.verdicts(answer(rates(adaptive=1.0, fixed_5=1.0, none=0.8), "none"))
    assert any("adaptive against fixed:5 at 16 requests: no difference declared after" in s for s in open_)
    for baseline in ("fixed:5", "adaptive"):  # said by the comparison with the baseline, and once
        said = words.verdicts(answer(found, baseline))
        assert sum("adaptive" in s and "fixed:5" in s for s in said) == 1
    alone = words.verdicts(answer(rates(adaptive=1.0, fixed_5=1.2, verify_3=0.8), "verify:3"))
    assert any("slower than fixed:5 at 16 requests." in s for s in alone)  # the only fixed length


def test_adaptive_is_set_against_both_between_which_the_best_is_not_settled():
    turns = np.tile([1.3, 0.7], ROUNDS // 2)
    said = words.verdicts(answer(rates(adaptive=2.0, fixed_1=turns, fixed_5=1.0, none=0.5), "none"))
    for rival in ("fixed:1", "fixed:5"):
        assert any(
            s.startswith("adaptive is ") and s.endswith(f"faster than {rival} at 16 requests.") for s in said
        )


def test_rounds_left_out_are_counted_from_1():
    found, reason = rates(adaptive=1.0, none=1.0), "serving was paused"
    last = answer(found, "none", dropped=[Dropped(ROUNDS, reason)])
    assert words.verdicts(last)[-1] == f"Left out: round {ROUNDS + 1} ({reason})."
    amid = answer(found, "none", dropped=[Dropped(0, reason), Dropped(4, "b")])
    assert words.verdicts(amid)[-1] == (
        f"Left out: rounds 1 ({reason}), 5 (b). Rounds are numbered as they began; charts number only those that "
        "count."
    )


def test_an_ab_that_was_stopped_says_after_how_many_rounds():
    told = answer(rates(adaptive=1.0, none=1.0), "none", state="stopped", rounds=3)
    assert f"The A/B was stopped after 3 of {ROUNDS} rounds." in words.verdicts(told)
    whole = answer(rates(adaptive=1.0, none=1.0), "none", state="stopped")
    assert not any("was stopped" in sentence for sentence in words.verdicts(whole))


def test_the_best_fixed_length_is_the_one_with_the_most_tokens_a_second():
    """By geometric mean of block rates the other one is."""
    steady, swinging = np.full(ROUNDS, 100.0), np.tile([40.0, 40.0, 180.0, 180.0], ROUNDS // 4)
    tokens = np.array([steady, swinging])
    assert np.log(swinging).mean() < np.log(100) < np.log(swinging.mean())
    found = analysis.best_fixed(["fixed:1", "fixed:5"], tokens, np.ones_like(tokens))
    assert found == BestFixed("fixed:5", pytest.approx(110.0), [])


def test_the_ratio_is_the_centre_of_the_sequence_and_no_mean():
    found = rates(adaptive=1.2, none=1.0)
    found["adaptive"][7] *= 4
    result = result_of("adaptive", found["adaptive"], found["none"])
    rounds = found["adaptive"] / found["none"]
    assert result.ratio == result.estimate_by_round[-1]
    others = (found["adaptive"].mean() / found["none"].mean(), rounds.mean(), np.exp(np.log(rounds).mean()))
    assert all(result.ratio < other - 0.01 for other in others)
    planned = np.sqrt(result.fixed_low * result.fixed_high)
    assert planned == pytest.approx(np.exp(np.log(rounds).mean()))


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 step"), (1.0, "1 step"), (2.5, "2.5 steps"), (0, "0 steps")]
)
def test_one_is_not_counted_in_the_plural(count, text):
    assert words.counted(count, "step") == text
    plan = recorded_plan(length=count, unit="steps", washout=1)
    assert words.blocks_of(plan) == f"blocks of {text} after 1 step of wash-out"


def test_tokens_a_second_are_those_of_the_ledger(tmp_path):
    """Blocks of 1 s, with 80 or 20 tokens in turn: 50 tokens/s, where the geometric mean of blocks is 40."""
    run, config = new_run_id(), {"policy": "none", "workload": "chat", "temperature": 1.0}
    sent = [
        frames.hello(config=config),
        fr.ExperimentBegun(cm.Experiment(["fixed:5", "none"], "none", 8, 4), 0.0, 0),
    ]
    for block in range(16):
        number, arm = divmod(block, 2)
        tokens = (8 if number % 2 else 2) if arm == 0 else 4
        sent.append(
            fr.Block(block, ("fixed:5", "none")[arm], "serve", 10 * block, float(block), "chat", number)
        )
        sent.append(frames.steps(10 * block, 10 * block + 10, block=block, tokens=tokens))
        sent += [fr.RoundDone(number, True, "", block + 1.0, 10 * block + 10)] if arm else []
    with Database(tmp_path / "lab.duckdb") as database, Recorder(database) as recorder:
        for envelope in frames.envelopes(sent, run, 0):
            recorder.record(envelope)
        recorder.flush()
        told, written = analyse(database.cursor(), run), unescape(report(database.cursor(), run))
    rates = {arm: each.tokens_per_s for arm, each in told.arms.items()}
    assert rates == {"fixed:5": pytest.approx(50.0), "none": pytest.approx(40.0)}
    for arm, each in told.arms.items():
        assert each.ledger.total_ms == pytest.approx(1e6 / rates[arm])
    assert [row["tokens/s"] for row in table(told)] == list(rates.values())
    assert all(f"<td class='number'>{rate}</td>" in written for rate in ("50.0", "40.0"))
    assert (
        words.RATIO in written
        and "blocks of 40 steps after 4 steps of wash-out, 4 requests under way" in written
    )
    assert told.best_fixed.between == ["fixed:5", "none"]  # the halves are of 20 and of 80 tokens/s


def test_a_column_of_a_report_has_as_many_digits_everywhere():
    rows = [
        {"arm": arm, "tokens/s": rate, "× none": rate / 17.805}
        for arm, rate in (("none", 17.805), ("a", 113.6))
    ]
    table = _table(rows)
    assert ">17.8<" in table and ">113.6<" in table and ">1.000<" in table and ">6.380<" in table


def test_a_total_outside_the_interval_is_warned_of():
    """One long, fast block lifts the quotient of all tokens and seconds, and not the typical round."""
    plan = SimpleNamespace(baseline="none")
    seen = {"adaptive": SimpleNamespace(tokens_per_s=130.0), "none": SimpleNamespace(tokens_per_s=100.0)}
    answer = SimpleNamespace(plan=plan, arms=seen)
    result = standing_of("adaptive", "", np.full(40, 0.05), sequence(np.full(40, 0.05)), None)
    told = words._disagreement(result, answer)
    assert told.startswith("adaptive: tokens/s of all rounds together differ by +30 % from none's, outside")
    seen["adaptive"].tokens_per_s = 100 * result.ratio
    assert words._disagreement(result, answer) is None


def test_the_first_rounds_are_told_without_an_interval_and_silent_once_there_is_one():
    early = answer(rates(rounds=2, adaptive=1.1, fixed_3=1.0), "fixed:3", rounds=2)
    told = words.provisional(early)
    assert (
        told.startswith("Provisional, without an interval: adaptive 1.")
        and "× fixed:3 over 2 rounds. An" in told
    )
    assert words.provisional(answer(rates(adaptive=1.1, fixed_3=1.0), "fixed:3")) == ""
