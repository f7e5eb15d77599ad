"""vLLM behind the same methods as the reference engine, so that one serving loop drives both.

`AsyncLLM` runs on an event loop in a thread of its own; requests are coroutines there. A step here is an iteration of
vLLM's engine, as its statistics tell. With the worker extension, what happened in it is read a second later from
vLLM's own worker (`extension`, `drained`); without, from the statistics.

vllm is imported when an engine is opened, and not before.
"""

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from avlab.engine.request import Finished, Request, RequestError, check
from avlab.engine.request import Sequence as Served
from avlab.policies import Arm, PolicyError
from avlab.vllm import PACKAGE, NotInstalled, VllmError
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.serving_config import VllmConfig

SWITCH = "avlab.vllm.extension.Switch"
DRAIN_SECONDS = 1.0
VLLMS_RULE = -1  # a length that is not held: `extension.UNTRIMMED`, which a test compares
MOMENT = 0.25  # seconds that a step waits for an iteration, so that commands are heard
ANSWER_SECONDS = 60.0  # for a worker to answer, behind the step that it is in
HUB = "huggingface.co"
PARSERS = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args")  # 0.33, 0.32


class EngineError(VllmError):
    """vLLM could not be started, or has died. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What vLLM's statistics tell of one iteration. by position: drafts scheduled and accepted."""

    time: float
    running: int
    waiting: int
    emitting: int
    tokens: int
    prompt_tokens: int
    scheduled: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()


@dataclass(slots=True)
class Report:
    """A step: the iteration, what was read from the worker meanwhile, and requests that ended.

    iteration: None where only requests ended, behind the last iteration.
    """

    iteration: Iteration | None
    drains: list[dict[str, Any]] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.iteration.tokens if self.iteration else 0


@dataclass(frozen=True, slots=True)
class VllmPolicy:
    """An arm in force; vLLM keeps the one estimator there is, whatever the arm."""

    arm: Arm


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
        self.about: dict[str, Any] = {"missing": [], "steps": False, "switch": False}
        self.pending: list[dict[str, Any]] = []  # drains that no report has taken yet
        self.last: Iteration | None = None
        self.opened = 0  # engines so far
        self.first_step = 0  # the run's step with which the present engine began
        self._base = 0  # and its worker's number of that step
        self._cursors = (-1, -1)
        self._events: queue.Queue[Iteration | dict[str, Any]] = queue.Queue()
        self._finished: list[Finished] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._failure = ""
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._llm: Any = None
        self._waiting: Callable[[bool], None] = lambda ready: None
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)

    # ---- life --------------------------------------------------------------------------------------------------

    def open(self, waiting: Callable[[bool], None] | None = None) -> None:
        """Start vLLM; takes seconds to many minutes. waiting: called several times a second, and with True when it is
        ready; also whenever a policy needs another engine.
        """
        if importlib.util.find_spec(PACKAGE) is None:
            raise NotInstalled("a run that vLLM serves")
        self._waiting = waiting or self._waiting
        _look_for_folders(self.line)
        self._thread.start()
        self._start(self.config.line_of(self.policy.arm) if self.config.engines else self.line)
        self.set_policy(self.config.arm)

    def _start(self, line: ServeLine) -> None:
        started = asyncio.run_coroutine_threadsafe(self._open(line), self._loop)
        while not started.done():
            self._waiting(False)
            concurrent.futures.wait([started], timeout=MOMENT)
        try:
            started.result()
        except SystemExit:
            raise EngineError(
                "vLLM does not take the command: what it says stands in the log above."
            ) from None
        except Exception as error:
            raise EngineError(_start_sentence(error, line.model)) from None
        self.opened += 1
        self._waiting(True)

    def close(self) -> None:
        """End vLLM and what it started."""
        if self._llm is not None:
            with contextlib.suppress(Exception):
                self._ask(self._stop(), ANSWER_SECONDS)
            self._llm = None  # its own finaliser would look for processes that are gone
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)

    async def _open(self, line: ServeLine) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.metrics.loggers import StatLoggerBase

        note = self._note

        class Statistics(StatLoggerBase):
            """Hands every iteration's statistics over."""

            def __init__(self, vllm_config: Any, engine_index: int = 0):
                pass

            def record(self, scheduler_stats=None, iteration_stats=None, *_: Any, **__: Any) -> None:
                if iteration_stats is not None:
                    note(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                pass

        arguments = _arguments(line)
        arguments.worker_extension_cls = SWITCH
        arguments.disable_log_stats = False
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(arguments), stat_loggers=[Statistics])
        self._llm = llm
        self.tokenizer = llm.get_tokenizer()
        self.vllm_config = llm.vllm_config
        self.about = (await llm.collective_rpc("avlab_begin"))[0]
        if self.about["steps"]:
            self.begun = await self._drain(-1, -1)
            self._base = int(self.begun["next"])  # the engine's own warm-up is no part of the run
            self._cursors = (self._base - 1, max([each[0] for each in self.begun["refits_made"]], default=-1))
            self._drainer = self._loop.create_task(self._keep_draining())

    async def _stop(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if drainer := getattr(self, "_drainer", None):
            drainer.cancel()
        await asyncio.sleep(0)
        self._llm.shutdown()

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
        return int(self.vllm_config.model_config.max_model_len)

    def set_policy(self, arm: Arm) -> None:
        """Verify under this arm from the next step on. Raises PolicyError for what this engine cannot do, and
        EngineError where the arm needs another engine and that does not start.
        """
        policy = self.policy_for(arm)
        if self.about["steps"]:
            self.pending.append(self._ask(self._drain(*self._cursors)))
            self.step_number = self._run_step(self.pending[-1]["next"])
        if policy != self.policy:
            if self.config.engines:
                self._restart(arm)
            else:
                verify = arm.k if arm.kind == "verify" else VLLMS_RULE
                self.step_number = self._run_step(self._ask(self._call("avlab_policy", verify))[0])
        self.policy = policy

    def policy_for(self, arm: Arm) -> VllmPolicy:
        """The policy of an arm. Raises PolicyError for what cannot be served."""
        if arm != self.policy.arm:
            self._check(arm)
        return self.policies.setdefault(str(arm), VllmPolicy(arm))

    def _run_step(self, number: int) -> int:
        """A worker's step as the run counts."""
        return int(number) - self._base + self.first_step

    def _restart(self, arm: Arm) -> None:
        """Another engine for an arm; requests of the one before are cancelled."""
        self._ask(self._stop(), ANSWER_SECONDS)
        self._llm = None
        self._finished += [Finished(each, "cancelled") for each in self.sequences]
        while not self._events.empty():
            self._events.get_nowait()
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
        if arm.kind != "verify" and arm != self.config.own_arm:
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
        check(request, int(self.vllm_config.model_config.get_vocab_size()), self.room)
        served = Served(request, -1, list(request.tokens), earlier=np.zeros(0))
        served.admitted_at = self.clock()
        self.sequences.append(served)
        self._loop.call_soon_threadsafe(self._begin_serving, served)

    def cancel(self, request_id: int) -> Finished | None:
        """Take a request out."""
        served = next((each for each in self.sequences if each.request.id == request_id), None)
        if served is None:
            return None
        self._loop.call_soon_threadsafe(self._end_serving, request_id)
        with self._lock:
            ended = [each for each in self._finished if each.sequence is served]
            self._finished = [each for each in self._finished if each.sequence is not served]
        self.sequences.remove(served)
        return ended[0] if ended else Finished(served, "cancelled")

    # ---- the step ----------------------------------------------------------------------------------------------

    def step(self) -> Report | None:
        """The next iteration, or what ended without one; None where neither came in a moment. Raises EngineError where
        vLLM has died.

        vLLM tells an iteration before the requests that ended in it hear of their end, and there may be no other.
        """
        end = time.monotonic() + MOMENT
        while True:
            if self._failure:
                raise EngineError(self._failure)
            try:
                event = self._events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                finished = self._take_finished()
                return Report(None, self.take_drains(), finished) if finished else None
            if isinstance(event, Iteration):
                break
            self.pending.append(event)
        self.step_number += 1
        self.last = event
        return Report(event, self.take_drains(), self._take_finished())

    def take_drains(self) -> list[dict[str, Any]]:
        """What was read from the worker and not taken yet."""
        found, self.pending = self.pending, []
        return found

    def drain(self) -> None:
        """Read the worker's record now; `take_drains` has it then."""
        if self.about["steps"] and self._llm is not None and not self._failure:
            with contextlib.suppress(EngineError):
                self.pending.append(self._ask(self._drain(*self._cursors)))

    def _take_finished(self) -> list[Finished]:
        with self._lock:
            found, self._finished = self._finished, []
        for each in found:
            self.sequences.remove(each.sequence)
        return found

    # ---- on the event loop -------------------------------------------------------------------------------------

    def _note(self, scheduler: Any, iteration: Any) -> None:
        """An iteration's statistics have come."""
        drafts = getattr(scheduler, "spec_decoding_stats", None)
        self._events.put(
            Iteration(
                time=self.clock(),
                running=int(getattr(scheduler, "num_running_reqs", 0)),
                waiting=int(getattr(scheduler, "num_waiting_reqs", 0)),
                emitting=len(iteration.inter_token_latencies_iter) + len(iteration.time_to_first_tokens_iter),
                tokens=int(iteration.num_generation_tokens),
                prompt_tokens=int(iteration.num_prompt_tokens),
                scheduled=tuple(getattr(drafts, "num_draft_tokens_per_pos", ())),
                accepted=tuple(getattr(drafts, "num_accepted_tokens_per_pos", ())),
            )
        )

    def _begin_serving(self, served: Served) -> None:
        task = self._loop.create_task(self._serve(served))
        self._tasks[served.request.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(served.request.id, None))

    def _end_serving(self, request_id: int) -> None:
        if task := self._tasks.get(request_id):
            task.cancel()

    async def _serve(self, served: Served) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        request = served.request
        sampling = SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
            max_tokens=min(request.max_new_tokens, self.room - len(request.tokens)),
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        reason = "cancelled"
        try:
            prompt = {"prompt_token_ids": request.tokens}
            async for output in self._llm.generate(prompt, sampling, f"avlab-{request.id}"):
                new, now = list(output.outputs[0].token_ids), self.clock()
                if new:
                    served.tokens += new
                    served.steps += 1
                    served.drafts_accepted += len(new) - 1
                    served.first_token_at, served.last_token_at = served.first_token_at or now, now
                if output.finished:
                    reason = "length" if output.outputs[0].finish_reason == "length" else "end"
        except asyncio.CancelledError:
            return
        except EngineDeadError:
            self._failure = self._failure or "vLLM's engine died: the last lines of the log say why."
            return
        except Exception as error:  # vLLM's own refusal of a request
            self._failure = self._failure or f"vLLM ended a request ({_line(error)})."
            return
        with self._lock:
            self._finished.append(Finished(served, reason))

    async def _call(self, method: str, *arguments: Any) -> Any:
        return await self._llm.collective_rpc(method, args=arguments)

    async def _drain(self, after: int, refits_after: int) -> dict[str, Any]:
        found = (await self._call("avlab_drain", after, refits_after))[0]
        if found["steps"]:
            self._cursors = (found["steps"][-1][0], self._cursors[1])
        if found["refits_made"]:
            self._cursors = (self._cursors[0], found["refits_made"][-1][0])
        return found

    async def _keep_draining(self) -> None:
        while True:
            await asyncio.sleep(DRAIN_SECONDS)
            try:
                self._events.put(await self._drain(*self._cursors))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._failure = self._failure or f"vLLM's worker does not answer any more ({_line(error)})."
                return

    def _ask(self, question: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """An answer from the event loop. Raises EngineError."""
        future = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise EngineError(f"vLLM's worker did not answer within {seconds:g} s.") from None
        except Exception as error:
            raise EngineError(f"vLLM's worker could not answer ({_line(error)}).") from None


def _arguments(line: ServeLine) -> Any:
    """A command's arguments as vLLM's own parser reads them. Raises EngineError with what it says."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        def error(self, message: str) -> Any:
            raise EngineError(f"vLLM does not take the command: {message}.")

    for place in PARSERS:
        with contextlib.suppress(ImportError):
            parser = importlib.import_module(place).make_arg_parser(Parser())
            arguments = parser.parse_args(line.words()[3:])
            arguments.model = line.model
            return arguments
    raise EngineError("This vLLM keeps its argument parser somewhere else: the lab knows 0.32 and 0.33.")


def _line(error: BaseException) -> str:
    """An error's first line."""
    text = str(error).strip() or type(error).__name__
    return text.split("\n", 1)[0]


def _look_for_folders(line: ServeLine) -> None:
    """Raises EngineError for a model or drafter that is written as a path, and is not there."""
    for model in (line.model, str(line.speculative.get("model") or "")):
        if model.startswith(("/", "./", "../", "~")) and not Path(model).expanduser().exists():
            raise EngineError(f"There is no model in {model}: no such folder.")


def _start_sentence(error: BaseException, model: str) -> str:
    if isinstance(error, EngineError):
        return str(error)
    text = f"vLLM did not start: {_line(error)}"
    return f"{text} {model} is no folder here, and no preset of avlab vllm presets." if HUB in text else text


class VllmText:
    """Messages to tokens and back, by the tokenizer that vLLM loaded."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """A chat as the model's prompt; its contents after one another where the model has no chat template.

        Raises RequestError.
        """
        try:
            if getattr(self._tokenizer, "chat_template", None):
                text = self._tokenizer.apply_chat_template(
                    list(messages), add_generation_prompt=True, tokenize=False
                )
                return list(self._tokenizer.encode(text, add_special_tokens=False))
            return list(self._tokenizer.encode("\n".join(each["content"] for each in messages)))
        except Exception as error:  # a template's own, of any kind
            raise RequestError(
                f"The prompt cannot be put into the model's chat template ({_line(error)})."
            ) from None

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text, special ones left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))
