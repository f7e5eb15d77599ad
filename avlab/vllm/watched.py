"""One of the servers of a watch: what it said last, which of its engines count, and since when it is silent."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from avlab.vllm import VllmError
from avlab.vllm.metrics import Counters, Engine, MetricsError, Reading, between, read
from avlab.vllm.server import Server, ServerError


class AttachError(VllmError):
    """The server cannot be watched, or not any more. The message is one sentence."""


@dataclass(frozen=True)
class Part:
    """One engine between two readings. engine: its number, and its server's name where there are several."""

    model: str
    engine: str
    counters: Counters
    seconds: float


@dataclass
class Watched:
    """A server. name: what tells it apart, "" for the only one. wanted: the engine to watch, None for all.

    last: when it was read, and what it said; None where the next reading begins an interval. missed: its silence has
    outlasted the watch's patience, and that was said.
    """

    server: Server
    name: str
    wanted: str | None
    model: str = ""
    last: tuple[float, Reading] | None = None
    silent_since: float | None = None
    missed: bool = False
    foreign: str = ""  # what was said of another model at its address

    def read(self) -> Reading | ServerError:
        """What /metrics says, or why nothing. A server that is starting has no counters yet: it may the next time."""
        try:
            return read(self.server.metrics())
        except ServerError as error:
            return error
        except MetricsError as error:
            return ServerError(str(error), passing=True)

    def choose_model(self, reading: Reading) -> None:
        """The one that was asked for, else its only one. Raises AttachError."""
        models = sorted({model for model, _ in reading.engines})
        served = f"{self.name or 'The server'} serves {len(models)} models, {', '.join(models)}"
        if not self.model and len(models) > 1:
            raise AttachError(f"{served}: choose one with --model.")
        if self.model and self.model not in models:
            raise AttachError(
                f"{self.name or 'The server'} does not serve {self.model!r}; it serves {', '.join(models)}."
            )
        self.model = self.model or models[0]

    def mine(self, reading: Reading) -> dict[Engine, Counters]:
        """The engines that are watched. Raises AttachError where there is none."""
        mine = {key: each for key, each in reading.engines.items() if key[0] == self.model}
        chosen = {key: each for key, each in mine.items() if self.wanted in (None, key[1])}
        if not chosen:
            numbers = ", ".join(sorted(number for _, number in mine))
            server = self.name or "The server"
            raise AttachError(
                f"{server} has no engine {self.wanted} of {self.model}; it has {numbers}."
                if mine
                else f"{server} does not serve {self.model} any more."
            )
        return chosen

    def called(self, engine: str) -> str:
        """An engine's number, with its server's name where there are several servers."""
        return f"{engine} at {self.name}" if self.name else engine

    def parts(self, before: tuple[float, Reading], after: tuple[float, Reading]) -> list[Part]:
        """What its engines did between two readings; one that is new is known from the next interval on."""
        return [
            Part(key[0], self.called(key[1]), between(before[1].engines[key], counters), after[0] - before[0])
            for key, counters in self.mine(after[1]).items()
            if key in before[1].engines
        ]

    def alone(self, reading: Reading) -> bool:
        """Whether its first engine is all that is watched."""
        numbers = sorted((number for _, number in reading.engines), key=lambda each: (len(each), each))
        return len(reading.engines) == 1 or [key for _, key in self.mine(reading)] == numbers[:1]


def names_of(urls: Sequence[str]) -> list[str]:
    """Names of servers: host and port, with scheme and path where these alone tell two apart; "" for the only one."""
    if len(urls) == 1:
        return [""]
    short = [urlsplit(url).netloc for url in urls]
    return short if len(set(short)) == len(urls) else list(urls)
