"""Many random cases of every rule: sound ones keep the target, and sampling agrees with enumeration."""

import numpy as np
import pytest

from avlab.bias.exact import Pair, output_distribution, target_law, total_variation
from avlab.bias.goodness_of_fit import pool
from avlab.bias.grammar import parse_rule
from avlab.bias.ready_made_scenes import all_or_nothing, one_late
from avlab.bias.sampled import sample_outputs
from avlab.bias.trimming import (
    SCORES,
    adaptive,
    by_cost,
    by_score,
    drawn_token_probability,
    fixed,
    ranked,
    threshold,
    with_exploration,
)
from avlab.speculation.budget import first_peak
from avlab.speculation.costs import CostTable

STEPPED = [1.0, 1.9, 1.9, 1.9, 2.8, 2.8, 2.8]
LATE = one_late()
SOUND = [score for score in SCORES.values() if score is not drawn_token_probability]


def random_pair(random, V, K):
    """A Markov or parallel pair whose rows may be sharp, flat or have zeros."""
    sharpness = random.choice([0.2, 1.0, 5.0])
    target, drafter = (
        random.dirichlet(np.full(V, sharpness), V),
        random.dirichlet(np.full(V, sharpness), (V, K)),
    )
    if random.random() < 0.3:
        drafter[..., 0] = 0
        drafter[drafter.sum(-1) == 0] = 1
        drafter /= drafter.sum(axis=-1, keepdims=True)
    return Pair.markov(target, drafter[:, 0], K) if random.random() < 0.6 else Pair.parallel(target, drafter)


def sound_rules(random, pair, B):
    """Rules that must keep the target whatever it is; those of one request only where there is one."""
    K, head = (
        pair.K,
        pair.target((0,)),
    )  # a head that knows the target's row behind one token: any score will do
    score, cut = SOUND[random.integers(len(SOUND))], random.random()
    convex = np.cumsum(np.sort(random.uniform(0.1, 2, 2 * K + 1)))
    costs = CostTable(
        np.tile(np.cumsum(random.random(K + 1)), (B + 1, 1)), 0.1 + np.cumsum(random.random(4 * B * K))
    )
    alone = [LATE, all_or_nothing()] if B == 1 else []
    return [
        fixed(int(random.integers(K + 1))),
        threshold(score, cut),
        by_score(score),
        with_exploration(threshold(score, cut), random.random()),
        ranked(score, by_cost(STEPPED)),
        ranked(score, by_cost(STEPPED, first_peak), earlier_budget=False),
        ranked(score, by_cost(convex), earlier_budget=False),
        ranked(score, lambda _: K),
        parse_rule(f"head-prefix:{cut}").make(head),
        parse_rule("head-prefix:chance").make(head),
        parse_rule(f"random:{cut}").make(head),
        adaptive(score, costs),
        adaptive(score, costs, choose_depth=True, explore=0.2, unknown=None),
        *alone,
    ]


def unsound_rules(random, pair):
    score, head = SOUND[random.integers(len(SOUND))], pair.target((0,))
    return [
        parse_rule(f"head-drawn:{random.random()}").make(head),
        parse_rule("head-drawn:chance").make(head),
        threshold(drawn_token_probability, random.random()),
        by_score(drawn_token_probability),
        ranked(score, by_cost(STEPPED), earlier_budget=False),
        ranked(score, lambda _: pair.K, chance_ties=True),
    ]


@pytest.mark.parametrize("cases", [60, pytest.param(500, marks=pytest.mark.long)])
def test_sound_rules_are_exact_in_random_cases(cases):
    random = np.random.default_rng(11)
    for case in range(cases):
        V, K, B = int(random.integers(2, 5)), int(random.integers(1, 4)), 1
        if case % 5 == 0:
            V, K, B = 2, min(K, 2), 2
        pair = random_pair(random, V, K)
        rules, turn = sound_rules(random, pair, B), case // 5 if B == 2 else case
        starts = tuple(range(B))
        length = 3 if B == 1 and V**K <= 16 else 2
        output = output_distribution(pair, rules[turn % len(rules)], starts, length)
        assert total_variation(output, target_law(pair, starts, length)) < 1e-12, case


@pytest.mark.slow
@pytest.mark.parametrize("cases", [20, pytest.param(200, marks=pytest.mark.long)])
def test_enumeration_agrees_with_200_000_draws_in_random_cases(cases):
    random = np.random.default_rng(5)
    for case in range(cases):
        V, K, B = int(random.integers(2, 5)), int(random.integers(1, 4)), 1
        if case % 6 == 0:
            V, K, B = 2, min(K, 2), 2
        K = min(K, 2) if V == 4 else K
        pair = random_pair(random, V, K)
        rules = sound_rules(random, pair, B) + unsound_rules(random, pair)
        faults = [{}, {"draft_noise_again": True}, {"target_shares_noise": True}][case % 3 if case % 2 else 0]
        rule, starts = rules[(case // 6 if B == 2 else case) % len(rules)], tuple(range(B))
        exact = output_distribution(pair, rule, starts, 2, **faults).clip(0, 1)
        memory = None if rule is LATE else 1  # it looks at places, and so at the whole of a history
        counts = sample_outputs(pair, rule, 200_000, random, starts, 2, memory=memory, **faults)
        assert not counts[exact == 0].any(), case
        seen, due = pool(counts, exact)  # cells that are too rare for a normal error are taken together
        error = np.sqrt(np.maximum(due * (1 - due), 0) / 200_000)
        assert (np.abs(seen / 200_000 - due) <= 4 * error + 1e-9).all(), case
