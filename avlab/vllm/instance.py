"""One vLLM from its start to its end: an `AsyncLLM` on an event loop in a thread of its own.

What happens there is left in two queues, in its order, for the one thread that drives it: iterations as vLLM's
statistics tell them, and records of the worker extension, read once a second. vllm is imported by `start`.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import importlib
import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from avlab.engine.request import Finished
from avlab.engine.request import Sequence as Served
from avlab.vllm import VllmError
from avlab.vllm.drained import NO_STEPS
from avlab.vllm.serve_line import ServeLine

SWITCH = "avlab.vllm.extension.Switch"
DRAIN_SECONDS = 1.0
ANSWER_SECONDS = 60.0  # for a worker to answer, behind the step that it is in
STOP_SECONDS = 10.0  # for its last answer
HUB = "huggingface.co"
PARSERS = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args")  # 0.33, 0.32
REFUSED = "vLLM does not take the command"
DIED = "vLLM's engine died: the last lines of the log say why."
INVALID = re.compile(r"\d+ validation errors? for ")  # pydantic's first line; what is wrong stands below it
REASONS = {
    "length": "length",
    "stop": "end",
    "repetition": "end",
}  # why a request finished, in the lab's word


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


class Instance:
    """A vLLM. Its methods are called from one thread, but for those that are coroutines.

    iterations: as they come, and None where a request has ended, which vLLM may tell behind the last of them. records:
    of the extension, each step in one of them. ended: requests, by themselves. clock: seconds, of the run.
    """

    def __init__(self, line: ServeLine, clock: Callable[[], float]):
        self.line, self.clock = line, clock
        self.iterations: queue.Queue[Iteration | None] = queue.Queue()
        self.records: collections.deque[dict[str, Any]] = collections.deque()
        self.ended: collections.deque[Finished] = collections.deque()
        self.about: dict[str, Any] = {"missing": [], "steps": False, "switch": False}
        self.begun: dict[str, Any] = {}  # the record as it was at the start
        self.failure = ""
        self._llm: Any = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._drainer: asyncio.Task[None] | None = None
        self._cursors = (-1, -1)  # the last step and the last refit that were read
        self._draining = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)

    # ---- life --------------------------------------------------------------------------------------------------

    def start(self, waiting: Callable[[], None], often: float) -> None:
        """Start vLLM; takes seconds to many minutes. waiting: called every `often` seconds meanwhile. Raises
        EngineError.
        """
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        while not started.done():
            waiting()
            concurrent.futures.wait([started], timeout=often)
            if not self._thread.is_alive():  # something within vLLM has left the process
                raise EngineError("vLLM ended while it started: the last lines of the log say why.")
        try:
            started.result()
        except Exception as error:
            raise EngineError(start_sentence(error, self.line.model)) from None

    def close(self) -> None:
        """End vLLM and what it started."""
        if self._llm is not None:
            with contextlib.suppress(EngineError):
                self._ask(self._stop(), ANSWER_SECONDS)
            self._llm = None  # its own finaliser would look for processes that are gone
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            if not self._thread.is_alive():
                self._loop.close()

    def look(self) -> None:
        """Raises EngineError where vLLM has died; also where no request would hear of it."""
        if not self.failure and self._llm is not None and self._llm.errored:
            self.failure = DIED
        if self.failure:
            raise EngineError(self.failure)

    async def _start(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
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

        arguments = _arguments(self.line)
        arguments.worker_extension_cls = SWITCH
        arguments.disable_log_stats = False
        self._llm = llm = AsyncLLM.from_engine_args(
            AsyncEngineArgs.from_cli_args(arguments),
            usage_context=UsageContext.OPENAI_API_SERVER,  # whose defaults are those of `vllm serve`
            stat_loggers=[Statistics],
        )
        self.tokenizer = llm.get_tokenizer()
        self.vllm_config = llm.vllm_config
        about = (await self._call("avlab_begin"))[0]
        self.about = about | {"offset": about["clock"] - time.monotonic()}
        if self.about["steps"]:
            self.begun = (await self._call("avlab_drain", NO_STEPS, -1))[0]
            refits = [each[0] for each in self.begun["refits_made"]]
            self._cursors = (int(self.begun["next"]) - 1, max(refits, default=-1))
            self._drainer = self._loop.create_task(self._keep_draining())

    async def _stop(self) -> None:
        for task in [*self._tasks.values(), *([self._drainer] if self._drainer else [])]:
            task.cancel()
        await asyncio.sleep(0)
        self._llm.shutdown()

    # ---- what it is asked --------------------------------------------------------------------------------------

    def serve(self, served: Served, room: int) -> None:
        """Begin to serve a request, of at most `room` tokens with its prompt."""
        self._loop.call_soon_threadsafe(self._begin_serving, served, room)

    def cancel(self, request_id: int) -> None:
        """Stop serving a request, if it is still served."""
        if self._llm is not None:
            self._loop.call_soon_threadsafe(self._end_serving, request_id)

    def drain(self, seconds: float = ANSWER_SECONDS) -> int:
        """Read the worker's record; `records` has it then. Returns the worker's number of the next step."""
        return int(self._ask(self._drain(), seconds)["next"])

    def hold(self, verify: int) -> int:
        """Hold verification at a length from the worker's next step on; returns its number. Raises EngineError."""
        answer = self._ask(self._call("avlab_policy", verify), ANSWER_SECONDS)[0]
        if isinstance(answer, str):
            raise EngineError(answer)
        return int(answer)

    def _ask(self, question: Any, seconds: float) -> Any:
        """An answer from the event loop. Raises EngineError."""
        if self._llm is None:
            question.close()
            raise EngineError("vLLM has ended.")
        future = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise EngineError(f"vLLM's worker did not answer within {seconds:g} s.") from None
        except Exception as error:
            raise EngineError(f"vLLM's worker could not answer ({first_line(error)}).") from None

    # ---- on the event loop -------------------------------------------------------------------------------------

    def _note(self, scheduler: Any, iteration: Any) -> None:
        """An iteration's statistics have come."""
        drafts = getattr(scheduler, "spec_decoding_stats", None)
        self.iterations.put(
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

    def _begin_serving(self, served: Served, room: int) -> None:
        task = self._loop.create_task(self._serve(served, room))
        self._tasks[served.request.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(served.request.id, None))

    def _end_serving(self, request_id: int) -> None:
        if task := self._tasks.get(request_id):
            task.cancel()

    async def _serve(self, served: Served, room: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        request = served.request
        sampling = SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
            max_tokens=min(request.max_new_tokens, room - len(request.tokens)),
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        reason = "cancelled"
        try:
            prompt = {"prompt_token_ids": request.tokens}
            async for output in self._llm.generate(prompt, sampling, f"avlab-{request.id}"):
                new, now = list(output.outputs[0].token_ids), self.clock()
                if new:
                    served.first_token_at, served.last_token_at = served.first_token_at or now, now
                    served.tokens += new
                    served.steps += 1
                    served.drafts_accepted += len(new) - 1
                if output.finished:
                    reason = REASONS.get(str(output.outputs[0].finish_reason), "cancelled")
        except asyncio.CancelledError:
            return
        except EngineDeadError:
            self.failure = self.failure or DIED
            return
        except Exception as error:  # vLLM's own refusal of a request
            self.failure = self.failure or f"vLLM ended a request ({first_line(error)})."
            return
        self.ended.append(Finished(served, reason))
        self.iterations.put(None)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """What every worker answers. vLLM itself would wait for ever where its engine has died."""
        return await asyncio.wait_for(self._llm.collective_rpc(method, args=arguments), ANSWER_SECONDS)

    async def _drain(self) -> dict[str, Any]:
        """The worker's record since the last one; one reader at a time, so that no step is in two of them."""
        async with self._draining:
            found = (await self._call("avlab_drain", *self._cursors))[0]
            self.failure = self.failure or found.get("failure", "")
            steps, refits = self._cursors
            if found["steps"]:
                steps = found["steps"][-1][0]
            if found["refits_made"]:
                refits = found["refits_made"][-1][0]
            if (steps, refits) != self._cursors:  # else nothing is new in it
                self._cursors = steps, refits
                self.records.append(found)
            return found

    async def _keep_draining(self) -> None:
        while True:
            await asyncio.sleep(DRAIN_SECONDS)
            try:
                await self._drain()
            except asyncio.CancelledError:
                raise
            except TimeoutError:  # one long step, or a compilation: `look` sees whether it lives
                continue
            except Exception as error:
                self.failure = (
                    self.failure or f"vLLM's worker does not answer any more ({first_line(error)})."
                )
                return


def _arguments(line: ServeLine) -> Any:
    """A command's arguments as vLLM's own parser reads them. Raises EngineError with what it says."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        def error(self, message: str) -> Any:
            raise EngineError(f"{REFUSED}: {message}.")

    for place in PARSERS:
        with contextlib.suppress(ImportError):
            parser = importlib.import_module(place).make_arg_parser(Parser())
            try:
                arguments = parser.parse_args(line.words()[3:])
            except SystemExit:  # --help and the like, which would end the loop's thread too
                raise EngineError(f"{REFUSED}: it asks for something else than to serve.") from None
            arguments.model = line.model
            return arguments
    raise EngineError("This vLLM keeps its argument parser somewhere else: the lab knows 0.32 and 0.33.")


def first_line(error: BaseException | str) -> str:
    """What an error says, in a line: of pydantic's messages the fault that they wrap."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    if not INVALID.match(lines[0]) or len(lines) < 2:
        return lines[0]
    wrapped = next((line for line in lines if line.startswith("Value error, ")), "")
    said = wrapped.removeprefix("Value error, ") or ": ".join(lines[1:3])
    return said.partition(" [type=")[0]


def start_sentence(error: BaseException, model: str) -> str:
    """Why vLLM did not start, in a sentence."""
    if isinstance(error, EngineError):
        return str(error)
    text = f"vLLM did not start: {first_line(error)}"
    return f"{text} {model} is no folder here, and no preset of avlab vllm presets." if HUB in text else text
