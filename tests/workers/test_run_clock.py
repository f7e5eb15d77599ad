"""A run has one clock: where a machine is emulated it is that machine's, and nothing else measures time."""

import pytest
from serving_loop import Wire, serve
from stand_in_engine import StandInEngine

from avlab.wire import commands, frames
from avlab.workers import run_clock as clocks
from avlab.workers.run_clock import EmulatedClock

STEP = 0.125  # seconds of the emulated machine


@pytest.fixture
def emulated(monkeypatch):
    """A run whose steps take 125 ms of a machine that is computed as fast as this one can."""
    clock, step = EmulatedClock(None, lambda: 0), StandInEngine.step

    def emulate(engine):
        clock.advance(STEP)
        return step(engine)

    monkeypatch.setattr(StandInEngine, "step", emulate)

    def run(*orders, **values):
        wire = Wire()
        wire.orders += orders
        wire, server = serve(wire, clock=clock, **values)
        return wire, server.run(), clock

    return run


def test_blocks_of_a_second_have_a_second_of_the_machine(emulated):
    plan = commands.Experiment(
        ["adaptive", "fixed:2"],
        "fixed:2",
        rounds=3,
        concurrency=4,
        length=1.0,
        unit="seconds",
        washout=2,
        learn=10,
    )
    wire, reason, _ = emulated((0, plan), max_new_tokens=None)
    counted = [
        block.block for block in wire.of(frames.Block) if block.round is not None and block.kind == "serve"
    ]
    assert reason == "done" and len(counted) == 6
    for block in counted:
        mine = [step for step in wire.steps if step.block == block]
        assert len(mine) == 1.0 / STEP and mine[-1].time - mine[0].time == pytest.approx(1.0 - STEP)


def test_a_duration_arrivals_and_latencies_are_the_machines(emulated):
    wire, reason, clock = emulated(duration=60.0, arrival="poisson:2", tokens=None)
    arrived = [request.arrival for request in wire.of(frames.RequestDone)]
    assert reason == "done" and 60.0 <= clock() < 61.0
    assert 80 < len(arrived) < 160 and max(arrived) <= 60.0  # two a second
    idle = [step.idle_ms for step in wire.steps]
    assert sum(idle) / 1e3 + len(idle) * STEP == pytest.approx(wire.steps[-1].time, abs=1.0)
    for request in wire.of(frames.RequestDone):
        if request.first_token is not None and request.finish != "cancelled":
            assert request.last_token - request.first_token == pytest.approx(
                STEP * (request.steps - 1), abs=1e-6
            )
    assert all(step.report_ms == 0 for step in wire.steps)  # this machine's own work is not that one's


def test_a_schedule_steps_by_the_machines_seconds(emulated):
    wire, *_ = emulated(duration=20.0, arrival="closed:1,4@10s")
    early = [step.running for step in wire.steps if 1 < step.time < 9.5]
    late = [step.running for step in wire.steps if step.time > 11]
    assert set(early) == {1} and set(late) == {4}


def test_a_paced_clock_waits_for_this_machines():
    now = [100.0]
    clock = EmulatedClock(2.0, lambda: 0, lambda: now[0])
    assert clock.ahead() == 0
    clock.advance(3.0)
    assert clock.ahead() == pytest.approx(1.5)
    now[0] += 1.5
    assert clock.ahead() == 0
    now[0] += 60  # a pause: it does not hurry afterwards
    assert clock.ahead() == 0
    clock.advance(4.0)
    assert 2.0 - clocks.MOST_BEHIND <= clock.ahead() <= 2.0


def test_a_fast_clock_stands_still_while_the_lab_has_too_much_to_store():
    held = [0]
    clock = EmulatedClock(None, lambda: held[0])
    assert clock.ahead() == 0
    held[0] = clocks.HELD_BYTES + 1
    assert 0 < clock.ahead() < 0.1
