"""A trace's texts as a workload: kinds, mixtures and drifts of them, arriving in any pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from avlab.replay.trace import Trace
from avlab.workloads import DEFAULT_ARRIVAL, Moment, Prompt, Workload, open_arrivals, open_stream
from avlab.workloads.base import generator

SOURCE = "a text of the trace"


class TextStream:
    """The texts of one kind without end: each once, then again in another order. A prompt's words are its number."""

    exhausted = False

    def __init__(self, kind: str, texts: Sequence[Prompt], seed: int):
        self._texts, self._draw, self._taken = list(texts), generator("texts", kind, seed), 0

    def take(self, moment: Moment) -> Prompt:
        place = self._taken % len(self._texts)
        if not place:
            self._draw.shuffle(self._texts)
        self._taken += 1
        return self._texts[place]


class TextNumbers:
    """What a replay's prompts are to its engine: the number of a text of the trace."""

    def encode(
        self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any] | None = None
    ) -> list[int]:
        return [int(messages[-1]["content"])]

    def reads(self, name: str) -> bool:
        return False

    def decode(self, tokens: Sequence[int]) -> str:
        return ""


def open_texts(trace: Trace, spec: str, arrivals: str | None, seed: int) -> Workload:
    """The workload that `spec` names, of this trace's kinds. Raises WorkloadError."""
    by_kind = _prompts(trace)
    names = sorted(by_kind)
    stream = open_stream(spec, names, lambda kind: TextStream(kind, by_kind[kind], seed), seed)
    return Workload(spec, stream, open_arrivals(arrivals or DEFAULT_ARRIVAL, seed))


@lru_cache(maxsize=2)  # every block of an isolated A/B asks anew
def _prompts(trace: Trace) -> dict[str, list[Prompt]]:
    found: dict[str, list[Prompt]] = {}
    for text, (kind, limit) in enumerate(zip(trace.kind, trace.limit, strict=True)):
        prompt = Prompt(str(kind), (("user", str(text)),), SOURCE, "as the trace's", int(limit))
        found.setdefault(str(kind), []).append(prompt)
    return found
