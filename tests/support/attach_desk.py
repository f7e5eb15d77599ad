"""A watch of a server without a process, a lab or a clock of its own: a test's desk."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from avlab.vllm.attach import Watch
from avlab.vllm.attach_config import AttachConfig
from avlab.wire import frames as fr


@dataclass
class Desk:
    """An order without a process: its clock and its commands are the test's."""

    config: AttachConfig
    frames: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    now: float = 0.0
    step: int = 0
    state: str = "starting"
    after: object = None  # called at every wait, with the number of waits

    def __post_init__(self):
        self.waits = 0
        self.asked_to_stop = SimpleNamespace(is_set=lambda: False)
        self.outbox = SimpleNamespace(lost="", put=self.frames.append, wait=self.wait, commands=self.commands)

    def clock(self):
        return self.now

    def progress(self, *_):
        pass

    def event(self, level, kind, text):
        self.frames.append(fr.Event(level, kind, text, self.now, self.step))

    def wait(self, seconds):
        self.now += seconds
        self.waits += 1
        if self.after:
            self.after(self.waits)

    def commands(self):
        taken, self.asked[:] = list(self.asked), []
        return taken

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def steps(self):
        return [step for frame in self.of(fr.Steps) for step in frame.steps]

    def said(self, level):
        return [frame.text for frame in self.of(fr.Event) if frame.level == level]


def watch(server, after, **settings):
    """Watch a stand-in to the end of `duration`, or of what `after` does; the desk."""
    desk = Desk(AttachConfig.make(url=server.url, **settings), after=after)
    desk.result = Watch(desk).run()
    return desk
