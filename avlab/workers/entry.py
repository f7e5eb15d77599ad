"""What every worker's entry does: read the order, open the link, serve, say goodbye, leave nothing."""

import json
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from avlab import plugins
from avlab.config import RunConfig
from avlab.errors import is_ours
from avlab.kinds.registry import make_config
from avlab.processes import end_children
from avlab.wire import frames
from avlab.workers.outbox import Outbox
from avlab.workers.run_clock import Clock, RealClock

FAULT = 1  # exit code of a worker whose output ends with a traceback
COULD_NOT_START = 2  # exit code of a worker whose last line of output is a sentence for the user


class Stopped(Exception):
    """SIGTERM or a Stop came while the worker was still preparing."""


Asked = TypeVar("Asked", covariant=True)


@dataclass(slots=True)
class Order(Generic[Asked]):
    """What the supervisor asked for, and what a worker needs to answer.

    clock: of the run; a worker that emulates a machine puts that machine's in place before it greets. state and step
    are what heartbeats say. asked_to_stop is set by SIGTERM.
    """

    run: str
    config: Asked  # of the worker's kind, in `avlab/kinds`
    outbox: Outbox = field(init=False)
    clock: Clock = field(default_factory=RealClock)
    state: str = "starting"
    step: int = 0
    asked_to_stop: threading.Event = field(default_factory=threading.Event)

    def progress(self, doing: str, done: int, total: int) -> None:
        """Say how far the preparation is; `total` is 0 where it is unknown."""
        self.state = f"{doing} {done}/{total}" if total else doing
        self.outbox.beat()

    def event(self, level: str, kind: str, text: str) -> None:
        """Tell the reader something."""
        self.outbox.put(frames.Event(level, kind, text, self.clock(), self.step))


def work(serve: Callable[[Order[Any]], str], kind: str = RunConfig.kind) -> int:
    """Run a worker: `serve` prepares, greets with Hello, serves and returns why it ended ("done", "stopped").

    An error before the greeting is written to the log, for the supervisor to show: one of ours as its
    sentence with exit code 2. An error after it becomes the run's Bye. Returns the exit code.
    """
    given = json.loads(sys.stdin.buffer.read())
    plugins.load_named()
    order: Order[Any] = Order(given["run"], make_config(given["config"], kind))
    outbox = order.outbox = Outbox(
        given["address"],
        given["run"],
        status=lambda: (order.state, order.step),
        clock=lambda: order.clock(),  # whichever clock the worker puts in place
        lab=given["lab"],
        guard=True,
    )

    def terminate(*_) -> None:
        order.asked_to_stop.set()
        if not outbox.greeted:
            raise Stopped

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the lab's to handle
    complete, code, details = False, 0, ""
    try:
        reason = serve(order)
        complete = reason == "done"
    except Stopped:
        reason = "stopped"
    except Exception as error:
        reason, code, details = _failure(error)
    order.state = "stopping"
    if outbox.greeted:
        if details:
            order.event("info", "log", details)
        outbox.put(frames.Bye(reason, complete, order.clock()))
    outbox.close()
    end_children()
    return code


def _failure(error: Exception) -> tuple[str, int, str]:
    """An error's sentence and exit code, and for a fault of ours where it happened. All go to the log too."""
    details = ""
    if is_ours(error):
        reason = str(error)
    elif isinstance(error, MemoryError) or "not enough memory" in str(error) or "out of memory" in str(error):
        reason = "The worker ran out of memory: lower --max-num-seqs or --max-model-len."
    else:
        details = "".join(traceback.format_exception(error))
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rpartition('/')[2]} line {last.lineno}"
        reason = f"The worker failed ({type(error).__name__}: {error}; {place})."
    print(details or reason, file=sys.stderr)
    return reason, FAULT if details else COULD_NOT_START, details
