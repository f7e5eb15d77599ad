"""What every worker's entry does: read the order, open the link, serve, say goodbye, leave nothing."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from avlab.config import RunConfig
from avlab.workers import messages as m
from avlab.workers.link import Outbox
from avlab.workers.processes import end_children

COULD_NOT_START = 2  # exit code of a worker whose last line of output is a sentence for the user


class Stopped(Exception):
    """SIGTERM or a Stop came while the worker was still preparing."""


@dataclass(slots=True)
class Order:
    """What the supervisor asked for, and what a worker needs to answer.

    state and step are what heartbeats say. asked_to_stop is set by SIGTERM.
    """

    run: str
    config: RunConfig
    outbox: Outbox
    began: float
    state: str = "starting"
    step: int = 0
    asked_to_stop: threading.Event = field(default_factory=threading.Event)

    def clock(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    def event(self, level: str, kind: str, text: str) -> None:
        """Tell the reader something."""
        self.outbox.put(m.Event(level, kind, text, self.clock(), self.step))


def work(serve: Callable[[Order], str], user_errors: tuple[type[Exception], ...] = ()) -> int:
    """Run a worker: `serve` prepares, greets with Hello, serves and returns why it ended ("done", "stopped").

    An error before the greeting is written to the log, for the supervisor to show: those of `user_errors` as
    their sentence with exit code 2. An error after it becomes the run's Bye. Returns the exit code.
    """
    given = json.loads(sys.stdin.buffer.read())
    began = time.monotonic()
    order: Order

    outbox = Outbox(
        given["address"],
        given["run"],
        status=lambda: (order.state, order.step),
        clock=lambda: time.monotonic() - began,
        lab=given["lab"],
        guard=True,
    )
    order = Order(given["run"], RunConfig.make(given["config"]), outbox, began)

    def terminate(*_) -> None:
        order.asked_to_stop.set()
        if order.state == "starting":
            raise Stopped

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the lab's to handle
    complete, code = False, 0
    try:
        reason = serve(order)
        complete = reason == "done"
    except Stopped:
        reason = "stopped"
    except user_errors as error:
        reason, code = str(error), COULD_NOT_START
    except MemoryError:
        reason, code = "The worker ran out of memory: lower slots or context.", COULD_NOT_START
    except Exception as error:
        import traceback

        traceback.print_exc()
        reason, code = f"The worker failed ({type(error).__name__}: {error}); its log says where.", 1
    if code == COULD_NOT_START:
        print(reason, file=sys.stderr)
    order.state = "stopping"
    if outbox.greeted:
        if code:
            order.event("error", "failed", reason)
        outbox.put(m.Bye(reason, complete, order.clock()))
    outbox.close()
    end_children()
    return code
