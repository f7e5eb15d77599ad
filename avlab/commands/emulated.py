"""The options that make a run a replay: recorded texts on another machine's costs, in place of the real engine."""

from dataclasses import dataclass
from typing import Annotated, Any

from avlab.commands.options import Settings, flag_of
from avlab.config import ConfigError, RunConfig
from avlab.kinds.replay import ReplayConfig


def _told(name: str) -> str:
    return f"replay: {ReplayConfig.model_fields[name].description}"


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """Any of these makes a run a replay; None is not given."""

    machine: Annotated[str | None, _told("machine")] = None
    trace: Annotated[str | None, _told("trace")] = None
    pace: Annotated[str | None, _told("pace")] = None
    requests_at_once: Annotated[int | None, _told("requests_at_once")] = None
    kv_tokens: Annotated[int | None, _told("kv_tokens")] = None
    prefill_tokens: Annotated[int | None, _told("prefill_tokens")] = None

    def configured(self, settings: Settings, **decided: Any) -> RunConfig | ReplayConfig:
        """The configuration that the options ask for, of the kind they ask for. Raises ConfigError."""
        own = {
            name: value
            for name in Emulation.__dataclass_fields__
            if (value := getattr(self, name)) is not None
        }
        if not own:
            return RunConfig.make(settings, **decided)
        foreign = [flag_of(name) for name in settings if name not in ReplayConfig.model_fields]
        if foreign:
            raise ConfigError(
                [
                    f"{' and '.join(foreign)} is the real engine's, and a replay is asked for: its trace decides "
                    "target, drafter and sampling; leave it out, or choose another trace."
                ]
            )
        return ReplayConfig.make(settings, **own, **decided)
