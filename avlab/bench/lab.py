"""An engine to measure, with endless held-out traffic. Imported only by the process that measures."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from avlab.bench.base import Context, NotMeasured
from avlab.bench.rounds import Block
from avlab.config import RunConfig
from avlab.engine.build import Built, build
from avlab.engine.drafters.base import Drafter
from avlab.engine.engine import StepReport
from avlab.engine.request import Request
from avlab.policies.arm import Arm
from avlab.policies.fixed import NONE
from avlab.speculation.regression import Coefficients
from avlab.speculation.sampling import MODELS_OWN, Sampling
from avlab.workers.building import build_settings
from avlab.workers.intake import request_seed
from avlab.workloads import Moment, open_workload

Prompt = tuple[list[int], str]  # tokens, kind
MOST_PASSED_OVER = 1000  # prompts in a row that are too long
WASHOUT = 4  # steps after a switch of policy that are not counted
_built: dict[RunConfig, Built] = {}  # at most one, kept for the next measure that this process takes


def ran_on() -> tuple[str, str]:
    """Device and dtype of the engine that this process built."""
    for built in _built.values():
        return str(built.engine.target.device), built.dtype
    return "cpu", "none"


def _build(context: Context, own_costs: bool) -> Built:
    """An engine as good as new."""
    config, shared = context.config, Path(context.costs)
    if config not in _built or own_costs:
        _built.clear()
        known = config.changed(costs=str(shared)) if shared.is_file() and config.costs is None else config
        built = _built[config] = build(build_settings(config if own_costs else known), context.progress)
        if known is config and config.costs is None and not own_costs:
            built.costs.save(shared)
    engine = _built[config].engine
    for request in [*engine.queue, *(s.request for s in engine.sequences)]:
        engine.cancel(request.id)
    engine.policies.clear()
    engine.set_policy(NONE)
    return _built[config]


class Lab:
    """An engine under a closed loop. sampling: of requests that come from now on."""

    def __init__(self, context: Context, own_costs: bool = False):
        """own_costs: time steps here, as a worker does at its start, and not in a process before."""
        self.built, self.config = _build(context, own_costs), context.config
        self.engine, self.text = self.built.engine, self.built.text
        self.sampling, self.concurrency = self.config.sampling, 0
        self.max_new_tokens = self.config.max_new_tokens
        self.prompts: Iterator[Prompt] = self.workload(self.config.workload)
        self.count = 0

    def need_drafter(self) -> Drafter:
        """The engine's drafter. Raises NotMeasured where it serves without drafts."""
        if self.engine.drafter is None:
            raise NotMeasured("there is no drafter for this target: give one with --drafter FOLDER.")
        return self.engine.drafter

    def workload(self, name: str, longest: int = 1 << 30) -> Iterator[Prompt]:
        """Held-out prompts of a workload without end, encoded; those of more tokens than `longest` are left out."""
        stream = open_workload(name, seed=self.config.seed).stream
        room = self.engine.target.length - self.engine.K - (self.config.max_new_tokens or 0)
        passed_over = 0
        while passed_over < MOST_PASSED_OVER:
            prompt = stream.take(Moment(0.0))
            tokens = self.text.encode(prompt.messages)
            if len(tokens) < min(room, longest + 1):
                passed_over = 0
                yield tokens, prompt.kind
            else:
                passed_over += 1
        raise NotMeasured(f"no prompt of {name} is short enough for this target's context.")

    def clear(self) -> None:
        """Cancel every request."""
        for request in [*self.engine.queue, *(s.request for s in self.engine.sequences)]:
            self.engine.cancel(request.id)

    def fill(self) -> float:
        """Hand over requests up to the concurrency; seconds that the engine took to accept them."""
        missing = self.concurrency - self.engine.running - self.engine.waiting
        taken = [next(self.prompts) for _ in range(missing)]
        began = time.perf_counter()
        for tokens, kind in taken:
            self.engine.add(
                Request(
                    id=self.count,
                    tokens=tokens,
                    max_new_tokens=self.max_new_tokens or 1024,
                    **self.sampling._asdict(),
                    seed=request_seed(self.config.seed, self.count),
                    kind=kind,
                )
            )
            self.count += 1
        return time.perf_counter() - began

    def step(self) -> tuple[StepReport, float]:
        """One step of the closed loop, and its seconds; finding prompts is not counted."""
        seconds = self.fill()
        began = time.perf_counter()
        report = self.engine.step()
        return report, seconds + time.perf_counter() - began

    def begin(self, concurrency: int, arm: str = "none", sampling: Sampling | None = None) -> None:
        """Start a closed loop afresh and serve until every prompt is in the cache. sampling: else as configured."""
        self.clear()
        self.concurrency, self.sampling = concurrency, sampling or self.config.sampling
        self.engine.set_policy(Arm.parse(arm))
        self.step()
        while any(not s.decoding for s in self.engine.sequences):
            self.step()

    def serve(
        self, arm: str, seconds: float, round: int = 0, washout: int = WASHOUT, least_steps: int = 3
    ) -> Block:
        """A block: the policy is switched, a few steps go by, then `seconds` are counted."""
        self.engine.set_policy(Arm.parse(arm))
        for _ in range(washout):
            self.step()
        tokens, spent, steps = 0, 0.0, 0
        while spent < seconds or steps < least_steps:
            report, took = self.step()
            tokens, spent, steps = tokens + report.tokens, spent + took, steps + 1
        return Block(arm, round, tokens, spent, steps)

    def learn(self, steps: int, progress: Callable[[float, float], None]) -> None:
        """Serve under adaptive verification so that its estimator learns."""
        self.engine.set_policy(Arm.parse("adaptive"))
        for done in range(steps):
            self.step()
            progress(done + 1, steps)

    def learnt(self) -> Coefficients:
        """What the estimator of adaptive verification has learnt so far."""
        estimator = self.engine.policies["adaptive"].estimator
        assert estimator is not None and estimator.coefficients is not None
        return estimator.coefficients

    def questions(self, count: int, progress: Callable[[float, float], None]) -> Iterator[Prompt]:
        """Chat that the target makes up: its own user turns, written after the template's user header."""
        header, limit = self.user_header(), 120
        wanted: list[Prompt] = []
        if not header:
            raise NotMeasured(
                "this target has no chat template that opens a user's turn: it has no chat of its own."
            )
        usual, limit_before, self.max_new_tokens = self.prompts, self.max_new_tokens, limit
        self.sampling = MODELS_OWN
        self.engine.set_policy(NONE)
        self.clear()
        self.concurrency, tries = min(32, self.config.max_num_seqs), 0
        end = self.engine.target.config.end_tokens
        while len(wanted) < count and tries < 40 * count:
            self.prompts = iter([(list(header), "chat")] * self.concurrency)
            report, _ = self.step()
            for finished in report.finished:
                tries += 1
                asked = finished.sequence.tokens[len(header) :]
                if asked and asked[-1] in end and len(asked) > 4:
                    content = self.text.decode(asked[:-1]).strip()
                    wanted.append((self.text.encode([{"role": "user", "content": content}]), "own chat"))
            progress(len(wanted), count)
        self.clear()
        self.prompts, self.max_new_tokens = usual, limit_before
        if not wanted:
            raise NotMeasured("this target asked no question that ended: it has no chat of its own.")
        return _again(wanted)

    def user_header(self) -> list[int]:
        """The tokens of a conversation up to where the user's words begin."""
        mark = "\x1a"
        text = self.text.prompt([{"role": "user", "content": mark}]).partition(mark)[0]
        return self.text.tokenizer.encode(text, add_special_tokens=not self.text.has_template).ids


def _again(prompts: list[Prompt]) -> Iterator[Prompt]:
    while True:
        yield from prompts
