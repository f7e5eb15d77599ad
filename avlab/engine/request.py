"""What is asked of the engine, and what a request is while it is served."""

from dataclasses import dataclass, field

import numpy as np


class RequestError(ValueError):
    """A request that cannot be served. The message says why and what to change."""


@dataclass(slots=True)
class Request:
    """A prompt to continue. tokens: the prompt's ids. temperature 0 is greedy; top_k 0 and top_p 1 cut nothing."""

    id: int
    tokens: list[int]
    max_new_tokens: int = 256
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    kind: str = "chat"
    arrival: float = 0.0


@dataclass(slots=True)
class Sequence:
    """A request in service. `tokens` is prompt and output; the first `cached` of them are in the cache."""

    request: Request
    slot: int
    tokens: list[int]
    earlier: np.ndarray  # [K] acceptance estimates of the step before; ones while there is none
    cached: int = 0
    draws: int = 0  # steps taken part in: the draw counter of this request's noise
    steps: int = 0  # steps that emitted
    drafts_accepted: int = 0
    admitted_at: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None
    emitted: list[int] = field(default_factory=list)  # this step's output tokens

    @property
    def prompt_length(self) -> int:
        return len(self.request.tokens)

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        return self.request.max_new_tokens - self.output_length

    @property
    def decoding(self) -> bool:
        """The prompt is in the cache and one newest token waits to be verified."""
        return self.cached >= self.prompt_length


@dataclass(frozen=True, slots=True)
class Finished:
    """A request's end: reason is "end" (end-of-text), "length" or "cancelled"."""

    sequence: Sequence
    reason: str
