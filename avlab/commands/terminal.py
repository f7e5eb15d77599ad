"""What the command line shows: progress on standard error, summaries on standard output."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from avlab import formats
from avlab.config import arrival_shown
from avlab.diagnosis import exploration, stuck_slope
from avlab.escaping import visible
from avlab.formats import number
from avlab.wire.frames import HEADLINE

WHOLE_ID, SHORT_ID, WIDE = 36, 8, 110  # characters of a run's id; of a terminal with room for whole ones
MOST_ENGINES = 8  # with a rate of their own in a line of progress
PLAIN_SECONDS, PLAIN_WIDTH = (
    30.0,
    119,
)  # between two lines of progress, and of one, where there is no terminal
BAR, AROUND_BAR = 24, 14  # characters of the bar; of spinner, elapsed time and the spaces between


class _Plain(Console):
    """A console to which every text is text: no markup, no emoji codes, and nothing that the terminal would obey."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False, width: int | None = None):
        super().__init__(
            stderr=stderr, soft_wrap=soft_wrap, width=width, highlight=False, markup=False, emoji=False
        )

    def render_str(self, text: str, **options: Any) -> Text:
        """Of every string: printed, or in the cell of a table."""
        return super().render_str(visible(text), **options)


def errors() -> Console:
    """Standard error, where everything goes that is not the answer."""
    return _Plain(stderr=True, soft_wrap=True)


def answers() -> Console:
    """Standard output; wide enough for its tables when it is a file or a pipe."""
    console = _Plain()
    return console if console.is_terminal else _Plain(width=120)


@contextmanager
def bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error, as a function of (what, done, total); total 0 is "unknown"."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    console = errors()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda what, done, total: progress.update(
            task, description=visible(what), completed=done, total=total or None
        )


class RunDisplay:
    """Progress of a run: the preparation's bar, then rates, acceptance by position and coefficients."""

    def __init__(self, limits: dict[str, float | None]):
        """limits: duration (s), tokens and requests, None where there is none."""
        self._limits = limits
        self._console = errors()
        self._plain = not self._console.is_terminal
        self._said = 0.0
        self._last = ""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=BAR),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("starting", total=None)

    def __enter__(self) -> "RunDisplay":
        if not self._plain:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._plain:
            self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text)

    def show(self, tally: dict[str, Any]) -> None:
        """The numbers now (`Tally.snapshot`)."""
        parts, done, total = self._line(tally)
        if not self._plain:
            width = self._console.width - BAR - AROUND_BAR
            self._progress.update(self._task, description=fitting(parts, width), completed=done, total=total)
            return
        text = fitting(parts, PLAIN_WIDTH)
        if time.monotonic() - self._said >= PLAIN_SECONDS and text != self._last:
            self._said, self._last = time.monotonic(), text
            self.say(text)

    def _line(self, tally: dict[str, Any]) -> tuple[list[str], float, float | None]:
        """What is said, most important first; how much is done, and of how much (None: nobody knows)."""
        state = tally["state"]
        if not tally["steps"]:
            match = re.fullmatch(r"(.+) (\d+)/(\d+)", state)
            return ([match[1]], float(match[2]), float(match[3])) if match else ([state], 0.0, None)
        emulated = " emulated" if tally["emulated"] else ""
        parts = [f"{tally['policy']}: {number(tally['recent_tokens_per_s'], 0)} tokens/s{emulated}"]
        parts.append(f"{number(tally['tokens_per_step'], 2)} a step")
        parts.append(f"{tally['running']} running")
        known = [f"{rate:.2f}" for rate in tally["conditional_acceptance"] if rate is not None]
        if known:
            parts.append("accepted " + " ".join(known))
        if tally["slope"] is not None:
            betas = " ".join(f"{beta:.2f}" for beta in tally["intercepts"])
            parts.append(f"slope {tally['slope']:.2f}, intercepts {betas}, refits {tally['refits']}")
        engines = tally["engines"]
        if 1 < len(engines) <= MOST_ENGINES:
            parts.append("; ".join(f"{name}: {number(rate, 0)}" for name, rate in sorted(engines.items())))
        reached = {"duration": tally["seconds"], "tokens": tally["tokens"], "requests": tally["requests"]}
        limits = [(reached[name] / limit, name) for name, limit in self._limits.items() if limit]
        share = max(limits, default=(0.0, ""))[0]
        parts[0] = ("" if state == "serving" else f"{state}; ") + parts[0]
        return parts, min(share, 1.0), 1.0 if limits else None


def fitting(parts: list[str], width: int) -> str:
    """As many of the parts, from the first on, as stand in one line of a terminal so wide."""
    parts = [" ".join(visible(part).split()) for part in parts]
    for count in range(len(parts), 1, -1):
        text = ", ".join(parts[:count]) + (" …" if count < len(parts) else "")
        if len(text) <= width:
            return text
    return parts[0] if len(parts[0]) <= width else parts[0][: max(width - 1, 0)] + "…"


def show_summary(summary: dict[str, Any]) -> None:
    """A run's summary as tables on standard output."""
    console = answers()
    head = Table(show_header=False, box=None, pad_edge=False)
    reason = f" ({summary['reason']})" if summary.get("reason") not in (None, "done", "stopped") else ""
    refits = f", {summary['refits']} refits" if summary["refits"] is not None else ""
    intercepts = " ".join(f"{beta:.3f}" for beta in summary["intercepts"] or ()) or "–"
    together = ", all arms together" if summary["ab"] or summary["frontier"] else ""
    arrival = arrival_shown(summary["arrival"], summary["workload"])
    emulated = ", emulated" if summary["emulated"] else ""
    for name, value in (
        ("run", f"{summary['run_id']}, {summary['state']}{reason}"),
        ("policy", f"{summary['policy']}{together}, on {summary['workload']}, {arrival}"),
        ("models", f"{summary['target']}, drafter {summary['drafter'] or 'none'}, K = {summary['K']}"),
        *([("emulated", summary["emulated"].removeprefix("emulated: "))] if emulated else []),
        ("throughput", f"{number(summary['tokens_per_s'], 1)} tokens/s{emulated}"),
        ("interactivity", f"{number(summary['tokens_per_s_per_user'], 1)} tokens/s for one user{emulated}"),
        ("tokens per step", number(summary["tokens_per_step"])),
        ("served", served(summary)),
        ("slope", f"{number(summary['slope'])}; intercepts {intercepts}{refits}"),
        (
            "estimates",
            measures(summary) + f", ECE of the raw maximum probability {number(summary['raw_ece'], 4)}",
        ),
    ):
        head.add_row(name, value)
    console.print(head)
    if summary["positions"]:
        console.print(positions_table(summary["positions"]))
    ledger = ", ".join(f"{name} {number(ms, 2)}" for name, ms in (summary["ledger_ms"] or {}).items())
    console.print(f"mean ms a step{emulated}: {ledger or '–'}")
    say_stuck(summary)
    if summary["exploration"]:
        said = exploration(summary["exploration"])
        console.print(formats.emulated(said, summary["emulated"]), soft_wrap=True)
    for event in summary["events"]:
        if event["level"] != "info":
            console.print(f"{event['level']}: {event['text']}")


def say_stuck(summary: dict[str, Any]) -> None:
    """What to do about a slope that is stuck, where it is."""
    if summary["dropped_slope_steps"]:
        answers().print(stuck_slope(summary["dropped_slope_steps"], summary["slope"]), soft_wrap=True)


def served(summary: dict[str, Any]) -> str:
    """What a run has served, the requests that it did not, and the steps that do not count as served."""
    text = (
        f"{summary['steps']:,} steps, {summary['tokens']:,} tokens, {summary['requests']:,} requests finished"
    )
    text += "".join(f", {summary[name]:,} {name}" for name in ("refused", "cancelled") if summary[name])
    beside: dict[str, list[int]] = {}
    for block in summary["blocks"]:
        if block["kind"] not in HEADLINE and block["steps"]:
            steps, tokens = beside.get(block["kind"], (0, 0))
            beside[block["kind"]] = [steps + block["steps"], tokens + block["tokens"]]
    for kind, (steps, tokens) in beside.items():
        text += f"; not counted: {steps:,} steps, {tokens:,} tokens of kind {kind}"
    return text


def measures(values: dict[str, Any]) -> str:
    return (
        f"ECE {number(values['ece'], 4)}, log-loss {number(values['log_loss'], 4)}, "
        f"Brier {number(values['brier'], 4)}, AUC {number(values['auc'], 4)}"
    )


def positions_table(positions: list[dict[str, Any]]) -> Table:
    """The four acceptance numbers and the calibration of every position."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    names = ("position", "scheduled", "admitted", "accepted", "labelled", "accepted\n/scheduled")
    for name in (*names, "accepted\n/admitted", "accepted\n/labelled", "ECE", "log-loss", "Brier", "AUC"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in positions:
        accepted = row["accepted"]
        table.add_row(
            str(row["position"]),
            *(number(row[name], 0) for name in ("scheduled", "admitted", "accepted", "labelled")),
            number(accepted / row["scheduled"] if row["scheduled"] else None),
            number(accepted / row["admitted"] if row["admitted"] else None),
            number(row["conditional_acceptance"]),
            *(number(row[name]) for name in ("ece", "log_loss", "brier", "auc")),
        )
    return table


def show_runs(runs: list[dict[str, Any]]) -> None:
    """All runs as a table on standard output; their ids whole, or as the ends that `show` takes where it is narrow."""
    if not runs:
        answers().print("There are no runs yet: `avlab run` makes one.")
        return
    console = answers()
    id_length = WHOLE_ID if console.width >= WIDE else SHORT_ID
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("run", "started", "state", "policy", "workload", "seconds", "steps", "tokens"):
        side: Literal["left", "right"] = "right" if name in ("seconds", "steps", "tokens") else "left"
        told = name in ("policy", "workload")  # what may be folded where the terminal is narrow; never the id
        least = id_length if name == "run" else None
        table.add_column(name, justify=side, no_wrap=not told, overflow="fold", min_width=least)
    for run in runs:
        begun = formats.moment(run["started"], "%Y-%m-%d %H:%M")
        state = f"{run['state']}, emulated" if run["emulated"] else run["state"]
        counts = (number(run[name], 0) for name in ("duration_s", "steps", "tokens"))
        table.add_row(run["run_id"][-id_length:], begun, state, run["policy"], run["workload"], *counts)
    console.print(table)


def fail(sentence: str) -> None:
    """A sentence (or several lines of them) on standard error."""
    print(visible(sentence), file=sys.stderr)


def print_json(value: Any) -> None:
    """One JSON object on standard output; a reader that has gone is nobody's fault."""
    try:
        print(json.dumps(value, indent=2, allow_nan=False), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
