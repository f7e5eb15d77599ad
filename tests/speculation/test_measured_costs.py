"""Costs that follow measurements: what they converge to, what a slow step does, and what they change in a choice."""

import copy

import numpy as np
import pytest
from tiny_models import make_engine, write_block_drafter, write_llama

from avlab.policies.arm import Arm
from avlab.policies.base import PolicyContext, make_policy
from avlab.speculation.budget import choose_depth_and_budget
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.measured_costs import MeasuredCosts

K = 3


def table():
    draft = [(1, 1, 1.0), (1, K, 2.0), (16, 1, 2.0), (16, K, 4.0)]
    return CostTable.linear(draft, [(1, 5.0), (8, 6.0), (64, 20.0)], 16, 64, K=K)


def taught(costs, sizes, steps=400, verify=1.0, draft=1.0, other=(0.0, 0.0), seed=0):
    """Steps of these (depth, tokens), 8 requests each; the profile's times times a factor that may depend on tokens."""
    measured, chance = MeasuredCosts(costs, K), np.random.default_rng(seed)
    for _ in range(steps):
        depth, tokens = sizes[chance.integers(len(sizes))]
        factor = verify(tokens) if callable(verify) else verify
        measured.observe(
            8,
            depth,
            tokens,
            draft * costs.draft_at(depth)[8],
            factor * costs.verify[tokens],
            other[int(depth > 0)],
        )
    return measured


def test_it_begins_as_the_profile():
    measured = MeasuredCosts(table(), K)
    assert np.array_equal(measured.verify, table().verify)
    assert np.array_equal(measured.by_depth(K), table().by_depth(K))


def test_one_factor_for_all_sizes_where_all_are_alike():
    measured = taught(table(), [(0, 8), (3, 30)], steps=3000, verify=1.7, draft=0.6)
    assert measured.verify == pytest.approx(1.7 * table().verify, rel=0.02)
    assert measured.by_depth(K) == pytest.approx(0.6 * table().by_depth(K), rel=0.03)


def test_a_larger_step_may_have_become_dearer_than_a_smaller_one():
    measured = taught(table(), [(0, 8), (1, 16)], verify=lambda tokens: 1.0 if tokens <= 8 else 1.5)
    assert measured.verify[8] == pytest.approx(table().verify[8], rel=0.04)
    assert measured.verify[16] == pytest.approx(1.5 * table().verify[16], rel=0.04)


def test_a_size_that_is_not_met_follows_those_that_are():
    measured = taught(table(), [(0, 8)], steps=3000, verify=2.0)
    assert measured.verify[40] == pytest.approx(2.0 * table().verify[40], rel=0.05)


def test_a_size_that_was_met_keeps_its_cost_while_another_is_served():
    """One that was not follows at once: it cannot look cheap only because nobody has tried it."""
    dear = taught(table(), [(0, 8), (1, 16)], verify=lambda tokens: 1.0 if tokens <= 8 else 1.5)
    for _ in range(500):
        dear.observe(8, 0, 8, 0.0, table().verify[8], 0.0)
    assert dear.verify[16] > 1.4 * table().verify[16]
    slower = taught(table(), [(0, 8)], steps=100, verify=2.0)
    assert slower.verify[16] == pytest.approx(2.0 * table().verify[16], rel=0.05)


def test_what_a_draft_adds_to_the_rest_of_a_step_is_part_of_its_cost():
    measured = taught(table(), [(0, 8), (2, 20)], other=(0.5, 1.75))
    assert measured.verify[8] == pytest.approx(table().verify[8], rel=0.02)
    assert measured.draft_at(2)[8] == pytest.approx(table().draft_at(2)[8] + 1.75, rel=0.02)
    assert measured.draft_at(0)[8] == pytest.approx(0.5, rel=0.02)
    assert measured.draft_at(2)[1] == table().draft_at(2)[1]  # other loads say nothing of it


def test_a_step_is_expected_to_take_its_draft_and_its_pass_alone():
    profiled = table()
    for costs in (profiled, MeasuredCosts(profiled, K)):
        assert (
            costs.step(8, 2, 20) == profiled.step(8, 2, 20) == profiled.draft_at(2)[8] + profiled.verify[20]
        )
    measured = taught(profiled, [(0, 8), (2, 20)], verify=1.5, other=(0.5, 1.75))
    assert measured.step(8, 2, 20) == pytest.approx(
        profiled.draft_at(2)[8] + 1.5 * profiled.verify[20], rel=0.02
    )
    assert measured.step(8, 2, 10**6) == measured.step(8, 2, 64)


def test_expected_milliseconds_are_by_the_costs_that_decide():
    profiled, arm = table(), Arm.parse("adaptive+depth")
    measured = taught(profiled, [(0, 8), (1, 16), (3, 32)], verify=1.5)
    offer = Offer(np.full(8, K), np.full((8, K), 0.9), np.ones(8), requests=8, emitting=8, other_tokens=8)
    for asked, costs in ((None, profiled), (measured, measured)):
        policy = make_policy(arm, PolicyContext(K, profiled, measured=asked))
        decision = policy.decide(offer)
        admission = policy.admit(decision, Estimates.of_probability(np.full((8, K), 0.9)), offer)
        tokens = 8 + int(admission.admitted.sum())
        assert admission.expected_ms == costs.step(8, decision.drafted, tokens)


def test_a_step_that_was_held_up_counts_for_little():
    measured = taught(table(), [(0, 8), (3, 30)])
    before, relative = measured.verify[30], measured.verify[30] / measured.verify[8]
    measured.observe(8, 3, 30, 400.0, 4000.0, 500.0)
    for _ in range(15):
        measured.observe(8, 0, 8, 0.0, table().verify[8], 0.0)
    assert measured.verify[30] < 1.05 * before
    assert measured.verify[30] / measured.verify[8] < 1.05 * relative


def test_a_machine_that_is_slow_for_a_while_makes_no_size_look_dear_beside_another():
    """Only the small size is served meanwhile; the large one was timed at a better moment."""
    measured = taught(table(), [(0, 8), (3, 30)], other=(0.5, 1.0))
    relative = measured.verify[30] / measured.verify[8], measured.draft_at(3)[8] / measured.verify[8]
    for _ in range(200):
        measured.observe(8, 0, 8, 0.0, 1.3 * table().verify[8], 1.3 * 0.5)
    assert measured.verify[8] == pytest.approx(1.3 * table().verify[8], rel=0.03)
    assert measured.verify[30] == pytest.approx(1.3 * table().verify[30], rel=0.06)
    assert measured.draft_at(3)[8] == pytest.approx(1.3 * (table().draft_at(3)[8] + 1.0), rel=0.06)
    assert (
        measured.verify[30] / measured.verify[8],
        measured.draft_at(3)[8] / measured.verify[8],
    ) == pytest.approx(relative, rel=0.05)


def test_how_long_ago_a_size_was_met():
    measured = taught(table(), [(0, 8)], steps=30)
    assert measured.age(8) == measured.age(9) == 0 and measured.age(40) == 30
    measured.observe(8, 3, 40, 4.0, table().verify[40], 0.0)
    assert measured.age(40) == 0 and measured.age(8) == 1 and measured.age(10**6) == 31


def test_a_choice_by_measured_costs_stops_drafting_where_that_does_not_pay():
    survival, scheduled = np.tile(np.cumprod([0.8, 0.7, 0.6]), (8, 1)), np.full(8, K)

    def choice(costs):
        return choose_depth_and_budget(survival, scheduled, costs.by_depth(K), costs.verify, 8, 8, 8)[:2]

    assert choice(table())[0] > 0
    dear = taught(table(), [(0, 8), (1, 16), (3, 32)], verify=lambda tokens: 1.0 if tokens <= 8 else 2.0)
    assert choice(dear) == (0, 0)


def test_what_drafting_costs_under_a_high_load_does_not_keep_a_low_one_from_drafting():
    """And what was dear once is tried again where nothing is drafted any more."""
    survival = np.cumprod([[0.8, 0.7, 0.6]], axis=1)
    measured = MeasuredCosts(table(), K)
    for _ in range(400):
        measured.observe(16, 1, 32, 2.0 * table().draft_at(1)[16], table().verify[32], 9.0)
        measured.observe(16, 0, 16, 0.0, table().verify[16], 1.0)
    assert choose_depth_and_budget(
        np.tile(survival, (16, 1)), np.full(16, K), measured.by_depth(K), measured.verify, 16, 16, 16
    )[:2] == (0, 0)
    for _ in range(16):
        measured.observe(1, 0, 1, 0.0, table().verify[1], 0.2)
    low = measured.by_depth(K), measured.verify, 1, 1, 1
    assert choose_depth_and_budget(survival, np.full(1, K), *low)[0] > 0
    for _ in range(20_000):
        measured.observe(16, 0, 16, 0.0, table().verify[16], 1.0)
    assert measured.draft_at(1)[16] - measured.draft_at(0)[16] == pytest.approx(
        table().draft_at(1)[16], rel=0.02
    )


def test_costs_belong_to_the_engine_also_where_policies_are_copied():
    measured = MeasuredCosts(table(), K)
    assert copy.deepcopy({"policy": measured})["policy"] is measured


def test_steps_are_measured_from_the_first_arm_on_that_decides_by_it(tmp_path):
    target = write_llama(tmp_path / "target")
    drafter = write_block_drafter(tmp_path / "drafter", target)
    for asked, expected in ((True, True), (False, False)):
        engine = make_engine(target, "block", drafter, "adaptive", measure_costs=asked)
        assert engine.measured is None
        engine.set_policy(Arm.parse("adaptive+depth"))
        assert (engine.measured is not None) == expected
        assert (engine.policy.deciding is engine.costs) != expected
