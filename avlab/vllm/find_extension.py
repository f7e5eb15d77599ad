"""The worker extension of a server that somebody else started: whether it is there, and what it begins with.

Nothing is asked of workers that may not have it. Where one of several workers fails, vLLM's executor leaves the others'
answers in their queues, and whoever asks next takes them for its own (`MultiprocExecutor.collective_rpc`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from avlab.vllm import VllmError
from avlab.vllm.drained import NO_STEPS
from avlab.vllm.server import Server, ServerError

NAME = "avlab.vllm.extension.Watch"
CLASSES = ("Watch", "Switch")

NOT_IN_DEVELOPMENT_MODE = (
    "The server is not in development mode, so whether it has the worker extension cannot be asked: start it with "
    f"VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls {NAME}. In production start it with AVLAB_TELEMETRY=FOLDER "
    "instead of that mode, and attach with --telemetry FOLDER on its machine."
)
NOT_LOADED = f"The worker extension is not loaded: start the server with --worker-extension-cls {NAME}."
SEES_NO_STEPS = "The server has the worker extension, which cannot see its steps."
FIRST_ONLY = (
    "The server's worker extension answers for its first engine alone, so the counters of all are told: --engine 0 "
    "watches the first one from inside."
)


class Unread(VllmError):
    """The extension tells nothing of this server, for good. sentences: why."""

    def __init__(self, *sentences: str):
        super().__init__(" ".join(sentences))
        self.sentences = list(sentences)


@dataclass(frozen=True)
class Found:
    """about: what `avlab_begin` answers, with "offset": its clock less ours. record: what `avlab_drain` begins with.
    drain: what happened since, as `avlab_drain` answers; it raises ServerError.
    """

    about: Mapping[str, Any]
    record: Mapping[str, Any]
    drain: Callable[[int, int], Mapping[str, Any]]

    @property
    def K(self) -> int:
        return int(self.about["K"])


def find_extension(server: Server, info: Mapping[str, Any] | None, first_alone: bool) -> Found:
    """The extension of a server. info: its configuration, None outside of development mode. first_alone: its first
    engine is all that is to be watched. Raises Unread, or ServerError where it did not answer.
    """
    if info is None:
        raise Unread(NOT_IN_DEVELOPMENT_MODE)
    name = _extension(info)
    if not name:
        raise Unread(NOT_LOADED)
    if name.rpartition(".")[2] not in CLASSES and "avlab" not in name:
        raise Unread(f"The server's worker extension is {name}, which is not the lab's, {NAME}.")
    if not first_alone:
        raise Unread(FIRST_ONLY)
    about = server.call("avlab_begin")
    arrived = time.monotonic()
    try:
        about = about | {"offset": float(about["clock"]) - arrived}
        if not about["steps"]:
            raise Unread(SEES_NO_STEPS, *about["missing"])
    except (KeyError, TypeError):
        raise ServerError(f"{server.url} has another worker extension of the name {name}.") from None

    def drain(after: int, refits_after: int) -> Mapping[str, Any]:
        return server.call("avlab_drain", after, refits_after)

    return Found(about, drain(NO_STEPS, -1), drain)


def _extension(info: Mapping[str, Any]) -> str:
    """The name of the class that is mixed into the server's workers, "" for none."""
    parallel = info["vllm_config"].get("parallel_config")
    return str(parallel.get("worker_extension_cls") or "") if isinstance(parallel, Mapping) else ""
