"""Replays of a small made-up trace: by a lab, or in this process around an outbox that keeps what it says."""

import dataclasses
import threading
from contextlib import contextmanager

import numpy as np
from serving_loop import Wire
from traces import made_up

from avlab.kinds.registry import make_config
from avlab.lab.lab import Lab
from avlab.replay.trace import write_trace
from avlab.workers import replay
from avlab.workers.entry import Order

VALUES = {"arrival": "closed:3", "pace": "fast", "seed": 1, "drafts": "all"}


def small_trace(folder):
    """A trace's path: 40 texts of two kinds, K = 3."""
    trace = made_up(texts=40)
    write_trace(
        dataclasses.replace(trace, kind=np.array(["code", "verse"] * 20, dtype=object)),
        folder / "small.parquet",
    )
    return str(folder / "small.parquet")


def replayed(database, trace, **values):
    """A run's id and summary, as a lab records it."""
    with Lab(database) as lab:
        run = lab.run(VALUES | {"trace": trace} | values, kind="replay")
        assert lab.supervisor.wait(120)
        status = lab.supervisor.status()
        assert status.outcome == "done", status
        return run, lab.show(run)


@contextmanager
def serving(trace, wire, **values):
    """A replay on a thread of its own; its order, and at the end it is over."""
    order = Order("r", make_config(VALUES | {"trace": trace} | values, "replay"))
    order.outbox = wire
    thread = threading.Thread(target=replay.serve, args=(order,))
    thread.start()
    yield order
    thread.join(60)
    assert not thread.is_alive()


def serve(trace, wire=None, **values):
    """A replay from its start to its end: what it said, and why it ended."""
    order = Order("r", make_config(VALUES | {"trace": trace} | values, "replay"))
    order.outbox = wire = wire or Wire()
    return wire, replay.serve(order)
