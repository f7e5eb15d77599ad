"""The worker that watches a vLLM server: `python -m avlab.workers.attach`, its order as JSON on standard input."""

import sys

from avlab.vllm.attach import Watch
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.history import History
from avlab.workers.entry import Order, work
from avlab.workers.run_clock import RealClock


class HistoryClock(RealClock):
    """Seconds since the beginning of what is read."""

    def __init__(self, history: History):
        super().__init__()
        self.history = history

    def __call__(self) -> float:
        return self.history.now


def serve(order: Order[AttachConfig]) -> str:
    """Watch, or read a history, to the end; an error of ours is its sentence."""
    if order.config.history:
        history = History(order.config)
        order.clock = HistoryClock(history)
        return history.run(order)
    return Watch(order).run()


if __name__ == "__main__":
    sys.exit(work(serve, AttachConfig.kind))
