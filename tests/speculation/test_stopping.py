"""Planning a draft from recent ones, and where verification stops: by hand, by brute force, and the output's law."""

import itertools
from math import log

import numpy as np
import pytest

from avlab.bias.exact import Pair, Rule, output_distribution, target_law, total_variation
from avlab.policies import stopping
from avlab.policies.arm import Arm
from avlab.policies.base import PolicyContext, make_policy
from avlab.policies.stopping import EVERY, FIRST_WAIT, LABELS, PLAIN_EVERY, ROWS
from avlab.policies.wrappers import Frozen
from avlab.speculation.allocation import allocate, best_slots, in_order
from avlab.speculation.budget import choose_depth_and_budget
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.features import Features
from avlab.speculation.measured_costs import MeasuredCosts
from avlab.speculation.recent_rows import RecentRows
from avlab.speculation.stopping import Plan, plan, prices, stop


def offer(B, K, earlier=None, other=None):
    earlier = np.full((B, K), np.nan) if earlier is None else np.asarray(earlier, dtype=float)
    return Offer(np.full(B, K), earlier, np.ones(B), B, B, B if other is None else other)


@pytest.mark.parametrize("seed", range(20))
def test_one_set_is_planned_as_the_best_ratio(seed):
    """With one set of rows the depth is that of `choose_depth_and_budget`, without prompts and with them."""
    rng = np.random.default_rng(seed)
    B, K = rng.integers(1, 6), rng.integers(1, 5)
    survival = rng.random((B, K)).cumprod(1)
    draft, verify = np.concatenate([[0], rng.random(K).cumsum()]), 1 + rng.random(B * K + 60).cumsum() / 4
    for other in (B, B + 20):
        table = np.tile(draft, (B + 1, 1))
        depth, budget, _ = choose_depth_and_budget(survival, np.full(B, K), table, verify, B, B, other)
        planned = plan(survival, 1, draft, verify, B, other)
        assert planned.depth == depth and len(planned.curve) == B * depth
        if other == B:
            cost = draft[depth] + verify[B + budget]
            assert planned.rate == pytest.approx((B + planned.curve[:budget].sum()) / cost)


def test_the_plan_expects_the_mean_of_what_sets_have_best():
    survival = np.array([[0.9, 0.8], [0.5, 0.1], [0.7, 0.6], [0.3, 0.2]])  # two sets of two requests
    planned = plan(survival, 2, np.zeros(3), np.ones(9), 2, 2)
    assert planned.depth == 2 and planned.curve.tolist() == pytest.approx([0.85, 0.65, 0.4, 0.15])


def test_a_sure_draft_now_and_then_is_worth_a_draft():
    """One request; half of its drafts are certain. The mean of estimates would not pay, the mean of worths does."""
    rows = np.array([[1.0, 1.0], [0.0, 0.0]])
    draft, verify = np.array([0.0, 0.3, 0.35]), np.array([1.0, 1.0, 1.7, 2.4])
    assert plan(np.full((2, 2), 0.5).cumprod(1), 2, draft, verify, 1, 1).depth == 0
    one = plan(rows, 2, draft, verify, 1, 1)
    assert plan(rows[:1], 1, draft, verify, 1, 1).depth == 2 and one.depth in (0, 2)


def test_the_least_depth_is_kept():
    assert plan(np.zeros((4, 3)), 1, np.arange(4.0), np.ones(20), 4, 4, shallowest=3).depth == 3


def brute(best, planned, verify, other):
    """`stop`, slot by slot."""
    count = 0
    while count < len(best) and other + count + 1 < len(verify):
        expected = [best[count]] + [
            min(best[count], planned.curve[j] if j < len(planned.curve) else 0.0)
            for j in range(count + 1, min(len(best), len(verify) - 1 - other))
        ]
        gains = [
            sum(expected[: j + 1]) - planned.rate * (verify[other + count + 1 + j] - verify[other + count])
            for j in range(len(expected))
        ]
        if max(gains) <= 0:
            break
        count += 1
    return count


@pytest.mark.parametrize("seed", range(60))
def test_stopping_is_what_it_says(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 12))
    best, curve = (np.sort(rng.random(size))[::-1] for size in (n, rng.integers(0, n + 2)))
    verify = rng.random(3 + n + int(rng.integers(-2, 3))).cumsum().repeat(rng.integers(1, 4))
    verify += rng.choice([0.0, 0.5]) * rng.standard_normal(len(verify))  # not always rising
    planned = Plan(2, float(rng.uniform(0.2, 3)), curve)
    assert stop(best, prices(planned, verify, 2, n)) == brute(best, planned, verify, 2)


def test_a_step_with_room_is_entered_only_where_what_is_expected_pays():
    verify = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0])  # one draft costs as much as four
    sure = np.array([0.6, 0.5, 0.4, 0.3])

    def verified(best, expected):
        return stop(np.array(best), prices(Plan(4, 1.0, np.array(expected)), verify, 1, 4))

    assert verified(sure, [0.6, 0.5, 0.4, 0.3]) == 4
    assert verified(sure, [0.6, 0.1, 0.1, 0.1]) == 0
    # entered because more was expected: what is left in the step is free
    assert verified([0.6, 0.01, 0.01, 0.01], [0.6] * 4) == 4


def test_recent_rows_are_a_ring_and_new_requests_are_no_rows():
    rows = RecentRows(2, most=3)
    assert np.isnan(rows.take(4)).all()
    rows.add(np.array([[0.1, 0.2], [np.nan, np.nan], [0.3, np.nan]]))
    assert rows.take(3)[:, 0].tolist() == [0.1, 0.3, 0.1]
    rows.add(np.array([[0.5, 0.5], [0.6, 0.6]]))
    assert sorted(rows.take(3)[:, 0]) == [0.3, 0.5, 0.6]


COSTS = CostTable(
    np.array([[0.0, 0.1, 0.15, 0.2]] * 3), np.array([1.0, 1.0, 1.55, 2.1, 2.15, 3.0, 3.7, 3.75, 3.8])
)


def served_rule(text, K, met):
    """A policy that remembers steps as a rule for `bias.exact`: it is made anew and led through what it has seen."""

    def policy_before(step):
        policy = make_policy(Arm.parse(text, K), PolicyContext(K, COSTS))
        B, past = len(step.tokens), step.earlier or ()
        for earlier in (None, *past):
            given = offer(B, K, earlier)
            given.coins = np.array([0.0 if step.coins and step.coins[0] else 1.0] * B)
            decision = policy.decide(given)
        return policy, decision, given

    def estimates(policy, step, drafted):
        peaks = np.array([[row.max() for row in rows] for rows in step.rows])
        odds = np.array([[log(p / (1 - p)) for p in row] for row in peaks])
        odds[:, drafted:] = np.nan
        return policy.estimate(Features(("max_log_odds",), odds[..., None]))

    def admit(step):
        policy, decision, given = policy_before(step)
        now = estimates(policy, step, decision.drafted) if decision.drafted else None
        given.scheduled = np.minimum(given.scheduled, decision.drafted)
        lengths = tuple(policy.admit(decision, now, given).admitted.tolist())
        met.add(lengths)
        return [(1.0, lengths)]

    def remember(step):
        policy, decision, _ = policy_before(step)
        if not decision.drafted:
            return (*(step.earlier or ()), ((np.nan,) * K,) * len(step.tokens))
        now = estimates(policy, step, decision.drafted).probability.tolist()
        return (*(step.earlier or ()), tuple(map(tuple, now)))

    return Rule(admit, remember)


@pytest.mark.parametrize("text", ["adaptive:raw+stop", "adaptive:raw+depth+stop"])
@pytest.mark.parametrize(("K", "requests", "steps"), [(3, 1, 3), (2, 2, 2)])
@pytest.mark.parametrize("wait", [1, 8])
def test_the_output_is_the_targets(text, K, requests, steps, wait, monkeypatch):
    """wait: 1 also tries a draft whenever the plan is not to."""
    monkeypatch.setattr(stopping, "FIRST_WAIT", wait)
    met = set()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pair = Pair.markov(rng.dirichlet([0.8] * 2, 2), rng.dirichlet([0.8] * 2, 2), K)
        starts = (0, 1)[:requests]
        found = output_distribution(pair, served_rule(text, K, met), starts, 2, steps)
        assert total_variation(found, target_law(pair, starts, 2)) <= 1e-12
    assert len(met) > 1


def test_a_budget_that_looks_ahead_would_bend_the_output():
    """The same survivals, but the most tokens per millisecond of this step: a slot then hangs on those behind it."""

    def admit(step):
        best = [
            max(
                range(len(rows) + 1),
                key=lambda n: (1 + np.cumprod([row.max() for row in rows])[:n].sum()) / [1.0, 1.9, 1.95][n],
            )
            for rows in step.rows
        ]
        return [(1.0, tuple(best))]

    worst = 0.0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        pair = Pair.markov(rng.dirichlet([0.8] * 2, 2), rng.dirichlet([0.8] * 2, 2), 2)
        found = output_distribution(pair, Rule(admit), (0,), 2, 2)
        worst = max(worst, total_variation(found, target_law(pair, (0,), 2)))
    assert worst > 1e-3


def test_while_nothing_is_drafted_a_draft_is_tried_now_and_then():
    """After 8 steps, 16, 32, ... every request's first slot is verified, whatever its estimate says."""
    costs = CostTable(np.array([[0.0, 0.5, 1.0]] * 5), 1 + 0.2 * np.arange(20.0))
    policy = make_policy(Arm.parse("adaptive:raw+depth+stop"), PolicyContext(2, costs))
    for _ in range(80):
        policy.decide(offer(4, 2, [[0.05, 0.05]] * 4))
    tried = []
    for step in range(1200):
        decision = policy.decide(offer(4, 2))
        if decision.depth:
            tried.append(step)
            admission = policy.admit(decision, Estimates.of(np.full((4, 2), -3.0)), offer(4, 2))
            assert admission.admitted.tolist() == [1] * 4
    waits = np.diff(tried)
    assert len(waits) > 1 and (waits[1:] >= 2 * waits[:-1] - 1).all()


def steps_without_a_draft(measured, earlier, steps=200):
    """Of a policy that plans to draft, by measured costs that stay as profiled."""
    costs = CostTable(np.array([[0.0, 0.5, 1.0]] * 5), 1 + 0.2 * np.arange(20.0))
    known = MeasuredCosts(costs, 2) if measured else None
    policy = make_policy(Arm.parse("adaptive:raw+depth+stop"), PolicyContext(2, costs, measured=known))
    without = []
    for step in range(steps):
        given = offer(4, 2, [[earlier] * 2] * 4)
        decision = policy.decide(given)
        assert policy.plan.depth
        if not decision.drafted:
            without.append(step)
        if known:
            tokens = 4 + 4 * decision.drafted
            known.observe(
                4, decision.drafted, tokens, costs.draft_at(decision.drafted)[4], costs.verify[tokens], 0
            )
    return without


def test_where_not_to_draft_is_nearly_as_good_a_step_shows_what_it_costs():
    close = steps_without_a_draft(True, 0.75)
    assert 3 <= len(close) <= 200 // PLAIN_EVERY and min(np.diff(close)) > PLAIN_EVERY
    assert not steps_without_a_draft(True, 0.95)  # drafting is far better
    assert not steps_without_a_draft(False, 0.75)  # a table is not measured


def test_a_plan_that_drafts_again_begins_to_wait_anew():
    costs = CostTable(np.array([[0.0, 0.5, 1.0]] * 5), 1 + 0.2 * np.arange(20.0))
    policy = make_policy(Arm.parse("adaptive:raw+depth+stop"), PolicyContext(2, costs))
    for _ in range(300):
        policy.decide(offer(4, 2, [[0.05, 0.05]] * 4))
    assert policy.wait > FIRST_WAIT
    for _ in range(80):
        policy.decide(offer(4, 2, [[0.99, 0.99]] * 4))
    assert policy.plan.depth and policy.wait == FIRST_WAIT


def test_beside_prompts_a_try_is_put_off_and_a_draft_that_pays_there_shortens_no_wait():
    """Seen at 256 requests, where only drafts beside prompts paid: a draft was tried every eight steps for nothing."""
    policy = make_policy(Arm.parse("adaptive:raw+depth+stop"), PolicyContext(2, COSTS))
    policy.plan, policy.wait = Plan(0, 1.0, np.zeros(0)), 8
    assert [policy._tries(prompts=True) for _ in range(16)] == [False] * 15 + [True]
    assert policy.wait == 16
    policy.plan = Plan(2, 1.0, np.zeros(4))
    assert not policy._tries(prompts=True) and policy.wait == 16 and policy.waited == 0
    assert not policy._tries(prompts=False) and policy.wait == FIRST_WAIT


def test_a_try_verifies_no_more_first_slots_than_labels_are_wanted():
    costs = CostTable(np.array([[0.0, 0.5, 1.0]] * 41), 1 + 0.2 * np.arange(200.0))
    policy = make_policy(Arm.parse("adaptive:raw+depth+stop"), PolicyContext(2, costs))
    for _ in range(80):
        policy.decide(offer(40, 2, [[0.05, 0.05]] * 40))
    met = np.zeros(40, dtype=int)
    for _ in range(3000):
        decision = policy.decide(offer(40, 2))
        if decision.depth:
            admitted = policy.admit(decision, Estimates.of(np.full((40, 2), -3.0)), offer(40, 2)).admitted
            met += admitted
            assert admitted.sum() == LABELS
    assert (met > 0).sum() > LABELS  # others in turn


def test_exploration_verifies_everything_and_says_what_it_cost():
    policy = make_policy(Arm.parse("adaptive:raw+depth+stop+explore=0.5"), PolicyContext(3, COSTS))
    given = offer(2, 3)
    given.coins = np.array([0.1, 0.9])
    decision = policy.decide(given)
    assert decision.drafted == 3 and decision.explored.all()
    admission = policy.admit(decision, Estimates.of(np.full((2, 3), -3.0)), given)
    assert admission.admitted.tolist() == [3, 3] and admission.explored == 6 - admission.budget


def test_a_plan_holds_while_the_load_does(monkeypatch):
    policy = make_policy(Arm.parse("adaptive:raw+stop"), PolicyContext(2, COSTS))
    plans, made = itertools.count(), policy._planned
    monkeypatch.setattr(policy, "_planned", lambda *size: (next(plans), made(*size))[1])
    for _ in range(2 * EVERY):
        policy.decide(offer(2, 2))
    assert next(plans) == 2
    policy.decide(offer(1, 2))
    assert next(plans) == 4 and ROWS > 64


def test_a_window_that_does_not_teach_leaves_the_rows_alone():
    policy = make_policy(Arm.parse("adaptive:raw+stop"), PolicyContext(2, COSTS))
    policy.decide(offer(2, 2, np.full((2, 2), 0.4)))
    Frozen(policy).decide(offer(2, 2, np.full((2, 2), 0.9)))
    assert set(policy.rows.take(8).ravel()) == {0.4}


@pytest.mark.parametrize("seed", range(20))
def test_the_slots_are_those_of_the_allocation(seed):
    """Ties by depth, then by request; slots that are not offered or have no estimate are left out."""
    rng = np.random.default_rng(seed)
    survival = rng.choice([0.2, 0.5, 0.9, 1.0], (4, 3)).cumprod(1)
    if seed % 2:
        survival[0, 1:] = np.nan
    scheduled = rng.integers(0, 4, 4) if seed % 3 else np.full(4, 3)
    slots, best = in_order(survival, scheduled)
    assert (np.diff(best) <= 0).all() and not np.isnan(best).any()
    assert len(best) == allocate(survival, scheduled, 12).sum()
    for budget in range(1, len(best) + 1):
        found = best_slots(slots, best[budget - 1], budget)
        assert found.tolist() == allocate(survival, scheduled, budget).tolist()


def plan_by_loops(survival, sets, draft, verify, requests, other, shallowest):
    """`plan`, a depth at a time; the same sums in the same order, so equal to the last bit."""
    K = survival.shape[1]
    order = np.argsort(-survival, axis=None)
    best, position = survival.ravel()[order], order % K
    curves = [best[position < depth] for depth in range(shallowest, K + 1)]
    curves = [curve.reshape(-1, sets).mean(axis=1) if sets > 1 else curve for curve in curves]

    def steps(other):
        for depth, curve in enumerate(curves, shallowest):
            tokens = np.concatenate([[0.0], np.cumsum(curve)])
            costs = verify[other : other + len(tokens)]
            costs = costs if len(costs) else verify[-1:]
            yield tokens[: len(costs)], draft[depth] + costs

    rates = [float(((requests + tokens) / cost).max()) for tokens, cost in steps(requests)]
    worth = [float((tokens - max(rates) * cost).max()) for tokens, cost in steps(other)]
    by = rates if other == requests else worth
    chosen = by.index(max(by))
    return Plan(shallowest + chosen, max(rates), curves[chosen])


@pytest.mark.parametrize("seed", range(40))
def test_planning_all_depths_at_once_is_planning_one_after_the_other(seed):
    rng = np.random.default_rng(seed)
    requests, K, sets = int(rng.integers(1, 20)), int(rng.integers(1, 9)), int(rng.integers(1, 9))
    survival = rng.random((sets * requests, K)).cumprod(1)
    draft = np.concatenate([[0], rng.random(K).cumsum()])
    verify = 1 + rng.random(requests + int(rng.integers(1, requests * K + 40))).cumsum() / 4
    other = requests + int(rng.choice([0, 3, 30, 400]))
    given = survival, sets, draft, verify, requests, other, int(rng.integers(0, K + 1))
    one, other_one = plan(*given), plan_by_loops(*given)
    assert one[:2] == other_one[:2] and np.array_equal(one.curve, other_one.curve)


def test_what_drafts_are_held_against_follows_the_costs(monkeypatch):
    """Kept from step to step, but not beyond a plan, a size or a renewed table."""
    made = []
    monkeypatch.setattr(stopping, "prices", lambda *of: (made.append(of), prices(*of))[1])
    policy = make_policy(Arm.parse("adaptive:raw+stop"), PolicyContext(2, COSTS))
    policy.decide(offer(2, 2))
    best, planned = np.array([0.9, 0.8, 0.2]), policy.plan
    for _ in range(3):
        assert policy.count(best, planned, 2) == stop(best, prices(planned, COSTS.verify, 2, 3))
    assert len(made) == 1
    policy.count(best[:2], planned, 2)
    policy.count(best[:2], planned, 3)
    policy.deciding = CostTable(COSTS.draft, COSTS.verify * 50)
    assert policy.count(best[:2], planned, 3) == 0
    policy.count(best[:2], planned._replace(rate=0.0), 3)
    assert len(made) == 5
