"""Machines: tables of step costs with a name and a source, one TOML file each. A run on one of them is emulated.

A machine says what a step takes there: drafting by requests and depth, the target's pass by tokens (and by cached
tokens where that is known), and what a step takes besides. A new machine is one file in this folder.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from avlab.speculation.costs import MOST_MS, CostTable, depth_table, linear_table

FOLDER = Path(__file__).parent
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
    """Timed passes of the target: (tokens, ms)."""

    samples: Samples


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
    step_ms: Milliseconds = 0.0
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


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """What a step costs there, in milliseconds. Names and limits are in `about`; K: the longest draft.

    draft: [requests + 1, K + 1]. verify: [tokens + 1], without cached tokens. Sizes between captured ones cost what
    the next captured one does; beyond the largest captured size, and where nothing is captured, straight lines.
    """

    name: str
    about: Description
    draft: np.ndarray
    verify: np.ndarray
    notes: tuple[str, ...] = field(default=())

    def milliseconds(
        self, requests: int, depth: int, tokens: int, cached: int = 0
    ) -> tuple[float, float, float]:
        """What a step takes: its draft, the target's pass, and the rest. cached: tokens in its requests' caches."""
        draft = float(self.draft[requests, depth])
        verify = float(self.verify[min(tokens, len(self.verify) - 1)])
        if cached:
            for part, drafting in ((self.about.draft, True), (self.about.verify, False)):
                if isinstance(part, Fit):
                    if drafting and depth:
                        draft += part.cached_ms * cached
                    elif not drafting:
                        verify += part.cached_ms * cached
        return draft, verify, self.about.step_ms

    def table(self, cached: int = 0) -> CostTable:
        """The table that policies decide by there: as vLLM builds it, costs never falling as sizes grow.

        cached: tokens in the caches of a step's requests, which straight lines price.
        """
        draft, verify = self.draft.copy(), np.maximum.accumulate(self.verify)
        if isinstance(self.about.verify, Fit):
            verify = verify + self.about.verify.cached_ms * cached
        if isinstance(self.about.draft, Fit):
            draft[:, 1:] += self.about.draft.cached_ms * cached
        return CostTable(np.maximum.accumulate(draft, axis=0), verify)


def known() -> list[str]:
    """The names of the machines that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@lru_cache(maxsize=16)
def machine(name: str, K: int) -> Machine:
    """A machine by its name, or by the path of a TOML file. K: the longest draft asked of it. Raises MachineError."""
    path = FOLDER / f"{name}.toml" if name in known() else Path(name)
    if path.suffix != ".toml":
        raise MachineError(
            f"There is no machine {name!r}; known are {', '.join(known())}, or the path of a TOML file."
        )
    about = read(path)
    R, T = about.most_requests, about.most_tokens
    if isinstance(about.draft, Fit):
        drafted = np.arange(R + 1)[:, None] * np.arange(K + 1)
        draft = np.where(drafted > 0, about.draft.base_ms + about.draft.token_ms * drafted, 0.0)
    elif about.draft.by_depth:
        draft = depth_table(about.draft.samples, R, K)
    else:
        one = linear_table([(requests, ms) for requests, _, ms in about.draft.samples], R)
        draft = np.where(np.arange(K + 1) > 0, one[:, None], 0.0)
    if isinstance(about.verify, Fit):
        verify = about.verify.base_ms + about.verify.token_ms * np.arange(T + 1)
    else:
        verify = _executed(np.array(about.verify.samples, dtype=np.float64), T, about.captured)
    return Machine(path.stem, about, draft, verify, tuple(notes(about, verify)))


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


def _executed(samples: np.ndarray, largest: int, captured: int) -> np.ndarray:
    """What a pass of 0..largest tokens takes where sizes are padded to the next sampled one up to `captured`."""
    sizes = np.unique(samples[:, 0])
    costs = np.array([np.median(samples[samples[:, 0] == size, 1]) for size in sizes])
    every = np.arange(largest + 1)
    table = np.interp(every, sizes, costs)
    padded = every <= captured
    table[padded] = costs[np.minimum(np.searchsorted(sizes, every[padded]), len(sizes) - 1)]
    beyond = sizes > captured
    if captured and beyond.any():
        table[~padded] = np.interp(every[~padded], sizes[beyond], costs[beyond])
    if largest > sizes[-1] and len(sizes) > 1:
        slope = max((costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2]), 0.0)
        far = every > sizes[-1]
        table[far] = costs[-1] + slope * (every[far] - sizes[-1])
    return table


def notes(about: Description, verify: np.ndarray) -> list[str]:
    """What a reader should know of a table before believing it: flat, falling, jagged."""
    found, few = [], verify[1 : min(len(verify), 257)]
    if few.max() <= few.min() * 1.02:
        found.append(
            "The target's pass costs the same for 1 token and for 256: verifying everything always pays."
        )
    falls = np.maximum.accumulate(verify) - verify
    if falls.max() > 0.02 * verify.max():
        found.append(
            f"The target's pass is not monotone: some sizes cost {falls.max():.1f} ms less than a smaller one."
        )
    if not isinstance(about.draft, Fit) and not any(ms > 0 for *_, ms in about.draft.samples):
        found.append("Drafts cost nothing here.")
    return found
