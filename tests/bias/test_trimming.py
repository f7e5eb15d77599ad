import numpy as np
import pytest

from avlab.bias.exact import Step
from avlab.bias.trimming import SCORES, by_cost, fixed, ranked, threshold, with_exploration
from avlab.speculation.budget import first_peak

SURE, FLAT, LEANING = np.array([0.9, 0.1, 0.0]), np.array([0.4, 0.3, 0.3]), np.array([0.6, 0.3, 0.1])
MAXIMUM = SCORES["maximum probability"]


def step(*rows, tokens=None, earlier=None, coins=()):
    tokens = tokens or tuple((0,) * len(own) for own in rows)
    return Step(((0,),) * len(rows), tokens, rows, earlier, coins)


def test_scores_of_a_row():
    values = {name: score(LEANING, 1) for name, score in SCORES.items()}
    assert values["drawn-token probability"] == pytest.approx(0.3)
    assert values["maximum probability"] == pytest.approx(0.6)
    assert values["top-two margin"] == pytest.approx(0.3)
    assert values["entropy"] == pytest.approx(np.exp(np.sum(LEANING * np.log(LEANING))))
    assert SCORES["entropy"](np.array([0.0, 1.0]), 1) == 1.0
    assert SCORES["entropy"](np.full(4, 0.25), 0) == pytest.approx(0.25)


def test_only_the_drawn_token_score_looks_at_the_drawn_token():
    for name, score in SCORES.items():
        assert (len({score(LEANING, token) for token in range(3)}) > 1) == (name == "drawn-token probability")


def test_a_threshold_ends_at_the_first_low_slot():
    rule = threshold(MAXIMUM, 0.5)
    assert rule.admit(step((SURE, FLAT, SURE), (FLAT, SURE, SURE), (SURE, SURE, SURE))) == [(1.0, (1, 0, 3))]
    assert fixed(2).admit(step((FLAT, FLAT, FLAT))) == [(1.0, (2,))]


def test_a_budget_goes_to_the_best_survivals():
    rule = ranked(MAXIMUM, lambda _: 3)
    assert list(rule.admit(step((SURE, SURE, FLAT), (LEANING, FLAT, SURE)))) == [(1.0, (2, 1))]


def test_the_budget_comes_from_the_step_before_and_a_first_step_expects_everything():
    seen = []
    rule = ranked(MAXIMUM, lambda survivals: seen.append(survivals.tolist()) or 1)
    first = step((SURE, FLAT))
    list(rule.admit(first))
    list(rule.admit(step((FLAT, FLAT), earlier=rule.remember(first))))
    np.testing.assert_allclose(seen, [[[1.0, 1.0]], [[0.9, 0.36]]])


def test_a_budget_from_this_step_remembers_nothing():
    rule = ranked(MAXIMUM, lambda survivals: int(survivals[0, 0] > 0.8), earlier_budget=False)
    assert rule.remember(step((SURE, FLAT))) is None
    assert list(rule.admit(step((SURE, FLAT)))) == [(1.0, (1,))]
    assert list(rule.admit(step((FLAT, FLAT)))) == [(1.0, (0,))]


def test_a_budget_by_cost():
    survivals = np.array([[0.9, 0.8]])
    assert by_cost([1.0, 1.9, 1.9])(survivals) == 2
    assert by_cost([1.0, 2.5, 1.9], first_peak)(survivals) == 0
    assert by_cost([1.0, 2.5, 1.9])(survivals) == 2


def test_ties_by_chance_share_the_last_places_evenly():
    rule = ranked(MAXIMUM, lambda _: 2, chance_ties=True)
    one = np.array([1.0, 0.0, 0.0])
    ways = list(rule.admit(step((one, one), (one, FLAT))))
    assert sum(chance for chance, _ in ways) == pytest.approx(1.0)
    assert sorted(lengths for _, lengths in ways) == [(1, 1), (1, 1), (2, 0)]
    assert list(ranked(MAXIMUM, lambda _: 0, chance_ties=True).admit(step((one, one)))) == [(1.0, (0,))]
    assert list(ranked(MAXIMUM, lambda _: 9, chance_ties=True).admit(step((one, one)))) == [(1.0, (2,))]


def test_exploration_verifies_some_requests_in_full():
    rule, chances = with_exploration(fixed(1), 0.1), {}
    for chance, coins in rule.toss(2):
        [(weight, lengths)] = rule.admit(step((SURE, SURE), (SURE, SURE), coins=coins))
        chances[lengths] = chance * weight
    assert chances == pytest.approx({(1, 1): 0.81, (2, 1): 0.09, (1, 2): 0.09, (2, 2): 0.01})
    assert with_exploration(fixed(1), 0.0).toss(2) == [(1.0, (False, False))]
