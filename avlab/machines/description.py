"""A machine's file: its parts, checked by value, and how it is read and written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from avlab.speculation.costs import MOST_MS

LARGEST_FILE = 2_000_000  # bytes; the largest that ships has 4,000
LARGEST_SIZE = 1_000_000  # requests or tokens
MOST_SAMPLES = 20_000

Milliseconds = Annotated[float, Field(ge=0, le=MOST_MS)]
Size = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
Samples = Annotated[list[tuple[Size, Milliseconds]], Field(min_length=1, max_length=MOST_SAMPLES)]
DraftSamples = Annotated[list[tuple[Size, Size, Milliseconds]], Field(min_length=1, max_length=MOST_SAMPLES)]


class MachineError(ValueError):
    """A machine's file that cannot be used, or a name that no machine has. The message is one sentence."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Fit(_Part):
    """A straight line: base_ms + token_ms x tokens + cached_ms x tokens in the cache."""

    base_ms: Milliseconds
    token_ms: Milliseconds
    cached_ms: Milliseconds = 0.0


class VerifySamples(_Part):
    """Timed passes of the target: (tokens, ms), and what each token in its requests' caches adds."""

    samples: Samples
    cached_ms: Milliseconds = 0.0


class Drafting(_Part):
    """Timed drafts: (requests, depth, ms). by_depth: whether a shallower draft is cheaper, as with EAGLE and MTP."""

    samples: DraftSamples
    by_depth: bool


class Description(_Part):
    """A machine's file, checked. See any file of this folder for what each line means."""

    title: str = Field(min_length=1, max_length=100)
    model: str = Field(min_length=1, max_length=100)
    gpu: str = Field(min_length=1, max_length=60)
    gpus: int = Field(ge=1, le=10_000)
    engine: str = Field(max_length=60)
    source: str = Field(min_length=1, max_length=300)
    licence: str = Field(min_length=1, max_length=200)
    trust: Literal[
        "published profile, read off a figure",
        "published fit",
        "operation tables",
        "profiled here",
        "imported",
    ]
    captured: Size = 0
    most_requests: int = Field(ge=1, le=100_000)
    most_tokens: int = Field(ge=1, le=LARGEST_SIZE)
    step_ms: Milliseconds = 0.0  # what a step takes besides
    prompt_saves_ms: Milliseconds = 0.0  # by which a prompt token of a pass is cheaper: it needs no logits
    row_ms: Milliseconds = 0.0  # and for each row that is sampled from: newest tokens and admitted drafts
    prefill_tokens: int = Field(2048, ge=1, le=LARGEST_SIZE)
    draft: Drafting | Fit
    verify: VerifySamples | Fit

    @model_validator(mode="after")
    def _costs_something(self) -> Description:
        if isinstance(self.verify, VerifySamples):
            if not any(ms > 0 for _, ms in self.verify.samples):
                raise ValueError("no pass of the target costs anything.")
        elif self.verify.base_ms + self.verify.token_ms == 0:
            raise ValueError("no pass of the target costs anything.")
        return self


def read(path: Path) -> Description:
    """A machine's file, checked by value. Raises MachineError."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise MachineError(f"{path} holds more than {LARGEST_FILE:,} bytes: a machine's file is small.")
        return Description(**tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise MachineError(f"The machine's file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(f"{path} is no TOML file ({error}).") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        raise MachineError(f"{path} is not a machine's file: {where or 'it'}: {first['msg']}.") from None
