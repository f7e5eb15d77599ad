"""What an A/B claims, and when it takes a claim back: from throughputs by round to sentences."""

import numpy as np
import pytest

from avlab.experiments import words
from avlab.experiments.analysis import against_fixed, best_fixed, result_of

ROUNDS = 40


def rates(seed=0, rounds=ROUNDS, **levels):
    """Throughputs by round of arms: their level, with 3 % of noise. A level is a number or one a round."""
    draw = np.random.default_rng(seed)
    return {
        arm.replace("_", ":"): 100 * np.asarray(level) * np.exp(0.03 * draw.normal(size=rounds))
        for arm, level in levels.items()
    }


def answer(found, baseline, **changes):
    """The parts of an analysis that words are made of."""
    arms = list(found)
    results = [result_of(arm, found[arm], found[baseline], 12.0) for arm in arms if arm != baseline]
    return {
        "plan": {"arms": arms, "baseline": baseline, "concurrency": 16, "rounds": ROUNDS},
        "results": results,
        "adaptive": against_fixed(found, arms, baseline),
        "best_fixed": best_fixed(found, arms),
        "slo": None,
        "state": "finished",
        "rounds": ROUNDS,
        "dropped": [],
    } | changes


MOVING = np.repeat([1.4, 0.7], [40, 160])  # against 1: faster at first, slower later


def test_beating_every_fixed_length_is_said_with_their_names():
    told = answer(rates(adaptive=1.2, fixed_5=1.0, none=0.9, verify_3=2.0), "fixed:5")
    (beats,) = told["adaptive"]
    assert beats["declared"] and beats["fixed"] == ["fixed:5", "none"] and 1 < beats["least_low"] < 1.2
    least, after = words.percent(beats["least_low"]), beats["declared_at"]
    assert (
        f"adaptive beats every fixed length compared: fixed:5, none; each by at least {least} % (declared after "
        f"{after} rounds)." in words.verdicts(told)
    )


@pytest.mark.parametrize("others", [{"fixed_5": 1.0}, {"fixed_5": 1.0, "verify_3": 1.0}])
def test_one_fixed_length_is_not_every(others):
    told = answer(rates(adaptive=1.5, **others), "fixed:5")
    assert not told["adaptive"][0]["declared"] and "every fixed" not in " ".join(words.verdicts(told))


def test_a_ratio_that_moved_takes_every_claim_back():
    found = rates(rounds=200, adaptive=MOVING, fixed_5=1.0, none=1.0)
    told = answer(found, "fixed:5")
    adaptive = told["results"][0]
    assert adaptive["moved"] and adaptive["declared_at"] and not adaptive["declared"]
    assert adaptive["rounds_to_2_percent"] is None
    (beats,) = told["adaptive"]
    assert not beats["declared"] and beats["least_low"] is beats["declared_at"] is None
    assert beats["beaten_by"] == []
    said = " ".join(words.verdicts(told))
    assert "the ratio changed while it was measured" in said and "beats every" not in said


@pytest.mark.parametrize("levels", [(2.0, 1.3), (0.5, 0.8)])
def test_a_ratio_that_moved_claims_nothing_on_either_side_of_1(levels):
    found = rates(rounds=160, adaptive=np.repeat(levels, [60, 100]), fixed_5=1.0, none=1.0)
    told = answer(found, "fixed:5")
    result, (beats,) = told["results"][0], told["adaptive"]
    assert result["moved"] and not result["low"] <= 1 <= result["high"] and not result["declared"]
    assert not beats["declared"] and beats["beaten_by"] == []


def test_declared_means_an_interval_beside_it_without_1():
    for found in (
        rates(adaptive=1.2, none=1.0),
        rates(adaptive=1.0, none=1.0),
        rates(adaptive=0.8, none=1.0),
    ):
        result = result_of("adaptive", found["adaptive"], found["none"])
        assert result["declared"] == (not result["low"] <= 1 <= result["high"])


def test_the_best_fixed_length_is_named_with_its_own_rate_or_not_settled():
    found = rates(adaptive=1.0, fixed_1=1.2, fixed_5=1.0, verify_3=1.5)
    best = best_fixed(found, list(found))
    assert best["arm"] == "fixed:1"
    assert best["tokens_per_s"] == pytest.approx(np.exp(np.log(found["fixed:1"]).mean()))
    assert "The best fixed length compared is fixed:1: 1" in " ".join(
        words.verdicts(answer(found, "fixed:5"))
    )
    turns = np.tile([1.3, 0.7], ROUNDS // 2)  # one half of the rounds would choose each
    found = rates(fixed_1=turns, fixed_5=1.0, none=0.5)
    assert best_fixed(found, list(found)) == {
        "arm": None, "tokens_per_s": None, "between": ["fixed:1", "fixed:5"]
    }  # fmt: skip
    said = " ".join(words.verdicts(answer(found, "fixed:5")))
    assert (
        "The best fixed length is not settled between fixed:1 and fixed:5." in said and "tokens/s" not in said
    )


def test_losses_to_an_adaptive_baseline_count_too():
    found = rates(**{"adaptive": 1.2, "adaptive+depth": 1.0, "none": 0.8})
    beaten = {row["arm"]: row["beaten_by"] for row in against_fixed(found, list(found), "adaptive")}
    assert beaten == {"adaptive": [], "adaptive+depth": ["adaptive"]}
    beaten = {row["arm"]: row["beaten_by"] for row in against_fixed(found, list(found), "adaptive+depth")}
    assert beaten == {"adaptive": [], "adaptive+depth": ["adaptive"]}


def test_how_often_one_of_several_comparisons_is_wrong():
    told = answer(rates(none=1.0, fixed_1=1.0, fixed_3=1.0, fixed_5=1.0, adaptive=1.0), "none")
    assert words.errors_together(told) == (
        "Each of these 4 comparisons by itself is wrong in at most 5 % of A/Bs; one or more of them in up to 20 % (the "
        "errors added up)."
    )
    assert words.errors_together(answer(rates(none=1.0, adaptive=1.0), "none")) == ""


def test_how_long_until_is_told_in_minutes_and_of_every_arm():
    told = answer(rates(none=1.0, fixed_1=1.0, adaptive=1.0), "none")
    for result in told["results"]:
        assert result["minutes_to_2_percent"] == pytest.approx(result["rounds_to_2_percent"] * 12 / 60)
    sooner, later = ({"rounds": ROUNDS, "arm": arm} for arm in ("fixed:1", "adaptive"))
    sooner |= {"rounds_to_2_percent": 41, "minutes_to_2_percent": 8.2}
    later |= {"rounds_to_2_percent": 80, "minutes_to_2_percent": 16.0}
    assert words.until({"results": [sooner, later]}) == (
        "Every ratio is known to ± 2 % after about 80 rounds, 16 min in all."
    )
    assert (
        words.until({"results": [sooner]})
        == "The ratio is known to ± 2 % after about 41 rounds, 8.2 min in all."
    )
    later |= {"rounds_to_2_percent": None, "minutes_to_2_percent": None}
    assert words.until({"results": [sooner, later]}) == "How long until ± 2 % cannot be told yet of adaptive."
    assert words.until(answer(rates(rounds=0, none=1.0, adaptive=1.0), "none")) == ""


def test_the_best_within_a_limit_says_that_values_are_compared():
    arms = {"a": {"tokens_per_s": 10.0, "p95_tpot_ms": 9.0}, "b": {"tokens_per_s": 11.0, "p95_tpot_ms": 11.0}}
    assert words.best_within(arms, ("p95_tpot_ms", 10.0))["text"] == (
        "Within p95_tpot_ms ≤ 10 ms, a is the fastest, by the values measured and without regard to their error: 10.0 "
        "tokens/s at 9.0 ms."
    )
