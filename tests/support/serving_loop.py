"""The serving loop of a worker around a stand-in engine, and an outbox that keeps what it says."""

import time
from collections import deque

import pytest
from stand_in_engine import CONTEXT, K, StandInEngine, Words

from avlab.config import RunConfig
from avlab.wire import codec, frames
from avlab.workers import reporting
from avlab.workers.entry import Order
from avlab.workers.intake import open_traffic
from avlab.workers.serving import Server


class Wire:
    """An outbox that keeps frames, and gives commands when told to."""

    def __init__(self):
        self.frames, self.orders, self.lost, self.held = [], deque(), "", 0

    def put(self, frame):
        self.frames.append(codec.decode_frame(codec.encode(codec.Envelope("r", 0, frame))).frame)

    def commands(self):
        taken = [order for order in self.orders.copy() if order[0] <= len(self.of(frames.Steps))]
        for order in taken:
            self.orders.remove(order)  # in place: tests give orders from other threads
        return [command for _, command in taken]

    def beat(self):
        """Nobody listens to how a worker prepares."""

    def wait(self, seconds):
        time.sleep(min(seconds, 0.01))

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    @property
    def steps(self):
        return [step for frame in self.of(frames.Steps) for step in frame.steps]


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(reporting, "WINDOW_SECONDS", 0.05)


def serve(wire=None, text=None, engine=None, clock=None, **values):
    wire = wire or Wire()
    config = RunConfig.make(
        {"K": K, "policy": "adaptive", "workload": "verse", "arrival": "closed:4", "max_new_tokens": 20}
        | values
    )
    order = Order("r", config, **({"clock": clock} if clock else {}))
    order.outbox = wire
    engine = engine or StandInEngine(config.arm)
    report = reporting.StepReporter(
        order.outbox.put, order.clock, engine.K, config.drafts, config.recorded_features
    )
    server = Server(order, engine, text or Words(CONTEXT - 1), open_traffic(config), report)
    return wire, server
