"""The telemetry file of a server that is watched: the worker extension's record without development mode."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from avlab.vllm.drained import NO_STEPS
from avlab.vllm.find_extension import SEES_NO_STEPS, Found, Unread
from avlab.vllm.ring import RingError, RingFile, State, ring_files
from avlab.vllm.server import ServerError


def find_ring(place: str, model: str, engines: list[str]) -> Found:
    """The record of a model's engine in a folder, or in one file. engines: the numbers of those that are watched.
    Raises Unread where no file tells it.
    """
    try:
        files = [(RingFile(path), path) for path in ring_files(Path(place))]
    except RingError as error:
        raise Unread(str(error)) from None
    states = {path: (file, _state(file)) for file, path in files}
    mine = {path: each for path, each in states.items() if each[1] and each[1].model == model}
    if not mine:
        others = sorted({state.model for _, state in states.values() if state})
        raise Unread(f"{place} has telemetry of {', '.join(others) or 'no model'}, and {model} is watched.")
    numbered = {engine.partition(" ")[0] for engine in engines}  # without where it is
    chosen = [(path, *each) for path, each in mine.items() if each[1] and each[1].engine in numbered]
    if len(engines) != 1 or not chosen:
        numbers = ", ".join(sorted(state.engine for _, state in mine.values() if state))
        raise Unread(f"{place} has a file for each engine ({numbers}): --engine N reads one engine's.")
    [(path, file, state)] = chosen[:1]
    assert state is not None
    if not state.lives:
        raise Unread(
            f"{path} was last written {state.age:,.0f} s ago: its server has ended, or keeps its telemetry elsewhere."
        )
    if not state.about["steps"]:
        raise Unread(SEES_NO_STEPS, *state.about["missing"])
    source = _Source(file)
    return Found(dict(state.about) | {"offset": state.offset}, source.drain(NO_STEPS, -1), source.drain)


def _state(file: RingFile) -> State | None:
    try:
        return file.state()
    except RingError:
        return None


class _Source:
    """A file, asked as a server's extension is. A worker that begins anew is told as a server that restarts."""

    def __init__(self, file: RingFile):
        self._file = file

    def drain(self, after: int, refits_after: int) -> Mapping[str, Any]:
        """Raises ServerError, which may pass."""
        try:
            if self._file.replaced():
                raise RingError(f"{self._file.path} is written by another worker now.")
            return self._file.drain(after, refits_after)
        except RingError as error:
            raise ServerError(str(error), passing=True) from None
