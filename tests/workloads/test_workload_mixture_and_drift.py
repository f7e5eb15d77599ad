"""Workloads as the serving loop sees them: one kind, a mixture, a drift, and the names they go by."""

from collections import Counter
from itertools import pairwise

import pytest

from avlab.workloads import Moment, WorkloadError, known_workloads, open_workload, prompts, split


def served(spec, count=1000, **options):
    return open_workload(spec, f"burst:{count}", **options).due(Moment(0.0))


def test_a_kind_is_served_from_its_held_out_side_without_end():
    requests = served("verse")
    assert {request.kind for request in requests} == {"verse"}
    assert {split(request.prompt) for request in requests} == {"held-out"}
    assert [request.index for request in requests] == list(range(1000))


def test_every_prompt_is_served_once_before_any_is_served_again_and_then_in_another_order():
    side = len(prompts("code", split="held-out"))
    ids = [request.prompt.id for request in served("code", 2 * side)]
    assert set(ids[:side]) == set(ids[side:]) and len(set(ids)) == side
    assert ids[:side] != ids[side:]


def test_the_training_side_can_be_asked_for():
    assert {split(request.prompt) for request in served("mixed", split="training")} == {"training"}


@pytest.mark.parametrize(
    "spec", ["essays", "mixed", "mixture:code=2,verse=1", "drift:verse,tool_calls@100requests"]
)
def test_the_same_seed_gives_the_same_requests_and_another_seed_others(spec):
    assert served(spec, 200, seed=5) == served(spec, 200, seed=5)
    assert served(spec, 200, seed=5) != served(spec, 200, seed=6)


def test_mixed_serves_every_kind_equally_often():
    counts = Counter(request.kind for request in served("mixed", 7000))
    assert set(counts) == set(known_workloads()) - {name for name in known_workloads() if ":" in name} - {
        "mixed"
    }
    assert all(abs(count - 1000) < 4 * (7000 * 1 / 7 * 6 / 7) ** 0.5 for count in counts.values())


def test_a_mixture_follows_its_weights():
    counts = Counter(request.kind for request in served("mixture:code=2,verse=1,chat=0.5", 7000))
    assert counts["code"] == pytest.approx(4000, abs=170)
    assert counts["verse"] == pytest.approx(2000, abs=150)
    assert counts["chat"] == pytest.approx(1000, abs=120)
    even = Counter(request.kind for request in served("mixture:code,verse", 4000))
    assert even["code"] == pytest.approx(2000, abs=130)


def test_a_mixture_is_mixed_all_along():
    kinds = [request.kind for request in served("mixture:code,verse", 1000)]
    changes = sum(before != after for before, after in pairwise(kinds))
    assert 400 < changes < 600


def test_a_drift_in_requests_moves_on_after_that_many():
    kinds = [request.kind for request in served("drift:verse,tool_calls@300requests", 1000)]
    assert kinds == ["verse"] * 300 + ["tool_calls"] * 700


def test_a_drift_in_seconds_goes_by_the_arrival_and_not_by_when_it_is_asked():
    workload = open_workload("drift:verse,tool_calls@60s", "poisson:4", seed=1)
    requests = workload.due(Moment(seconds=50.0)) + workload.due(Moment(seconds=120.0))
    assert {request.kind for request in requests} == {"verse", "tool_calls"}
    assert all((request.kind == "verse") == (request.arrival < 60.0) for request in requests)


def test_a_drift_in_steps_takes_no_notice_of_seconds():
    workload = open_workload("drift:verse,code,chat@200steps", "closed:1")
    kinds = [workload.due(Moment(seconds=1e6, steps=step))[0].kind for step in (0, 199, 200, 399, 400, 9000)]
    assert kinds == ["verse", "verse", "code", "code", "chat", "chat"]


def test_a_stage_of_a_drift_can_be_mixed():
    kinds = [request.kind for request in served("drift:code,mixed@100requests", 400)]
    assert set(kinds[:100]) == {"code"} and len(set(kinds[100:])) == 7


def test_a_limit_replaces_the_kinds_suggestions():
    assert {request.max_new_tokens for request in served("mixed", 300)} > {96, 256}
    assert {request.max_new_tokens for request in served("mixed", 300, max_new_tokens=40)} == {40}


def test_sixteen_at_a_time_is_the_pattern_when_none_is_given():
    assert len(open_workload("chat").due(Moment(0.0))) == 16


@pytest.mark.parametrize(
    "spec", ["poetry", "", "mixture", "drift", "Verse", "mixture:poetry", "drift:verse,poetry@9s"]
)
def test_an_unknown_name_is_answered_with_the_known_ones(spec):
    with pytest.raises(WorkloadError, match="there is no workload named") as caught:
        open_workload(spec)
    assert all(name in str(caught.value) for name in known_workloads())


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("mixture:code=0,verse=1", "weight '0' for 'code' is not a number above 0"),
        ("mixture:code=-1", "weight '-1'"),
        ("mixture:code=nan", "weight 'nan'"),
        ("mixture:code=inf", "weight 'inf'"),
        ("mixture:code=much", "weight 'much'"),
        ("mixture:code,code", "names 'code' twice"),
        ("drift:verse,code", "is not of the form drift:KIND,KIND@60s"),
        ("drift:verse@60s", "is not of the form"),
        ("drift:verse,code@0s", "a number above 0"),
        ("drift:verse,code@-5s", "is not of the form"),
        ("drift:verse,code@60", "s, steps or requests"),
        ("drift:verse,code@60h", "s, steps or requests"),
    ],
)
def test_a_malformed_workload_is_refused_in_one_sentence(spec, complaint):
    with pytest.raises(WorkloadError, match=complaint) as caught:
        open_workload(spec)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_absurd_limits_and_unknown_splits_are_refused():
    with pytest.raises(WorkloadError, match="a limit of 0 new tokens"):
        open_workload("verse", max_new_tokens=0)
    with pytest.raises(WorkloadError, match="no split named 'test'"):
        open_workload("verse", split="test")
