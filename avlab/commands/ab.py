"""`avlab ab`: an A/B from the command line, with its verdict while it runs."""

import time
from collections.abc import Callable
from typing import Any

from avlab.commands import run as run_command
from avlab.commands import terminal, terminal_ab
from avlab.config import ConfigError, RunConfig
from avlab.errors import is_ours
from avlab.experiments.plan import DECIDED, DEFAULT_WASHOUT, ENGINE_BLOCK, Served, make_plan, notes
from avlab.experiments.words import SLO_MEASURES, SloError, parse_slo

OPTIONS: dict[str, tuple[Any, Any, str]] = {  # name: type, default, help
    "arms": (str, "adaptive,fixed:5,none", "policies to compare; one named twice is compared with itself"),
    "baseline": (str, None, "the arm that ratios are against; else the first fixed length, else none"),
    "concurrency": (int, 16, "requests under way"),
    "rounds": (int, 30, "rounds; each has every arm once, in random order"),
    "design": (
        str,
        "switchback",
        "switchback (the same requests run on) or isolated (every block begins afresh)",
    ),
    "block": (
        str,
        None,
        f"length of a counted block, as 40steps or 2s; else 40steps, isolated 80steps, an engine each {ENGINE_BLOCK}",
    ),
    "washout": (
        int,
        None,
        f"steps after each switch that are not counted; else {DEFAULT_WASHOUT}, and as many as --learn where each "
        "block starts an engine in which an adaptive arm must learn",
    ),
    "learn": (int, 200, "steps that an adaptive arm serves before the first round"),
    "order_seed": (
        int,
        None,
        "seed of the order of arms, to repeat an A/B; else drawn afresh, and kept with the plan",
    ),
    "slo": (str, None, f"the best arm within a limit in ms: {', '.join(SLO_MEASURES)}, as p95_tpot_ms=80"),
}


def make() -> Any:
    """The command, for typer: its own options, then the settings of a run."""
    text = "Compare policies in alternating blocks of one run. You may look, and stop, whenever you like."
    return run_command.with_settings(OPTIONS, DECIDED, _ab, text)


def _ab(own: dict[str, Any], settings: dict[str, Any], as_json: bool) -> None:
    compare(RunConfig.make(run_command.plain_settings(settings), policy="none"), own, as_json)


def compare(config: Served, own: dict[str, Any], as_json: bool) -> None:
    """Run the A/B that the options ask for, and say what came of it."""
    slo = objective(own.pop("slo"))
    arms = own.pop("arms").split(",")
    config, plan = make_plan(config, arms, **own)
    with run_command.Interrupts() as interrupts, run_command.opened(config, plan) as served:
        with terminal_ab.ABDisplay(plan, Watch(lambda: served.ab(slo))) as display:
            for note in notes(plan):
                display.say(note)
            progress = run_command.follow(served, display, interrupts)
        status = progress["status"]
        if run_command.began(served, progress) and (
            status["outcome"] != "failed" or progress["tally"]["steps"]
        ):
            answer = served.ab(slo)
            terminal.print_json(answer) if as_json else terminal_ab.show(answer)
        run_command.end(status, interrupts)


def objective(text: str | None) -> tuple[str, float] | None:
    """What --slo says. Raises ConfigError."""
    try:
        return parse_slo(text) if text else None
    except SloError as error:
        raise ConfigError([str(error)]) from None


class Watch:
    """An experiment as it stands, asked anew now and then; None before it has begun.

    Asking takes time from the worker, and more the longer the experiment is: it takes a fiftieth of all time at most.
    """

    SECONDS, PART = 2.0, 50

    def __init__(self, ask: Callable[[], dict[str, Any]], clock: Callable[[], float] = time.monotonic):
        self._ask, self._clock, self._next = ask, clock, 0.0
        self._answer: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any] | None:
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
