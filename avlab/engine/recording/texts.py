"""Texts of the target, to be recorded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from avlab.engine.engine import Engine
from avlab.engine.request import Request


@dataclass(frozen=True, slots=True)
class Text:
    """A text to record: a prompt and what the target wrote, [n >= 2] tokens of at most `limit`. seed: of its drafts."""

    kind: str
    prompt: list[int]
    output: list[int]
    limit: int
    seed: int = 0


def written(engine: Engine, requests: Sequence[Request], progress: Callable[[int, int], None]) -> list[Text]:
    """What the engine writes to these prompts, in their order; texts of a single token hold no anchor and are left out.

    progress(texts done, all). Raises RequestError for a request that can never be served.
    """
    for request in requests:
        engine.add(request)
    found: dict[int, Text] = {}
    ended = 0
    while engine.running or engine.waiting:
        for finished in engine.step().finished:
            request, ended = finished.sequence.request, ended + 1
            output = finished.sequence.tokens[len(request.tokens) :]
            if len(output) >= 2:
                found[request.id] = Text(
                    request.kind, request.tokens, output, request.max_new_tokens, request.seed
                )
        progress(ended, len(requests))
    return [found[number] for number in sorted(found)]
