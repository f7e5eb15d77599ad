"""What the command line shows of an A/B: its rounds and verdict while it runs, tables at its end."""

from collections.abc import Callable
from typing import Any

from rich.table import Table

from avlab.commands.terminal import RunDisplay, answers
from avlab.experiments.answers import ABAnswer, ArmSeen, Comparison, FrontierAnswer
from avlab.experiments.progress import Pace
from avlab.experiments.words import LEDGER, block_length, errors_together, ratios_explained, rounds
from avlab.formats import DASH, number
from avlab.policies.arm import arm_of
from avlab.wire.commands import Experiment

USERS = {
    "tokens_per_s": "tokens/s",
    "interactivity": "tokens/s\none user",
    "p50_tpot_ms": "ms a token\np50",
    "p95_tpot_ms": "ms a token\np95",
    "p50_ttft_ms": "ms to first\np50",
}
LEARNING = " (adaptive arms learn first)"


def _learns(plan: Experiment) -> bool:
    """Whether arms serve before the first round."""
    return plan.learn > 0 and any(arm_of(arm).adaptive for arm in plan.arms)


class ABDisplay(RunDisplay):
    """Progress in rounds, and the verdict so far."""

    def __init__(self, plan: Experiment, ask: Callable[[], ABAnswer | None]):
        super().__init__({})
        self._plan, self._ask, self._pace = plan, ask, Pace()

    def _line(self, tally: dict[str, Any]) -> tuple[list[str], float, float | None]:
        if not tally["steps"]:
            return super()._line(tally)
        answer, planned = self._ask(), self._plan.rounds
        if answer is None or not answer.rounds:
            first = LEARNING if _learns(self._plan) else ""
            return [f"round 1 of {planned}{first}", tally["policy"]], 0.0, float(planned)
        done = answer.rounds
        said = " emulated" if answer.emulated else ""
        begun = f"{done} of {rounds(planned)}{self._pace(done, planned)}{said}"
        return [begun, *map(_standing, answer.results)], float(done), float(planned)


def _standing(result: Comparison) -> str:
    """An arm's ratio so far, with its interval once there is one."""
    if not result.rounds:
        return f"{result.arm} –"
    known = result.low is not None and result.high is not None
    interval = f" [{number(result.low)} to {number(result.high)}]" if known else ""
    return f"{result.arm} {number(result.ratio)}{interval}"


def show(answer: ABAnswer) -> None:
    """Verdict, ratios, what users saw, and the ledger, on standard output."""
    console, plan = answers(), answer.plan
    for sentence in answer.verdicts:
        console.print(sentence, soft_wrap=True)
    for reason in answer.why:
        console.print(reason.text, soft_wrap=True)
    table = _table("arm", "ratio", "watched 95 %", "planned 95 %", *USERS.values())
    results = {result.arm: result for result in answer.results}
    for arm, seen in answer.arms.items():
        users = (number(value, 1) for value in users_of(seen))
        table.add_row(arm, *_ratio(results.get(arm)), *users)
    console.print()
    _say_emulated(answer)
    console.print(table)
    ledger = _table("per 1,000 output tokens", *answer.arms)
    for name, title in LEDGER.items():
        values = (seen.ledger.line(name) if seen.ledger else None for seen in answer.arms.values())
        ledger.add_row(title, *(number(value, 0) for value in values))
    console.print()
    console.print(ledger)
    console.print(
        f"\n{plan.design}, {answer.rounds} of {rounds(plan.rounds)} of blocks of {block_length(plan)}, run "
        f"{answer.run_id}. {ratios_explained(answer)} {errors_together(answer)}".rstrip(),
        soft_wrap=True,
    )


def _say_emulated(answer: ABAnswer | FrontierAnswer) -> None:
    if answer.emulated:
        answers().print(f"Rates and times are {answer.emulated}.", soft_wrap=True)


def _ratio(result: Comparison | None) -> tuple[str, str, str]:
    if result is None:
        return "1", "baseline", ""
    if not result.rounds:
        return "–", "–", "–"
    return (
        number(result.ratio),
        _interval(result.low, result.high),
        _interval(result.fixed_low, result.fixed_high),
    )


def _interval(low: float | None, high: float | None) -> str:
    return "not yet" if low is None and high is None else f"{number(low)} to {number(high)}"


def users_of(seen: ArmSeen) -> list[float | None]:
    """The values of USERS."""
    times = [seen.p50_tpot_ms, seen.p95_tpot_ms, seen.p50_ttft_ms]
    return [seen.tokens_per_s, seen.interactivity, *times]


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


class FrontierDisplay(RunDisplay):
    """Progress in cells."""

    def __init__(self, plan: Experiment, ask: Callable[[], FrontierAnswer | None]):
        super().__init__({})
        self._cells, self._learns, self._ask = plan.rounds * len(plan.arms), _learns(plan), ask
        self._before: int | None = None
        self._pace = Pace()

    def _line(self, tally: dict[str, Any]) -> tuple[list[str], float, float | None]:
        answer = self._ask() if tally["steps"] else None
        if answer is None:
            return super()._line(tally)
        if self._before is None:
            self._before = answer.cells[0]
        done = answer.cells[0] - self._before
        rate = number(tally["recent_tokens_per_s"], 0)
        first = LEARNING if self._learns and not done else self._pace(done, self._cells)
        said = " emulated" if tally["emulated"] else ""
        text = f"{done} of {self._cells} cells{first}; {tally['policy']}: {rate} tokens/s{said}"
        return [text], done, self._cells


def show_frontier(answer: FrontierAnswer) -> None:
    """Every cell of a frontier, and who is on it, on standard output."""
    console = answers()
    if not answer.points:
        console.print("No cell has been measured.")
        return
    for sentence in answer.sentences:
        console.print(sentence, soft_wrap=True)
    table = _table(
        "arm", "requests", "tokens/s", "95 %", "tokens/s\none user", "95 % ", "ms a token\np95", "repeats", ""
    )
    for point in answer.points:
        table.add_row(
            point.arm,
            str(point.load),
            number(point.tokens_per_s, 1),
            _bar(point.tokens_per_s_low, point.tokens_per_s_high),
            number(point.interactivity, 1),
            _bar(point.interactivity_low, point.interactivity_high),
            number(point.p95_tpot_ms, 1),
            str(point.repeats),
            "" if point.dominated else "on the frontier",
        )
    console.print()
    _say_emulated(answer)
    console.print(table)


def _bar(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"{low:,.1f} to {high:,.1f}"
