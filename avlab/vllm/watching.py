"""What a watch asks of the worker that it runs in."""

import threading
from collections.abc import Sequence
from typing import Protocol

from avlab.vllm.attach_config import AttachConfig
from avlab.wire import commands, frames


class Outbox(Protocol):
    """Where frames go, and commands come from. lost: why the lab cannot be reached any more, else ""."""

    lost: str

    def put(self, frame: frames.Frame) -> None: ...
    def commands(self) -> Sequence[commands.Command]: ...
    def wait(self, seconds: float) -> None: ...


class Order(Protocol):
    """What a watch asks of the worker that it runs in: `avlab.workers.entry.Order`.

    state and step are what heartbeats say. clock: seconds since the run began.
    """

    state: str
    step: int

    @property
    def config(self) -> AttachConfig: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def asked_to_stop(self) -> threading.Event: ...
    def clock(self) -> float: ...
    def progress(self, doing: str, done: int, total: int) -> None: ...
    def event(self, level: str, kind: str, text: str) -> None: ...
