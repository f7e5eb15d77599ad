"""Rules of other engines and papers: their public test vectors, what they decide, and that they keep the output."""

from math import log

import numpy as np
import pytest
from traces import made_up

from avlab.bias.exact import Pair, Rule, output_distribution, target_law, total_variation
from avlab.machines import machine
from avlab.policies.arm import Arm, PolicyError
from avlab.policies.base import PolicyContext, make_policy
from avlab.policies.steps import Slot
from avlab.replay.serving import Replay
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer
from avlab.speculation.features import Features
from avlab.speculation.labels import labels
from avlab.speculation.published_budgets import sglang_budget, straight, tensorrt_budget

# of TensorRT-LLM's tests/unittest: one table that both engines are held to
TOKENS = [64, 96, 128, 192, 384, 512, 768, 1536], [9.68, 11.08, 11.95, 13.95, 22.09, 23.85, 35.61, 105.64]
REQUESTS = [32, 64, 128, 256], [0.0, 2.177477, 11.462212, 19.342661]
BIAS = 25.244443
SURVIVAL = [0.771, 0.693, 0.502, 0.360, 0.315]


def step_ms(requests):
    return lambda tokens: BIAS + np.interp(requests, *REQUESTS) + np.interp(tokens, *TOKENS)


def test_both_engines_stop_where_the_cost_begins_to_rise():
    """252 requests at their campaign's survivals: 768 tokens in all, which is 264 beyond the floor, or 516."""
    survival = np.tile(SURVIVAL, (252, 1))
    assert sglang_budget(survival, 252, step_ms(252)) == 768 - 252
    assert tensorrt_budget(survival, np.full(252, 5), step_ms(252)) == 768 - 2 * 252


@pytest.mark.parametrize("requests", [1, 3, 8, 64, 128, 252, 256])
def test_the_two_budgets_differ_by_the_floor(requests):
    """TensorRT-LLM's parity test: where every first draft beats every later one, and SGLang takes them all."""
    rng = np.random.default_rng(17 + requests)
    chances = np.concatenate(
        [rng.uniform(0.85, 0.99, (requests, 1)), rng.uniform(0.25, 0.80, (requests, 4))], 1
    )
    survival = np.cumprod(chances, axis=1)
    ours = sglang_budget(survival, requests, step_ms(requests))
    theirs = tensorrt_budget(survival, np.full(requests, 5), step_ms(requests))
    assert theirs == max(ours - requests, 0)


def test_hopeless_requests_get_nothing_from_sglang_and_one_draft_from_tensorrt():
    strong, dead = [0.99, 0.98, 0.97, 0.96, 0.95], [0.01, 0.008, 0.006, 0.004, 0.002]
    survival = np.repeat([strong, dead], 32, axis=0)

    def rate(tokens, verified):
        return (64 + tokens) / step_ms(64)(64 + verified)

    best = np.sort(survival, axis=None)[::-1]
    ours = sglang_budget(survival, 64, step_ms(64))
    theirs = tensorrt_budget(survival, np.full(64, 5), step_ms(64))
    beyond = np.sort(survival[:, 1:], axis=None)[::-1][:theirs].sum()
    assert rate(best[:ours].sum(), ours) > rate(survival[:, 0].sum() + beyond, 64 + theirs)


def test_a_gain_too_small_leaves_everything_verified():
    """SGLang's test of its guard has the same shape: a nearly flat curve declines to trim, a steep one trims."""
    survival = np.tile(0.5 ** np.arange(1.0, 8), (8, 1))
    steep, flat = (
        lambda tokens, rates=rates: 1e3 / np.interp(tokens, [8, 64, 128, 384], rates)
        for rates in ([1000, 700, 400, 100], [1000, 960, 920, 880])
    )
    everything = 8 * 6
    assert tensorrt_budget(survival, np.full(8, 7), flat) < everything
    assert tensorrt_budget(survival, np.full(8, 7), flat, gain=0.05) == everything
    assert tensorrt_budget(survival, np.full(8, 7), steep, gain=0.05) < everything
    budgets = [tensorrt_budget(survival, np.full(8, 7), steep, gain) for gain in (0, 0.05, 0.2, 0.9)]
    assert budgets == sorted(budgets) and budgets[-1] == everything


def test_straight_lines_join_what_was_captured():
    steps = np.array([1.0, 1.0, 1.0, 3.0, 3.0, 4.0])
    assert straight(steps).tolist() == [1.0, 1.0, 1.0, 2.0, 3.0, 4.0]
    assert straight([1.0, 2.0, 4.0]).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("sglang", "sglang"),
        ("sglang:head", "sglang"),
        ("sglang:online", "sglang:online"),
        ("tensorrt+gain=0.04", "tensorrt"),
        ("tensorrt:raw+gain=0.01", "tensorrt:raw+gain=0.01"),
        ("dspark:online", "dspark:online"),
        ("threshold:0.50", "threshold:0.5"),
        ("threshold:0.4+by=head+survival", "threshold:0.4+survival+by=head"),
        ("steps", "steps"),
        ("bandit", "bandit"),
    ],
)
def test_each_is_written_in_the_grammar(text, shortest):
    arm = Arm.parse(text, 7)
    assert str(arm) == shortest and Arm.parse(shortest) == arm and not arm.fixed


@pytest.mark.parametrize(
    "text",
    [
        "sglang:oracle",
        "sglang+depth",
        "tensorrt+gain=2",
        "tensorrt+gain",
        "threshold",
        "threshold:2",
        "dspark:",
    ]
    + ["threshold:0.5+by=drawn", "threshold:0.5+survival=1", "steps:3", "bandit+depth"],
)
def test_what_is_outside_the_grammar_is_refused(text):
    with pytest.raises(PolicyError):
        Arm.parse(text, 7)


@pytest.mark.parametrize(
    ("text", "instead"), [("sglang", "sglang:online"), ("tensorrt+gain=0.1", "tensorrt:online")]
)
def test_without_a_head_a_rule_that_reads_one_is_refused_and_another_estimator_named(text, instead):
    with pytest.raises(PolicyError, match=f"has no confidence head: .*such as {instead}"):
        Arm.parse(text).require_features(["max_log_odds"])


def test_the_mean_of_accepted_drafts_moves_the_length():
    """Thresholds of SGLang's adaptive steps, by hand: candidates 1, 3, 5, 7, beginning at 3 with a mean of 2."""
    slot = Slot((1, 3, 5, 7), -0.25, 3)
    for _ in range(10):
        slot.observe(3.0)
    assert slot.length == 3  # the warm-up
    for _ in range(5):
        slot.observe(3.0)
    assert slot.length == 5 and slot.mean == pytest.approx(3 - 0.8**15)  # beyond 2.5, and not beyond 4.5
    for _ in range(40):
        slot.observe(0.0)
    assert slot.length == 1
    off = Slot((0, 1, 3), 0.0, 7)
    for _ in range(30):
        off.observe(0.0 if off.length else None)
    assert off.length in (0, 1)  # it tries a draft every other time


def test_the_bandit_finds_the_best_length():
    """Drafts cost nothing and are always accepted: the longest is played most."""
    trace, emulated = made_up(texts=20, chance=0.999), machine("b300-deepseek-v4-flash-tp4", 3)
    policy = make_policy(Arm.parse("bandit", 3), PolicyContext(3, emulated.table()))
    replay = Replay(trace, emulated, policy, 1)
    for _ in range(3000):
        replay.step()
    plays = policy.plays[1][0]
    assert plays.argmax() == 3 and plays.all()


COSTS = CostTable(np.array([0.0, 0.1, 0.1]), np.array([1.0, 1.0, 1.55, 2.1, 2.6, 3.0, 3.7, 5.0, 6.0]))


def as_rule(text, K, met):
    """A policy of ours as a rule for `bias.exact`: the maximum of a row is the estimate, as `raw` has it.

    met: receives the lengths that it admits.
    """

    def estimates(step):
        policy = make_policy(Arm.parse(text, K), PolicyContext(K, COSTS))
        peaks = np.array([[row.max() for row in rows] for rows in step.rows])
        odds = np.array([[log(p / (1 - p)) for p in row] for row in peaks])
        return policy, policy.estimate(Features(("max_log_odds",), odds[..., None]))

    def admit(step):
        policy, now = estimates(step)
        B = len(step.tokens)
        earlier = np.full((B, K), np.nan) if step.earlier is None else np.array(step.earlier)
        offer = Offer(np.full(B, K), earlier, np.zeros(B), B, B, B)
        lengths = tuple(policy.admit(policy.decide(offer), now, offer).admitted.tolist())
        met.add(lengths)
        return [(1.0, lengths)]

    return Rule(admit, lambda step: tuple(map(tuple, estimates(step)[1].probability.tolist())))


@pytest.mark.parametrize(
    "text",
    ["sglang:raw", "tensorrt:raw", "tensorrt:raw+gain=0.02", "dspark:raw", "threshold:0.6+by=raw"]
    + ["threshold:0.4+survival+by=raw"],
)
@pytest.mark.parametrize(("K", "requests"), [(3, 1), (2, 2)])
def test_the_output_is_the_targets(text, K, requests):
    """Every draw of small pairs, over two steps, to rounding; and the rule admits this or that."""
    met = set()
    rule = as_rule(text, K, met)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pair = Pair.markov(rng.dirichlet([0.8] * 2, 2), rng.dirichlet([0.8] * 2, 2), K)
        starts = (0, 1)[:requests]
        found = output_distribution(pair, rule, starts, 2, 2)
        assert total_variation(found, target_law(pair, starts, 2)) <= 1e-12
    assert len(met) > 1


def test_a_length_that_follows_from_accepted_tokens_keeps_the_output():
    """As `steps` and `bandit` do: the length of a step is a function of what earlier steps emitted."""
    rng = np.random.default_rng(0)
    pair = Pair.markov(rng.dirichlet([0.8] * 3, 3), rng.dirichlet([0.8] * 3, 3), 2)
    rule = Rule(lambda step: [(1.0, tuple((len(h) * 7) % 3 for h in step.histories))])
    assert total_variation(output_distribution(pair, rule, (0,), 3, 3), target_law(pair, (0,), 3)) <= 1e-12


@pytest.mark.parametrize("text", ["steps", "bandit"])
def test_what_they_learn_is_what_was_accepted(text):
    trace, emulated = made_up(texts=8, chance=0.05), machine("b300-deepseek-v4-flash-tp4", 3)
    policy = make_policy(Arm.parse(text, 3), PolicyContext(3, emulated.table()))
    policy.decide(Offer(np.full(2, 3), np.full((2, 3), np.nan), np.zeros(2), 2, 2, 2))
    policy.observe(Features(("max_log_odds",), np.zeros((2, 3, 1))), None, labels([2, 1], [3, 3], 3))
    assert policy.accepted == {"steps": 1.5, "bandit": 3}[text]
    replay = Replay(trace, emulated, policy, 4)
    steps = [replay.step() for _ in range(200)]
    assert {s.depth for s in steps} > {3} and all(s.admitted == s.scheduled for s in steps)
