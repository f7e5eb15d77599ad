"""Between the workload's steps: a window of full verification scores and does not teach; a prompt is served alone."""

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from serving_loop import Wire, quick, serve  # noqa: F401  (quick is a fixture)
from stand_in_engine import CONTEXT, K

from avlab.wire import commands as cm
from avlab.wire import frames as fr
from avlab.workers import playground

HELLO = [{"role": "user", "content": "hello there you"}]


def blocks(wire):
    return [(block.kind, block.arm) for block in wire.of(fr.Block)]


def in_block(wire, number):
    return [step for step in wire.steps if step.block == number]


def said(wire):
    return [event.text for event in wire.of(fr.Event)]


@pytest.mark.parametrize("teach", [False, True])
def test_a_window_verifies_everything_scores_and_teaches_only_if_asked(teach):
    wire = Wire()
    wire.orders += [(130, cm.Window(40, teach))]
    _, server = serve(wire, tokens=3500, drafts="all")
    assert server.run() == "done"
    assert blocks(wire) == [("serve", "adaptive"), ("window", "adaptive"), ("serve", "adaptive")]
    inside = in_block(wire, 1)
    assert len(inside) == 40
    assert all(step.admitted == step.scheduled and step.drafted == K for step in inside)
    assert any(step.admitted != step.scheduled for step in in_block(wire, 0) + in_block(wire, 2))
    labels = np.sum([step.labelled for step in inside], axis=0)
    for source in ("online", "raw", "head"):
        frames = [f for f in wire.of(fr.Calibration) if f.source == source and f.block == 1]
        assert sum(map(sum, (f.count for f in frames))) == labels.sum() > 100
    # every step of the arm's own blocks counts towards a refit, and a window's only if it teaches
    second = next(refit for refit in wire.of(fr.Refit) if refit.refit == 2)
    own = [step.step for step in wire.steps if teach or step.block != 1]
    assert second.step == own[199]
    taught = [step.labelled for step in wire.steps if step.step in own[100:200]]
    assert second.counts == np.sum(taught, axis=0).tolist()


def test_a_window_under_a_fixed_length_drafts_and_verifies_every_position():
    wire = Wire()
    wire.orders += [(10, cm.Window(20))]
    _, server = serve(wire, policy="fixed:1", tokens=600)
    server.run()
    assert blocks(wire) == [("serve", "fixed:1"), ("window", "fixed:1"), ("serve", "fixed:1")]
    assert all(step.drafted == (K if step.block == 1 else 1) for step in wire.steps)
    assert {f.source for f in wire.of(fr.Calibration) if f.block == 1} == {"raw", "head"}


def test_a_switch_of_policy_ends_a_window():
    wire = Wire()
    wire.orders += [(10, cm.Window(500)), (20, cm.SetPolicy("fixed:9")), (30, cm.SetPolicy("fixed:2"))]
    _, server = serve(wire, tokens=900)
    server.run()
    assert blocks(wire) == [("serve", "adaptive"), ("window", "adaptive"), ("serve", "fixed:2")]
    assert len(in_block(wire, 1)) > 15


def test_a_second_window_and_one_of_no_steps_are_refused_with_a_sentence():
    wire = Wire()
    wire.orders += [(5, cm.Window(0)), (10, cm.Window(50)), (20, cm.Window(60)), (25, cm.Generate(HELLO, 5))]
    _, server = serve(wire, tokens=900)
    server.run()
    assert [kind for kind, _ in blocks(wire)] == ["serve", "window", "serve"]
    assert said(wire)[0].startswith("A window cannot be of 0")
    assert all(text.startswith("A window of full verification is running") for text in said(wire)[1:])
    assert len(said(wire)) == 3 and not wire.of(fr.Tokens)


@pytest.mark.parametrize("arm", ["", "fixed:2", "verify:1", "none", "adaptive:raw", "adaptive:head"])
def test_a_prompt_is_served_alone_and_the_workload_goes_on(arm):
    wire = Wire()
    wire.orders += [(20, cm.Generate(HELLO, 15, arm))]
    _, server = serve(wire, tokens=1200, keep_text=True)
    assert server.run() == "done"
    assert blocks(wire) == [("serve", "adaptive"), ("playground", arm or "adaptive"), ("serve", "adaptive")]
    alone, frames = in_block(wire, 1), wire.of(fr.Tokens)
    assert [frame.step for frame in frames] == [step.step for step in alone]
    assert all(step.running == 1 and step.waiting == 0 for step in alone)
    assert sum(len(frame.tokens) for frame in frames) == sum(step.tokens for step in alone) >= 15
    for frame, step in zip(frames, alone, strict=True):
        fates = [slot.fate for slot in frame.draft]
        assert len(fates) == sum(step.scheduled) and fates.count("accepted") == sum(step.accepted)
        assert fates.count("trimmed") == sum(step.scheduled) - sum(step.admitted)
        assert frame.fates == ["accepted"] * sum(step.accepted) + [frame.own.fate]
        assert (frame.own.fate == "recovered") == ("rejected" in fates)
        assert all(bool(slot.target_top) == (slot.fate != "trimmed") for slot in frame.draft)
        assert all(slot.draft_top[0].text == " w7" and slot.q > 0 for slot in frame.draft)
    done = next(request for request in wire.of(fr.RequestDone) if request.request == -1)
    assert (done.kind, done.finish, done.block) == ("playground", "length", 1)
    assert done.prompt == "hello there you" and done.output.startswith("7 7")
    others = [request for request in wire.of(fr.RequestDone) if request.request >= 0]
    assert sorted(request.request for request in others) == list(range(len(others)))
    held = before = [step.running for step in in_block(wire, 0)][-1]
    assert in_block(wire, 2)[0].running == held == before
    counted = sum(step.tokens for step in wire.steps if step.block != 1)
    assert 1200 <= counted < 1220  # the limit is of the workload's tokens


def test_the_playground_teaches_nothing():
    wire = Wire()
    wire.orders += [(20, cm.Generate(HELLO, 100))]
    _, server = serve(wire, tokens=3000)
    server.run()
    first = next(refit for refit in wire.of(fr.Refit) if refit.refit == 1)
    own = [step for step in wire.steps if step.block != 1][:100]
    assert first.step == own[-1].step
    assert first.counts == np.sum([step.labelled for step in own], axis=0).tolist()
    assert 1 not in {frame.block for frame in wire.of(fr.Calibration)}


@pytest.fixture
def running():
    """A server in a thread of its own, at the latest stopped with the test."""
    wire, server = serve(arrival="closed:4")
    result = []
    thread = threading.Thread(target=lambda: result.append(server.run()))
    thread.start()

    def tell(*commands):
        wire.orders += [(0, command) for command in commands]

    def until(condition):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.005)

    until(lambda: len(wire.steps) > 10)
    yield SimpleNamespace(wire=wire, server=server, tell=tell, until=until, result=result, thread=thread)
    tell(cm.Stop())
    thread.join(60)
    assert result == ["stopped"]


def goes_on(running):
    """The workload's steps come again."""
    seen = len(running.wire.steps)
    running.until(lambda: running.wire.steps[-1].running == 4 and len(running.wire.steps) > seen + 10)


def test_step_by_step_then_on_to_the_end(running):
    wire = running.wire
    running.tell(cm.Generate(HELLO, 60, step_by_step=True))
    for steps in (1, 2, 3):
        running.until(lambda: len(wire.of(fr.Tokens)) == steps)  # noqa: B023
        time.sleep(0.1)
        assert len(wire.of(fr.Tokens)) == steps and running.server.order.state == "playground"
        running.tell(cm.Advance())
    running.tell(cm.SetPolicy("fixed:1"), cm.Generate(HELLO, 5), cm.Window(5))
    running.until(lambda: said(wire) == ["The playground is in use: wait for its end, or end it."])
    running.tell(cm.Advance(to_the_end=True))
    goes_on(running)
    assert sum(len(frame.tokens) for frame in wire.of(fr.Tokens)) >= 60
    # what was asked meanwhile has its turn afterwards
    running.until(lambda: len(blocks(wire)) == 6)
    kinds = ["serve", "playground", "serve", "serve", "window", "serve"]
    assert [kind for kind, _ in blocks(wire)] == kinds and blocks(wire)[-1][1] == "fixed:1"
    assert running.server.order.state == "serving"


@pytest.mark.parametrize("way", ["left", "forgotten", "stopped"])
def test_a_generation_that_is_given_up_leaves_the_workload_as_it_was(running, way, monkeypatch):
    wire = running.wire
    running.tell(cm.Generate(HELLO, 60, step_by_step=True))
    running.until(lambda: wire.of(fr.Tokens))
    if way == "left":
        running.tell(cm.Leave())
    elif way == "forgotten":
        running.tell(cm.Attend())
        monkeypatch.setattr(playground, "PATIENCE", 0.3)
        running.until(lambda: said(wire) == ["The playground was left alone, so the workload goes on."])
    else:
        running.tell(cm.Stop())
        running.thread.join(60)
    running.until(lambda: any(request.request == -1 for request in wire.of(fr.RequestDone)))
    assert [r.finish for r in wire.of(fr.RequestDone) if r.request == -1] == ["cancelled"]
    if way != "stopped":
        goes_on(running)


def test_a_pause_is_still_one_after_the_playground(running):
    running.tell(cm.Pause())
    running.until(lambda: running.server.order.state == "paused")
    running.tell(cm.Generate(HELLO, 10))
    running.until(lambda: any(r.request == -1 for r in running.wire.of(fr.RequestDone)))
    running.until(lambda: running.server.order.state == "paused")
    held = len(running.wire.steps)
    time.sleep(0.1)
    assert len(running.wire.steps) == held
    running.tell(cm.Resume())
    goes_on(running)


WRONG = [
    ({"messages": []}, "The prompt is empty"),
    ({"messages": [{"role": "user", "content": "  "}]}, "The prompt is empty"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "There is no role 'wizard'"),
    ({"messages": [{"role": "user"}]}, "A message must have"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, "must be the user's"),
    ({"messages": [{"role": "user", "content": "x " * CONTEXT}]}, "tokens"),
    ({"arm": "fixed:9"}, "asks for 9 drafts"),
    ({"arm": "nonsense"}, "there is no policy 'nonsense'"),
    ({"seed": -1}, "The seed -1"),
]


def test_what_is_wrong_is_one_sentence_and_nothing_stops(running):
    running.server.intake.text.most = CONTEXT
    for (values, _), number in zip(WRONG, itertools.count(1), strict=False):
        running.tell(cm.Generate(**{"messages": HELLO, "max_tokens": 5, **values}))
        running.until(lambda: len(said(running.wire)) == number)  # noqa: B023
    for sentence, (_, expected) in zip(said(running.wire), WRONG, strict=True):
        assert expected in sentence and "\n" not in sentence
    assert {event.kind for event in running.wire.of(fr.Event)} == {"playground"}
    assert len(blocks(running.wire)) == 1
    goes_on(running)


def test_time_stands_still_for_a_workload_that_waits():
    wire = Wire()
    wire.orders += [(5, cm.Generate(HELLO, 90, step_by_step=True))]
    _, server = serve(wire, arrival="poisson:200", duration=0.6, max_new_tokens=4)

    def leave():
        while server.order.state != "playground":
            time.sleep(0.01)
        time.sleep(1.2)
        wire.orders.append((0, cm.Leave()))

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    begin = time.monotonic()
    assert server.run() == "done"
    assert time.monotonic() - begin > 1.5
    arrivals = sorted(r.arrival for r in wire.of(fr.RequestDone) if r.request >= 0)
    first, last = wire.of(fr.Block)[1].time, wire.of(fr.Block)[2].time
    assert last - first > 0.8 and not any(first + 0.05 < arrival < last - 0.01 for arrival in arrivals)
