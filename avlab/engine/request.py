"""What is asked of the engine, and what a request is while it is served."""

import math
from dataclasses import dataclass

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

    @property
    def sampling_class(self) -> str:
        """What estimators may keep apart: the kind of prompt and the temperature."""
        return f"{self.kind}, temperature {self.temperature:g}"


def check(request: Request, vocabulary: int, room: int) -> None:
    """Raise RequestError if an engine with this vocabulary and room for this many tokens can never serve it."""
    name = f"Request {request.id}" if request.id >= 0 else "The playground"
    tokens = request.tokens
    if not tokens:
        raise RequestError(f"{name} has an empty prompt: give at least one token.")
    if max(tokens) >= vocabulary or min(tokens) < 0:
        raise RequestError(f"{name} has token ids outside the target's vocabulary of {vocabulary}.")
    if len(tokens) >= room:
        raise RequestError(
            f"{name} has a prompt of {len(tokens)} tokens; the context holds {room - 1}: "
            "shorten it, or raise --max-model-len."
        )
    if request.max_new_tokens < 1:
        raise RequestError(f"{name} asks for {request.max_new_tokens} new tokens: ask for 1 or more.")
    if not 0 <= request.temperature < math.inf:
        raise RequestError(f"{name} has temperature {request.temperature}: give 0 (greedy) or more.")
    if request.top_k < 0:
        raise RequestError(f"{name} has top_k {request.top_k}: give 0 (all tokens) or more.")
    if not 0 < request.top_p <= 1:
        raise RequestError(f"{name} has top_p {request.top_p}: give more than 0, and at most 1 (all tokens).")


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in service. `tokens` is prompt and output; the first `cached` of them are in the cache."""

    request: Request
    cache_row: int
    tokens: list[int]
    earlier: np.ndarray  # [K] acceptance estimates of the step before; nan where there are none
    cached: int = 0
    steps: int = 0  # that emitted: the draw counter of this request's noise
    drafts_accepted: int = 0
    admitted_at: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None

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
