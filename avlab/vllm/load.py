"""A closed loop of requests against a server: so many streams of OpenAI completions at once, each followed by the next.

What is counted are the tokens of the server's own usage (`continuous_usage_stats` of vLLM and SGLang: every chunk says
how many there are by now), since a chunk holds several tokens where drafts are accepted.
"""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from avlab.vllm import VllmError
from avlab.vllm.deadline import Deadline
from avlab.vllm.server import Server, ServerError
from avlab.workloads import Moment, open_workload

LONGEST_BLOCK = 3600.0  # seconds of one stream
PATH = "/v1/completions"


class LoadError(VllmError):
    """A block that cannot be counted. The message is one sentence."""


@dataclass(frozen=True)
class Prompts:
    """What is asked, one text a request; every server gets the same. tokens: most of an answer."""

    workload: str = "mixed"
    seed: int = 0
    tokens: int = 128
    temperature: float = 0.0

    def texts(self, round: int) -> Iterator[str]:
        """The prompts of a round, without end. Raises WorkloadError."""
        stream = open_workload(self.workload, seed=self.seed + 1000 * round).stream
        while True:
            messages = stream.take(Moment(0.0)).messages
            yield "\n".join(str(each["content"]) for each in messages)


@dataclass
class Counted:
    """A block: output tokens, seconds, requests that ended, and seconds to the first token of each that began in it."""

    tokens: int = 0
    seconds: float = 0.0
    ended: int = 0
    first_token_s: list[float] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


class ClosedLoop:
    """`requests` streams at once to one server. warm: seconds within which each must have emitted a first token."""

    def __init__(self, server: Server, model: str, requests: int, prompts: Prompts, warm: float = 120.0):
        self.server, self.model, self.requests, self.prompts, self.warm = (
            server,
            model,
            requests,
            prompts,
            warm,
        )

    def block(self, seconds: float, round: int = 0) -> Counted:
        """Begin, wait until every stream has emitted, count for so long, end. Raises LoadError or ServerError."""
        begun = _Block(self, round)
        threads = [threading.Thread(target=begun.serve, daemon=True) for _ in range(self.requests)]
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + self.warm
            while begun.streaming < self.requests:
                begun.check()
                if time.monotonic() > end:
                    raise LoadError(
                        f"{self.server.url} has not answered {self.requests} requests at once within {self.warm:g} s."
                    )
                time.sleep(0.01)
            begun.count()
            end = time.monotonic() + seconds
            while (rest := end - time.monotonic()) > 0:
                begun.check()
                time.sleep(min(rest, 0.05))
            counted = begun.counted()
        finally:
            begun.end()
            for thread in threads:
                thread.join(10)
        if not counted.tokens:
            raise LoadError(f"{self.server.url} emitted no token in {seconds:g} s.")
        return counted


class _Block:
    """What the streams of one block share."""

    def __init__(self, loop: ClosedLoop, round: int):
        self.loop = loop
        texts = loop.prompts.texts(round)
        ready = [
            next(texts) for _ in range(loop.requests)
        ]  # opening a workload takes a moment that nobody waits for
        self.texts = itertools.chain(ready, texts)
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.stopped = False
        self.error: Exception | None = None
        self.streaming = 0  # streams that have emitted
        self.deadlines: set[Deadline] = set()
        self.found, self.since = Counted(), 0.0

    def serve(self) -> None:
        """One stream after another."""
        emitted = False
        while not self.stopped:
            try:
                emitted = self._request(emitted)
            except Exception as error:
                with self.lock:
                    if not self.stopped:
                        self.error = self.error or error
                return

    def _request(self, emitted: bool) -> bool:
        with self.lock:
            number, text = next(self.numbers), next(self.texts)
        prompts, began, tokens = self.loop.prompts, time.monotonic(), 0
        body = {
            "model": self.loop.model, "prompt": text, "max_tokens": prompts.tokens, "temperature": prompts.temperature,
            "seed": prompts.seed + number, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }  # fmt: skip
        with Deadline(LONGEST_BLOCK) as deadline:
            with self.lock:
                self.deadlines.add(deadline)
            if self.stopped:
                return emitted
            for line in self.loop.server.lines(PATH, json.dumps(body).encode(), deadline):
                now_tokens = _tokens(line)
                if now_tokens is None or now_tokens <= tokens:
                    continue
                with self.lock:
                    if not tokens and self.since:
                        self.found.first_token_s.append(time.monotonic() - began)
                    self.found.tokens += now_tokens - tokens
                    self.streaming += not emitted
                tokens, emitted = now_tokens, True
            with self.lock:
                self.deadlines.discard(deadline)
                self.found.ended += 1
        if not tokens and not self.stopped:
            raise LoadError(
                f"{self.loop.server.url}{PATH} streamed an answer without usage or without a token: a vLLM server "
                "counts them in every chunk."
            )
        return emitted

    def count(self) -> None:
        """Begin to count anew."""
        with self.lock:
            self.found, self.since = Counted(), time.monotonic()

    def counted(self) -> Counted:
        """What was counted so far."""
        with self.lock:
            self.found.seconds = time.monotonic() - self.since
            found, self.found = self.found, Counted()
        return found

    def check(self) -> None:
        """Raises what ended a stream."""
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Close every connection: a server ends a request whose reader has gone."""
        self.stopped = True
        with self.lock:
            held = list(self.deadlines)
        for each in held:
            each.end()


def _tokens(line: bytes) -> int | None:
    """How many output tokens there are by now, of a line of server-sent events; None for any other line."""
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
        return None
    try:
        told = json.loads(line[5:])
        if "error" in told:
            raise ServerError(f"The server ended an answer: {str(told['error'])[:300]}")
        tokens = (told.get("usage") or {}).get("completion_tokens")
    except (ValueError, RecursionError, AttributeError, TypeError):
        return None
    return tokens if isinstance(tokens, int) and 0 <= tokens < 1 << 31 else None
