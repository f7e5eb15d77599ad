"""The configuration of a run that watches a server: for the command line, the worker and the dashboard's form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from avlab.config import ConfigError, default_database
from avlab.field_sentences import sentences
from avlab.vllm.server import base_url

MOST_STEPS = 20_000  # intervals of a history


class AttachConfig(BaseModel):
    """Which server is watched, how often, and until when. It holds a key's place, never the key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    kind: ClassVar[str] = "attach"
    threads: ClassVar[int | None] = 1  # of the worker, which only waits
    spin: ClassVar[int] = 0
    traffic: ClassVar[tuple[str, str]] = ("", "")  # its users' requests, which nobody tells

    url: str = Field(
        "", description="the server, as http://HOST:PORT; none where its telemetry alone is read"
    )
    model: str | None = Field(None, description="whose numbers, where the server serves several models")
    engine: str | None = Field(None, description="one engine's number; else all together")
    interval: float = Field(1.0, ge=0.2, le=60, description="seconds between two readings")
    verification: Literal["ask", "adaptive", "fixed"] = Field(
        "ask", description="ask the server (development mode only), adaptive, or fixed"
    )
    telemetry: str | None = Field(
        None, description="on the server's machine: the folder of its AVLAB_TELEMETRY, or one file there"
    )
    key_variable: str = Field(
        "", pattern=r"^([A-Za-z_]\w*)?$", description="environment variable that holds the server's key"
    )
    ca_file: str | None = Field(None, description="certificates to trust for https, beside the system's")
    timeout: float = Field(5.0, gt=0, le=60, description="seconds for each answer")
    patience: float = Field(60.0, ge=0, description="seconds that a silent server is waited for")
    wait: float = Field(0.0, ge=0, le=86400, description="seconds to wait for a server that is not up yet")
    history: bool = Field(False, description="url is a Prometheus server, whose past is read")
    since: float | None = Field(None, gt=0, le=1e11, description="of a history: seconds since the epoch")
    until: float | None = Field(None, gt=0, le=1e11, description="of a history: seconds since the epoch")
    step: float = Field(15.0, ge=1, le=86400, description="of a history: seconds of an interval")
    selector: str = Field(
        "", max_length=1000, description='of a history: labels that choose series, as job="vllm"'
    )
    duration: float | None = Field(None, gt=0, le=30 * 86400, description="seconds to watch, or forever")
    tokens: int | None = Field(None, ge=1, description="end after so many output tokens")
    requests: int | None = Field(None, ge=1, description="end when so many requests have ended")
    others: tuple[str, ...] = Field(
        (), max_length=31, description="further servers, watched beside the first"
    )
    database: str = Field(
        default_factory=lambda: str(default_database()),
        min_length=1,
        description="the lab's file; else $AVLAB_DATABASE, else the user's own",
    )

    @classmethod
    def make(cls, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """A configuration from plain values. Raises ConfigError with a sentence for every wrong field."""
        try:
            return cls(**{**(values or {}), **more})
        except ValidationError as error:
            raise ConfigError(sentences(error, cls)) from None

    def changed(self, **values: Any) -> Self:
        """This configuration with some values replaced, checked again. Raises ConfigError."""
        return self.make({**self.model_dump(), **values})

    def given(self) -> dict[str, Any]:
        """All values, in JSON's types."""
        return self.model_dump(mode="json")

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of all servers, the first one first; a folder of telemetry in place of a server's."""
        return (self.url or str(self.telemetry), *self.others)

    @field_validator("url")
    @classmethod
    def _url(cls, text: str) -> str:
        return base_url(text) if text else text

    @field_validator("telemetry")
    @classmethod
    def _telemetry(cls, text: str | None) -> str | None:
        """As a whole path: the worker that reads it runs in another folder."""
        return str(Path(text).expanduser().absolute()) if text else None

    @field_validator("others")
    @classmethod
    def _others(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(base_url, texts))

    @field_validator("selector")
    @classmethod
    def _selector(cls, text: str) -> str:
        if "{" in text or "}" in text:
            raise ValueError('The selector holds a brace: write the labels alone, as job="vllm".')
        return text.strip().strip(",")

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if not self.url and not self.telemetry:
            raise ValueError("No server is named: give its address, http://HOST:PORT, or --telemetry FOLDER.")
        if self.history:
            if self.since is None or self.until is None or self.until - self.since < self.step:
                raise ValueError(
                    "A history needs a beginning and an end, at least one step apart: --from, --to."
                )
            if (self.until - self.since) / self.step > MOST_STEPS:
                raise ValueError(f"That is more than {MOST_STEPS:,} intervals: give a longer --step.")
            if self.others or self.telemetry:
                raise ValueError(
                    "A history is of one Prometheus server: give no other address with --prometheus."
                )
        if len(set(self.servers)) < len(self.servers):
            raise ValueError("An address stands there twice: name every server once.")
        if self.others and self.telemetry:
            raise ValueError("A telemetry file is of one server: attach to that alone.")
        return self
