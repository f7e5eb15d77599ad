"""`avlab run`: a workload served in a background worker and recorded."""

from dataclasses import dataclass
from typing import Annotated

from avlab.commands import terminal
from avlab.commands.emulated import Emulation
from avlab.commands.following import serve
from avlab.commands.options import Settings, limited, plain_settings, with_settings
from avlab.config import ConfigError


@dataclass(frozen=True, kw_only=True)
class Load:
    """The options of a run beside its settings."""

    concurrency: Annotated[int | None, "requests under way: short for --arrival closed:N"] = None

    def with_arrival(self, given: Settings) -> Settings:
        """Settings in which --concurrency has become an arrival pattern. Raises ConfigError."""
        if self.concurrency is None:
            return given
        if "arrival" in given:
            raise ConfigError(["--concurrency and --arrival both say how requests arrive; give one of them."])
        if self.concurrency < 1:
            raise ConfigError([f"concurrency is {self.concurrency}; it must be 1 request or more."])
        return given | {"arrival": f"closed:{self.concurrency}"}


@dataclass(frozen=True, kw_only=True)
class OwnLoad(Load, Emulation):
    """The options of a run by the real engine or, with --machine and its like, of a replay."""


def _run(load: OwnLoad, settings: Settings, as_json: bool) -> None:
    given = limited(load.with_arrival(plain_settings(settings)))
    serve(load.configured(given), as_json, terminal.show_summary)


run = with_settings(
    OwnLoad,
    _run,
    "Serve a workload in a background worker, record it, and show how it goes. With --machine: a replay of recorded "
    "texts on that machine's costs, without a model.",
)
