"""`avlab ab`: an A/B from the command line, with its verdict while it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from avlab.commands import terminal, terminal_ab
from avlab.commands.emulated import Emulation
from avlab.commands.following import Interrupts, began, end, follow, opened
from avlab.commands.options import Settings, plain_settings, with_settings
from avlab.config import ConfigError
from avlab.errors import is_ours
from avlab.experiments.answers import Objective
from avlab.experiments.plan import ARMS, DECIDED, DEFAULT_WASHOUT, ENGINE_BLOCK, Served, make_plan, notes
from avlab.experiments.slo import SLO_MEASURES, SloError, parse_slo
from avlab.experiments.values import to_values

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How arms are compared: the options of an A/B beside the settings of its run."""

    arms: Annotated[str, "policies to compare; one named twice is compared with itself"] = ",".join(ARMS)
    baseline: Annotated[
        str | None, "the arm that ratios are against; else the first fixed length, else none"
    ] = None
    concurrency: Annotated[int, "requests under way"] = 16
    rounds: Annotated[int, "rounds; each has every arm once, in random order"] = 30
    design: Annotated[
        str, "switchback (the same requests run on) or isolated (every block begins afresh)"
    ] = "switchback"
    block: Annotated[
        str | None,
        f"length of a counted block, as 40steps or 2s; else 40steps, isolated 80steps, an engine each {ENGINE_BLOCK}",
    ] = None
    washout: Annotated[
        int | None,
        f"steps after each switch that are not counted; else {DEFAULT_WASHOUT}, and as many as --learn where each "
        "block starts an engine in which an adaptive arm must learn",
    ] = None
    learn: Annotated[int, "steps that an adaptive arm serves before the first round"] = 200
    order_seed: Annotated[
        int | None, "seed of the order of arms, to repeat an A/B; else drawn afresh, and kept with the plan"
    ] = None
    slo: Annotated[
        str | None, f"the best arm within a limit in ms: {', '.join(SLO_MEASURES)}, as p95_tpot_ms=80"
    ] = None


@dataclass(frozen=True, kw_only=True)
class OwnComparison(Comparison, Emulation):
    """The options of an A/B by the real engine or, with --machine and its like, of a replay."""


def _ab(asked: OwnComparison, settings: Settings, as_json: bool) -> None:
    compare(asked.configured(plain_settings(settings), policy="none"), asked, as_json)


ab = with_settings(
    OwnComparison,
    _ab,
    "Compare policies in alternating blocks of one run. You may look, and stop, whenever you like.",
    DECIDED,
)


def compare(config: Served, asked: Comparison, as_json: bool) -> None:
    """Run the A/B that the options ask for, and say what came of it."""
    slo = objective(asked.slo)
    config, plan = make_plan(
        config,
        asked.arms.split(","),
        baseline=asked.baseline,
        concurrency=asked.concurrency,
        rounds=asked.rounds,
        design=asked.design,
        block=asked.block,
        washout=asked.washout,
        learn=asked.learn,
        order_seed=asked.order_seed,
    )
    with Interrupts() as interrupts, opened(config, plan) as served:
        with terminal_ab.ABDisplay(plan, Watch(lambda: served.ab(slo))) as display:
            for note in notes(plan):
                display.say(note)
            progress = follow(served, display, interrupts)
        status = progress["status"]
        if began(served, progress) and (status["outcome"] != "failed" or progress["tally"]["steps"]):
            answer = served.ab(slo)
            terminal.print_json(to_values(answer)) if as_json else terminal_ab.show(answer)
        end(status, interrupts)


def objective(text: str | None) -> Objective | None:
    """What --slo says. Raises ConfigError."""
    try:
        return parse_slo(text) if text else None
    except SloError as error:
        raise ConfigError([str(error)]) from None


class Watch(Generic[T]):
    """An experiment as it stands, asked anew now and then; None before it has begun.

    Asking takes time from the worker, and more the longer the experiment is: it takes a fiftieth of all time at most.
    """

    SECONDS, PART = 2.0, 50

    def __init__(self, ask: Callable[[], T], clock: Callable[[], float] = time.monotonic):
        self._ask, self._clock, self._next = ask, clock, 0.0
        self._answer: T | None = None

    def __call__(self) -> T | None:
        began = self._clock()
        if began >= self._next:
            try:
                self._answer = self._ask()
            except Exception as error:
                if not is_ours(error):
                    raise
            now = self._clock()
            self._next = now + max(self.SECONDS, self.PART * (now - began))
        return self._answer
