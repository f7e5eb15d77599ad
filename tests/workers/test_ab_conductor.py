"""An A/B inside the serving loop: every round holds every arm, every step says whose it was, nothing leaks over."""

import threading
import time
from collections import Counter

import numpy as np
import pytest
from serving_loop import Wire, quick, serve
from stand_in_engine import K, StandInEngine

from avlab.liveness import Standstill
from avlab.policies.arm import labels
from avlab.wire import commands, frames
from avlab.workers.intake import ServingError
from avlab.workers.run_clock import RealClock

__all__ = ["quick"]  # a fixture

ARMS = ("adaptive", "fixed:2", "none")


def plan(arms=ARMS, baseline="fixed:2", rounds=5, **changes):
    values = {"concurrency": 4, "length": 10.0, "washout": 3, "learn": 20} | changes
    return commands.Experiment(labels(arms), baseline, rounds, **values)


def conduct(wire=None, ask=None, **values):
    wire = wire or Wire()
    wire.orders.appendleft((0, ask or plan()))
    wire, server = serve(wire, **values)
    return wire, server, server.run()


def counted(wire):
    """Steps by counted block: {(round, arm): steps}."""
    blocks = {block.block: block for block in wire.of(frames.Block)}
    return Counter(
        (blocks[step.block].round, blocks[step.block].arm)
        for step in wire.steps
        if blocks[step.block].kind == "serve"
    )


def test_every_round_has_every_arm_once_in_an_order_of_chance():
    wire, _, reason = conduct()
    assert reason == "done"
    assert counted(wire) == {(r, arm): 10 for r in range(5) for arm in ARMS}
    orders = {
        tuple(block.arm for block in wire.of(frames.Block) if block.kind == "serve" and block.round == number)
        for number in range(5)
    }
    assert len(orders) > 1
    assert [(r.round, r.kept) for r in wire.of(frames.RoundDone)] == [(r, True) for r in range(5)]


def test_washouts_are_their_own_blocks_and_learning_comes_first():
    wire, _, _ = conduct()
    blocks = wire.of(frames.Block)
    steps = Counter(step.block for step in wire.steps)
    first = next(place for place, block in enumerate(blocks) if block.round is not None)
    learning = [block for block in blocks[:first] if steps[block.block]]
    assert [(block.arm, block.kind, steps[block.block]) for block in learning] == [
        ("adaptive", "wash-out", 20)
    ]
    for washout, block in zip(blocks[first::2], blocks[first + 1 :: 2], strict=True):
        assert (washout.kind, washout.arm, washout.round) == ("wash-out", block.arm, block.round)
        assert steps[washout.block] == 3


def test_a_switchback_keeps_the_requests_in_flight():
    wire, _, _ = conduct(max_new_tokens=50)
    assert {step.running for step in wire.steps} == {4}
    assert {r.finish for r in wire.of(frames.RequestDone)} <= {"length", "cancelled"}
    assert (
        sum(r.finish == "cancelled" for r in wire.of(frames.RequestDone)) <= 4
    )  # at the end of the run, not between


def test_an_estimator_counts_only_the_steps_of_its_own_arm():
    wire, server, _ = conduct(ask=plan(("adaptive", "adaptive", "fixed:2"), "adaptive", rounds=30))
    served = Counter()
    blocks = {block.block: block for block in wire.of(frames.Block)}
    refits = {"adaptive": [], "adaptive#2": []}
    for step in wire.steps:
        served[blocks[step.block].arm] += 1
    for refit in wire.of(frames.Refit):
        refits[refit.arm].append(refit.refit)
    steps = 20 + 30 * 13
    assert served["adaptive"] == served["adaptive#2"] == steps
    for name, numbers in refits.items():
        assert numbers == list(range(1 + steps // 100)), name
    assert (
        server.conductor._policies["adaptive"].estimator
        is not server.conductor._policies["adaptive#2"].estimator
    )


class Asked:
    """A text that keeps what is asked."""

    def __init__(self):
        self.prompts = []

    def reads(self, name):
        return True

    def encode(self, messages, given=None):
        self.prompts.append(messages[-1]["content"])
        return [1] * 5

    def decode(self, tokens):
        return ""


def test_isolated_blocks_begin_alike():
    asked = Asked()
    wire, _, reason = conduct(ask=plan(design="isolated", rounds=3), text=asked, max_new_tokens=60)
    assert reason == "done"
    done = sorted(wire.of(frames.RequestDone), key=lambda request: request.request)
    blocks = [b for b in wire.of(frames.Block) if b.kind == "wash-out" and b.round is not None]
    rounds = {}
    for number, block in enumerate(blocks):
        ends = blocks[number + 1].time if number + 1 < len(blocks) else np.inf
        mine = [r for r in done if block.time <= r.arrival < ends][:4]
        rounds.setdefault(block.round, []).append([(asked.prompts[r.request], r.seed) for r in mine])
    for first, *others in rounds.values():
        assert len(first) == 4 and all(other == first for other in others)
    assert rounds[0][0] != rounds[1][0]


def prompts(**values):
    """The first prompts of each isolated round."""
    asked = Asked()
    ask = plan(design="isolated", rounds=1, learn=0, seed=values.pop("order"))
    conduct(ask=ask, text=asked, **values)
    return asked.prompts[4:8]


def test_isolated_prompts_follow_the_seeds_of_the_run_and_of_the_order():
    assert prompts(order=0, seed=0) == prompts(order=0, seed=0)
    assert prompts(order=0, seed=0) != prompts(order=0, seed=1)
    assert prompts(order=0, seed=0) != prompts(order=1, seed=0)


@pytest.mark.parametrize(("seconds", "steps"), [(0.5, 4), (0.45, 4), (0.125, 3)])
def test_a_block_in_seconds_ends_with_the_step_that_fills_it(monkeypatch, seconds, steps):
    """Steps of 125 ms; and never fewer than three."""
    now, step = [0.0], StandInEngine.step

    def slow(engine):
        now[0] += 0.125
        return step(engine)

    monkeypatch.setattr(StandInEngine, "step", slow)
    monkeypatch.setattr(RealClock, "__call__", lambda clock: now[0])
    wire, _, reason = conduct(ask=plan(rounds=2, length=seconds, unit="seconds"))
    assert reason == "done"
    assert counted(wire) == {(r, arm): steps for r in range(2) for arm in ARMS}


def test_an_arm_of_a_head_that_the_drafter_lacks_ends_the_run_with_a_sentence(monkeypatch):
    made = StandInEngine.policy_for

    def without_head(engine, arm):  # as the engine does where its drafter has none
        arm.require_features(["max_log_odds"])
        return made(engine, arm)

    monkeypatch.setattr(StandInEngine, "policy_for", without_head)
    with pytest.raises(
        ServingError, match="adaptive:head does not exist for this drafter, which has no confidence"
    ):
        conduct(ask=plan(("adaptive:head", "none"), "none"))


def test_what_users_got_in_a_block_adds_up():
    wire, _, _ = conduct(max_new_tokens=25)
    tokens = Counter()
    for step in wire.steps:
        tokens[step.block] += step.tokens
    for served in wire.of(frames.BlockRequests):
        # a request that begins within the block has no time for its first tokens
        begun = [r for r in wire.of(frames.RequestDone) if r.request in served.request]
        assert begun and 0.6 * tokens[served.block] < sum(served.tokens) <= tokens[served.block]
        assert all(seconds >= 0 for seconds in served.seconds)


def pause_and_resume(at, asked):
    """A run of `asked` that is paused at a step, and resumed."""
    wire = Wire()
    wire.orders += [(at, commands.Pause())]
    wire.orders.appendleft((0, asked))
    wire, server = serve(wire)
    reasons = []
    thread = threading.Thread(target=lambda: reasons.append(server.run()))
    thread.start()
    deadline = time.monotonic() + 60
    while server.order.state != "paused" and time.monotonic() < deadline:
        time.sleep(0.01)
    wire.orders.append((0, commands.Resume()))
    thread.join(60)
    assert reasons == ["done"]
    return wire


def test_a_pause_drops_the_round_and_another_is_served_for_it():
    wire = pause_and_resume(60, plan(rounds=3))
    ends = [(r.kept, r.reason) for r in wire.of(frames.RoundDone)]
    assert sorted(ends) == [(False, "serving was paused")] + [(True, "")] * 3
    (dropped,) = (r.round for r in wire.of(frames.RoundDone) if not r.kept)
    said = [event.text for event in wire.of(frames.Event)]
    assert f"Round {dropped + 1} was dropped: serving was paused." in said


def test_a_pause_while_arms_learn_costs_nothing():
    wire = pause_and_resume(10, plan(rounds=3, learn=40))
    assert [r.kept for r in wire.of(frames.RoundDone)] == [True] * 3
    steps = Counter(step.block for step in wire.steps)
    assert sum(steps[block.block] for block in wire.of(frames.Block) if block.round is None) >= 40


def test_a_second_experiment_a_switch_of_policy_and_a_window_are_refused():
    wire = Wire()
    wire.orders += [(20, plan(rounds=9)), (21, commands.SetPolicy("none")), (22, commands.Window(3))]
    wire, _, _ = conduct(wire)
    said = [event.text for event in wire.of(frames.Event) if event.level == "warning"]
    assert said == [
        "An A/B runs, so Experiment was refused: stop it first.",
        "An A/B runs, so SetPolicy was refused: stop it first.",
        "An A/B is running, and nothing may come between its blocks: stop it first.",
    ]
    assert len(wire.of(frames.RoundDone)) == 5


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (commands.Experiment(["adaptive", "fixed:9"], "adaptive", 3, 4), "fixed:9"),
        (commands.Experiment(["adaptive"], "adaptive", 3, 4), "two or more arms"),
        (commands.Experiment(["adaptive", "none"], "fixed:2", 3, 4), "a baseline among them"),
    ],
)
def test_a_plan_that_cannot_be_served_ends_the_run_with_a_sentence(ask, sentence):
    with pytest.raises(ServingError, match=f"The A/B cannot run: .*{sentence}"):
        conduct(ask=ask)


def test_a_stop_leaves_the_unfinished_round_out():
    wire = Wire()
    wire.orders += [(80, commands.Stop())]
    wire, _, reason = conduct(wire)
    assert reason == "stopped"
    assert len(wire.of(frames.RoundDone)) < 5
    assert any("ended after" in event.text for event in wire.of(frames.Event))
    assert K == 3


def test_a_round_in_which_the_machine_stood_still_is_dropped(monkeypatch):
    """Seconds pass and this process takes none of them: a frozen container, a paused machine, Ctrl-Z."""
    seen = iter([0.0] * 40 + [7.5])
    monkeypatch.setattr(Standstill, "seconds", lambda self: next(seen, 0.0))
    wire, _, reason = conduct()
    ends = [(r.kept, r.reason) for r in wire.of(frames.RoundDone)]
    assert reason == "done"
    assert sorted(ends) == [(False, "the machine stood still for 7.5 s")] + [(True, "")] * 5
