"""The playground's last generation as its frames arrive: in memory only, for the page."""

import threading
from dataclasses import dataclass, replace

from avlab.wire import commands, frames


@dataclass(frozen=True, slots=True)
class Generation:
    """What is known of a generation.

    state: "none", "asked" (the worker has not answered), "running", "ended" or "refused". said: why it was refused,
    or what is to be told of its end. request: as the worker numbers it. finish: as in RequestDone. arm: in force.
    """

    command: commands.Generate | None = None
    state: str = "none"
    arm: str = ""
    said: str = ""
    request: int = 0
    finish: str = ""
    steps: tuple[frames.Tokens, ...] = ()

    @property
    def active(self) -> bool:
        return self.state in ("asked", "running")


class LastGeneration:
    """Keeps the last generation. `ask` and `add` are called from one thread each; `now` from any."""

    def __init__(self) -> None:
        self.now = Generation()
        self._lock = threading.Lock()

    def ask(self, command: commands.Generate) -> None:
        """A generation was asked for."""
        with self._lock:
            self.now = Generation(command, "asked")

    def add(self, frame: frames.Frame) -> None:
        """Take notice of a frame."""
        with self._lock:
            now = self.now
            if not now.active:
                return
            match frame:
                case frames.Block(kind=kind, arm=arm) if kind == frames.PLAYGROUND:
                    self.now = replace(now, state="running", arm=arm)
                case frames.Tokens(request=request):
                    self.now = replace(now, request=request, steps=(*now.steps, frame))
                case frames.RequestDone(request=request, finish=finish) if request < 0:
                    self.now = replace(now, state="ended", request=request, finish=finish)
                case frames.Event(kind=kind, text=text) if kind == frames.PLAYGROUND:
                    refused = "refused" if now.state == "asked" else now.state
                    self.now = replace(now, state=refused, said=text)
                case frames.Bye():
                    self.now = replace(now, state="ended", finish="cancelled", said="The run has ended.")
