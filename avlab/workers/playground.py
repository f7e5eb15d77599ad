"""The playground's generation: one prompt served alone, step by step or straight through, while the workload waits."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from avlab.engine.request import Finished, Request, RequestError
from avlab.engine.served import InProcessEngine, Texts
from avlab.engine.solo import Solo
from avlab.policies.arm import Arm
from avlab.wire import commands, frames
from avlab.workers.slots import Pieces, Stream, tokens_frame

if TYPE_CHECKING:  # importing these imports torch
    from avlab.engine.drafts import Drafts
    from avlab.engine.report import StepReport
    from avlab.engine.sampler import LogitRows

PATIENCE = 30.0  # seconds without a word from the page, after which a generation is ended
ROLES = ("system", "user", "assistant")


@runtime_checkable
class PlaygroundText(Texts, Pieces, Protocol):
    """Texts token by token."""

    def stream(self) -> Stream:
        """A decoder for one request."""
        ...


class Generation:
    """A generation in service, from the command to its end. Raises RequestError or PolicyError where it cannot be.

    put: takes a frame. number: how many there were before in this run. arm: the one in force.
    """

    def __init__(
        self,
        command: commands.Generate,
        engine: InProcessEngine,
        text: PlaygroundText,
        put: Callable[[frames.Frame], None],
        number: int,
        arm: Arm,
    ):
        check_messages(command.messages)
        if not 0 <= command.seed < 2**63:
            raise RequestError(f"The seed {command.seed} does not exist: give 0 or more, below 2^63.")
        self.prompt = "\n".join(message["content"] for message in command.messages)
        self.request = Request(
            id=-1 - number,
            tokens=text.encode(command.messages),
            max_new_tokens=command.max_tokens,
            temperature=command.temperature,
            top_k=command.top_k,
            top_p=command.top_p,
            seed=command.seed,
            kind=frames.PLAYGROUND,
            arrival=engine.clock(),
        )
        arm = Arm.parse(command.arm) if command.arm else arm
        self._solo = Solo(engine, self.request, arm, self._show)
        self._text, self._put, self._stream = text, put, text.stream()
        self._due: float = 1 if command.step_by_step else float("inf")
        self._heard = time.monotonic()
        self.finished: Finished | None = None
        self.reason = ""  # why it was ended before its time

    def obey(self, command: commands.Command) -> bool:
        """Take a command that concerns the generation; whether it was one."""
        match command:
            case commands.Advance(to_the_end):
                self._due = float("inf") if to_the_end else self._due + 1
            case commands.Leave():
                self.reason = "left"
            case commands.Attend():
                pass
            case _:
                return False
        self._heard = time.monotonic()
        return True

    @property
    def over(self) -> bool:
        if time.monotonic() - self._heard > PATIENCE:
            self.reason = "forgotten"
        return self.finished is not None or bool(self.reason)

    @property
    def waits(self) -> bool:
        """For the reader to ask for another step."""
        return self._due <= 0

    def step(self) -> "StepReport":
        """One step of the engine; its report. A step that only read some of the prompt counts for nothing."""
        report = self._solo.step()
        self.finished = report.finished[0] if report.finished else None
        return report

    def _show(self, report: "StepReport", drafts: "Drafts | None", rows: "LogitRows") -> None:
        if report.emitted:
            self._due -= 1
            self._put(tokens_frame(report, drafts, rows, self.request, self._text, self._stream))

    def close(self) -> Finished | None:
        """Bring the workload back; how the generation ended, None if it was cut short before it began."""
        cut_short = self._solo.close()
        return self.finished or cut_short


def check_messages(messages: list[dict]) -> None:
    """Raises RequestError unless these are turns of a conversation, the last one the user's, with words in it."""
    for message in messages:
        if set(message) != {"role", "content"} or not isinstance(message["content"], str):
            raise RequestError('A message must have a "role" and a "content" that is text, and nothing else.')
        if message["role"] not in ROLES:
            raise RequestError(f"There is no role {message['role']!r}: use {', '.join(ROLES)}.")
    if not messages or not messages[-1]["content"].strip():
        raise RequestError("The prompt is empty: type something first.")
    if messages[-1]["role"] != "user":
        raise RequestError("The last message must be the user's.")
