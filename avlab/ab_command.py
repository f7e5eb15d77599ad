"""`avlab ab`: an A/B from the command line, with its verdict while it runs."""

import inspect
import time
from typing import Annotated, Any

import typer

from avlab import run_command, terminal, terminal_ab
from avlab.config import ConfigError, RunConfig
from avlab.errors import is_ours
from avlab.experiments.words import SLO_MEASURES, SloError, parse_slo

DECIDED = ("policy", "arrival", "duration", "tokens", "requests")  # settings that the plan decides
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
    "block": (str, None, "length of a counted block, as 40steps or 2s; else 40steps, isolated 80steps"),
    "washout": (int, 4, "steps after each switch that are not counted"),
    "learn": (int, 200, "steps that an adaptive arm serves before the first round"),
    "slo": (str, None, f"the best arm within a limit in ms: {', '.join(SLO_MEASURES)}, as p95_tpot_ms=80"),
}


def make() -> Any:
    """The command, for typer: its own options, then the settings of a run."""

    def command(**options: Any) -> None:
        as_json = options.pop("as_json")
        own = {name: options.pop(name) for name in OPTIONS}
        _ab(own, options, as_json)

    parameters = [
        run_command.parameter(name, Annotated[kind | None, _option(name, kind, text)], default)
        for name, (kind, default, text) in OPTIONS.items()
    ]
    parameters += run_command.setting_parameters(leave_out=DECIDED)
    parameters.append(run_command.parameter("as_json", Annotated[bool, run_command.JSON], False))
    command.__doc__ = (
        "Compare policies in alternating blocks of one run. You may look, and stop, whenever you like."
    )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _option(name: str, kind: type, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, metavar="NUMBER" if kind is int else "TEXT")


def _ab(own: dict[str, Any], settings: dict[str, Any], as_json: bool) -> None:
    from avlab.experiments.plan import make_plan

    try:
        slo = parse_slo(text) if (text := own.pop("slo")) else None
    except SloError as error:
        raise ConfigError([str(error)]) from None
    arms = own.pop("arms").split(",")
    config = RunConfig.make(run_command.plain_settings(settings), policy="none")
    config, plan = make_plan(config, arms, **own)
    with run_command.Interrupts() as interrupts, run_command.opened(config, plan) as served:
        with terminal_ab.ABDisplay(plan, _Watch(served, slo)) as display:
            progress = run_command.follow(served, display, interrupts)
        status = progress["status"]
        if status["outcome"] != "failed" or progress["tally"]["steps"]:
            answer = served.ab(slo)
            terminal.print_json(answer) if as_json else terminal_ab.show(answer)
        run_command.end(status, interrupts)


class _Watch:
    """The A/B as it stands, asked anew now and then; None before it has begun."""

    SECONDS = 2.0

    def __init__(self, served: Any, slo: tuple[str, float] | None):
        self._served, self._slo = served, slo
        self._asked, self._answer = 0.0, None

    def __call__(self) -> dict[str, Any] | None:
        if time.monotonic() - self._asked > self.SECONDS:
            try:
                self._answer = self._served.ab(self._slo)
            except Exception as error:
                if not is_ours(error):
                    raise
            self._asked = time.monotonic()
        return self._answer
