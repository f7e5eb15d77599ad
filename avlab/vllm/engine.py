"""vLLM behind the same methods as the reference engine, so that one serving loop drives both.

A step here is an iteration of vLLM's engine, as its statistics tell. With the worker extension, what happened in it is
read a second later from vLLM's own worker (`extension`, `drained`); without, from the statistics. Whatever runs within
vLLM, and on its event loop, is in `instance`.
"""

import importlib.util
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from avlab.engine.request import Finished, Request, RequestError, check
from avlab.engine.request import Sequence as Served
from avlab.policies.arm import Arm, PolicyError
from avlab.processes import end_children
from avlab.speculation.estimators.base import Estimator
from avlab.vllm import PACKAGE, NotInstalled, memory
from avlab.vllm.drained import NO_LENGTH
from avlab.vllm.instance import STOP_SECONDS, EngineError, Instance, Iteration, first_line
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.serving_config import VllmConfig, held_length

MOMENT = 0.25  # seconds that a step waits for an iteration, so that commands are heard


@dataclass(slots=True)
class Report:
    """A step: the iteration, what was read from the worker meanwhile, and requests that ended.

    iteration: None where only requests ended. counted: whether it is a step of the block under way; one that was made
    before the block began, and is only heard of now, is not.
    """

    iteration: Iteration | None
    drains: list[dict[str, Any]] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    counted: bool = True

    @property
    def tokens(self) -> int:
        return self.iteration.tokens if self.iteration else 0


@dataclass(frozen=True, slots=True)
class VllmPolicy:
    """An arm in force; vLLM keeps the one estimator there is, whatever the arm."""

    arm: Arm
    estimator: Estimator | None = None  # it is in vLLM's workers


class VllmEngine:
    """Serves requests with vLLM. Methods are called from one thread; `open` raises EngineError or NotInstalled."""

    uninterrupted = (
        "The playground and windows of full verification need the lab's own engine, and this run is served by vLLM; "
        "where verification is adaptive, the policy verify:K verifies everything."
    )

    def __init__(self, config: VllmConfig):
        self.config, self.line, self.K = config, config.line, config.K
        self.clock: Callable[[], float] = time.monotonic
        self.queue: tuple[()] = ()  # vLLM keeps its own
        self.sequences: list[Served] = []
        self.policies: dict[str, VllmPolicy] = {}
        self.policy = VllmPolicy(config.arm if config.engines else config.own_arm)
        self.step_number = 0
        self.instance = Instance(self.line, self._now)
        self.last: Iteration | None = None
        self.opened = 0  # instances so far
        self.first_step = 0  # the run's step with which the present one began
        self._stale = 0  # iterations to come that belong to steps before the block
        self._finished: list[Finished] = []  # not taken yet
        self._kept: list[dict[str, Any]] = []  # records of an instance that has ended, not taken yet
        self._memory: list[int] = []  # in use on each GPU before
        self._waiting: Callable[[bool], None] = lambda ready: None

    def _now(self) -> float:
        return self.clock()

    # ---- life --------------------------------------------------------------------------------------------------

    @property
    def about(self) -> dict[str, Any]:
        """What the present instance's worker says of itself."""
        return self.instance.about

    def open(self, waiting: Callable[[bool], None] | None = None) -> None:
        """Start vLLM; takes seconds to many minutes. waiting: called several times a second, and with True when it is
        ready; also whenever a policy needs another engine.
        """
        if importlib.util.find_spec(PACKAGE) is None:
            raise NotInstalled("a run that vLLM serves")
        self._waiting = waiting or self._waiting
        _look_for_folders(self.line)
        self._memory = memory.in_use()
        self._start(self.config.line_of(self.policy.arm) if self.config.engines else self.line)
        self.set_policy(self.config.arm)

    def _start(self, line: ServeLine) -> None:
        self.instance = Instance(line, self._now)
        self.instance.start(lambda: self._waiting(False), MOMENT)
        self.opened += 1
        self._stale = 0
        self._waiting(True)

    def close(self, seconds: float = memory.FREE_SECONDS, waiting: Callable[[], None] = lambda: None) -> int:
        """End vLLM and what it started, and wait for so long until a GPU's memory is free again; returns the megabytes
        that stay in use all the same, 0 where they are few. waiting: called meanwhile.
        """
        self.instance.close()
        end_children()
        return memory.wait_free(self._memory, seconds, waiting)

    # ---- between steps -----------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self.sequences)

    @property
    def waiting(self) -> int:
        return 0

    @property
    def room(self) -> int:
        """Tokens that a request may fill, prompt included."""
        return int(self.instance.vllm_config.model_config.max_model_len)

    def look(self) -> None:
        """Raises EngineError where vLLM has died, also while nothing runs."""
        self.instance.look()

    def set_policy(self, arm: Arm) -> None:
        """Verify under this arm from the next step on. Raises PolicyError for what this engine cannot do, and
        EngineError where the arm needs another engine and that does not start.
        """
        policy = self.policy_for(arm)
        if self.about["steps"]:
            self._begin_at(self.instance.drain())
        if policy != self.policy:
            if self.config.engines:
                self._restart(arm)
            else:
                length = held_length(arm)
                self._begin_at(self.instance.hold(NO_LENGTH if length is None else length))
        self.policy = policy

    def policy_for(self, arm: Arm) -> VllmPolicy:
        """The policy of an arm. Raises PolicyError for what cannot be served."""
        if arm != self.policy.arm:
            self._check(arm)
        return self.policies.setdefault(str(arm), VllmPolicy(arm))

    def adopt(self, policy: VllmPolicy) -> None:
        """Make this the policy of its arm."""
        self.policies[str(policy.arm)] = policy

    def forget(self, arm: Arm) -> None:
        """The next `policy_for` of this arm makes one anew."""
        self.policies.pop(str(arm), None)

    def _begin_at(self, number: int) -> None:
        """What follows begins at this step of the worker's; its iterations so far may not all have been heard of."""
        step = number - int(self.instance.begun["next"]) + self.first_step
        unheard = self.instance.iterations.qsize() + 2  # two at most are on their way
        self._stale = min(max(0, self._stale + step - self.step_number), unheard)
        self.step_number = step

    def _restart(self, arm: Arm) -> None:
        """Another engine for an arm; requests of the one before are cancelled."""
        self.close(waiting=lambda: self._waiting(False))  # of memory in use even then vLLM itself will say it
        self._collect()
        self._finished += [Finished(each, "cancelled") for each in self.sequences]
        self._kept = self.take_drains()
        self.first_step = self.step_number
        self._start(self.config.line_of(arm))

    def _check(self, arm: Arm) -> None:
        if self.config.engines:
            self.config.line_of(arm)  # raises PolicyError
            return
        if not self.config.adaptive:
            raise PolicyError(
                f"{arm} cannot be served by an engine that was started without adaptive verification: it stays at "
                f"{self.config.own_arm}."
            )
        if arm != self.config.own_arm and held_length(arm) is None:
            raise PolicyError(
                f"{arm} is not vLLM's: within one engine verification is adaptive or verify:k, and drafting stays at "
                f"{self.K}."
            )
        if not self.about["switch"] or not self.about["steps"]:
            raise PolicyError(
                f"{arm} cannot be served: {' '.join(self.about['missing']) or 'no switch is loaded.'}"
            )

    def add(self, request: Request) -> None:
        """Hand a request to vLLM. Raises RequestError if it can never be served."""
        vocabulary = int(self.instance.vllm_config.model_config.get_vocab_size())
        check(request, vocabulary, self.room)
        served = Served(request, -1, list(request.tokens), earlier=np.zeros(0))
        served.admitted_at = self.clock()
        self.sequences.append(served)
        self.instance.serve(served, self.room)

    def cancel(self, request_id: int) -> Finished | None:
        """Take a request out."""
        served = next((each for each in self.sequences if each.request.id == request_id), None)
        if served is None:
            return None
        self.instance.cancel(request_id)
        self._collect()
        self.sequences.remove(served)
        ended = (each for each in self._finished if each.sequence is served)
        return next(ended, Finished(served, "cancelled"))

    # ---- the step ----------------------------------------------------------------------------------------------

    def step(self) -> Report | None:
        """The next iteration, or what ended without one; None where neither came in a moment. Raises EngineError where
        vLLM has died.
        """
        if self.instance.failure:
            self.look()
        try:  # what another engine has left is told at once: nothing may come while it counts as served
            iteration = None if self._finished else self.instance.iterations.get(timeout=MOMENT)
        except queue.Empty:
            self.look()
            return None
        if iteration is None:
            finished = self._take_finished()
            return Report(None, [], finished, counted=False) if finished else None
        self.last = iteration
        counted = not self._stale
        self._stale = max(0, self._stale - 1)
        self.step_number += counted
        return Report(iteration, self.take_drains(), self._take_finished(), counted)

    def take_drains(self) -> list[dict[str, Any]]:
        """What was read from the worker and not taken yet."""
        found, self._kept = self._kept, []
        while self.instance.records:
            found.append(self.instance.records.popleft())
        return found

    def drain(self) -> None:
        """Read the worker's record now; `take_drains` has it then. Raises EngineError."""
        if self.about["steps"]:
            self.instance.drain(STOP_SECONDS)

    def _collect(self) -> None:
        while self.instance.ended:
            self._finished.append(self.instance.ended.popleft())

    def _take_finished(self) -> list[Finished]:
        """Requests that have ended, each once; not those that were cancelled meanwhile."""
        self._collect()
        taken = []
        for each in self._finished:
            if each.sequence in self.sequences:
                self.sequences.remove(each.sequence)
                taken.append(each)
        self._finished = []
        return taken


def _look_for_folders(line: ServeLine) -> None:
    """Raises EngineError for a model or drafter that is written as a path, and is not there."""
    for model in (line.model, str(line.speculative.get("model") or "")):
        if model.startswith(("/", "./", "../", "~")) and not Path(model).expanduser().exists():
            raise EngineError(f"There is no model in {model}: no such folder.")


class VllmText:
    """Messages to tokens and back, by the tokenizer that vLLM loaded."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def encode(
        self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any] | None = None
    ) -> list[int]:
        """A chat as the model's prompt; its contents after one another where the model has no chat template.

        Raises RequestError.
        """
        try:
            if getattr(self._tokenizer, "chat_template", None):
                text = self._tokenizer.apply_chat_template(
                    list(messages), add_generation_prompt=True, tokenize=False, **(given or {})
                )
                return list(self._tokenizer.encode(text, add_special_tokens=False))
            return list(self._tokenizer.encode("\n".join(each["content"] for each in messages)))
        except Exception as error:  # a template's own, of any kind
            raise RequestError(
                f"The prompt cannot be put into the model's chat template ({first_line(error)})."
            ) from None

    def reads(self, name: str) -> bool:
        """Whether the chat template speaks of what is given by this name."""
        return name in str(getattr(self._tokenizer, "chat_template", None) or "")

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text, special ones left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))
