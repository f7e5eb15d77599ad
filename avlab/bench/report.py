"""What the benchmark shows and writes: the table, the JSON object, the page, and progress on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from avlab.bench.base import Bar, Measure, Outcome, Table

BY_HAND = "<!-- What follows is written by hand; avlab bench keeps it. -->"


def lines(measures: list[Measure], outcomes: list[Outcome]) -> Iterator[tuple[Bar, float | None, str]]:
    """(bar, value, problem) of every line of the table."""
    for measure, outcome in zip(measures, outcomes, strict=True):
        for bar in measure.bars:
            yield bar, outcome.values.get(bar.name), outcome.problem


def plain(measures: list[Measure], outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Name to value, bar, unit; a value or bar that is not there is None."""
    return {
        bar.name: {"value": value, "bar": bar.bar, "unit": bar.unit}
        for bar, value, _ in lines(measures, outcomes)
    }


def cells(bar: Bar, value: float | None, problem: str) -> list[str]:
    """Measure, value, bar, unit, met, as text."""
    limit = "" if bar.bar is None else f"{'≤' if bar.sense == '<=' else '≥'} {significant(bar.bar)}"
    met = {True: "yes", False: "no", None: ""}[bar.met(value)]
    return [
        bar.title,
        problem or "not measured" if value is None else significant(value),
        limit,
        bar.unit,
        met,
    ]


def significant(value: Any) -> str:
    """Three or four digits; whole numbers whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value != value:
        return "–"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 1 else f"{value:.2f}".rstrip("0").rstrip(".")


HEAD = ("measure", "value", "bar", "unit", "met")


def show(measures: list[Measure], outcomes: list[Outcome]) -> None:
    """The table on standard output."""
    table = RichTable(*HEAD)
    for line in lines(measures, outcomes):
        *rest, met = (escape(cell) for cell in cells(*line))
        table.add_row(*rest, {"yes": "[green]yes", "no": "[red]no"}.get(met, met))
    Console().print(table)


def write(path: Path, measures: list[Measure], outcomes: list[Outcome], quick: bool) -> None:
    """The page: machine, table, details; what was written by hand behind its mark stays."""
    kept = ""
    if path.is_file():
        kept = path.read_text(encoding="utf-8").partition(BY_HAND)[2]
    text = page(measures, outcomes, quick) + f"\n{BY_HAND}\n" + (kept or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def page(measures: list[Measure], outcomes: list[Outcome], quick: bool) -> str:
    """The generated part of the page as Markdown."""
    form = "`avlab bench --quick`: short repeats, wide intervals" if quick else "`make bench`"
    parts = [
        "# Benchmarks",
        f"Made by {form}. Ratios are medians over interleaved rounds of one run; brackets are 90 % bootstrap "
        "intervals of the median. Conditions unless a line says otherwise: adaptive verification, temperature 0.6, "
        "top-p 0.95, 16 requests, K = 7, mixed held-out workload, up to 1,024 tokens a request, natural ends.",
        *machine_part(outcomes),
        "## Results",
        markdown(Table("", list(HEAD), [cells(*line) for line in lines(measures, outcomes)])),
        "## Details",
    ]
    for measure, outcome in zip(measures, outcomes, strict=True):
        parts.append(f"### {measure.about[0].upper()}{measure.about[1:]}")
        if outcome.problem:
            parts.append(f"{outcome.problem[0].upper()}{outcome.problem[1:]}.")
        for table in outcome.tables:
            parts += [f"**{table.title}**", markdown(table)]
        parts += outcome.notes
        if outcome.when:
            seconds, load = outcome.seconds, outcome.load
            parts.append(f"*{outcome.when}, {seconds:.0f} s, load average as it began {load:g}.*")
    return "\n\n".join(parts) + "\n"


def machine_part(outcomes: list[Outcome]) -> list[str]:
    """What the measures ran on; empty when none ran."""
    facts = [outcome.machine for outcome in outcomes if outcome.machine]
    if not facts:
        return []
    machine = next((each for each in facts if each.get("dtype") != "none"), facts[0])
    fast = ", ".join(machine.get("bfloat16", ())) or "none (bfloat16 would be emulated)"
    dates = [outcome.when for outcome in outcomes if outcome.when] or ["–"]
    rows: list[list[Any]] = [
        ["processor", machine.get("processor")],
        ["cores", f"{machine.get('cores')} physical, {machine.get('logical_cores')} logical"],
        ["bfloat16 in hardware", fast],
        ["memory", f"{machine.get('memory_gb')} GB"],
        ["device, dtype", f"{machine.get('device')}, {machine.get('dtype')}"],
        ["native operations", "yes" if machine.get("native") else f"no: {machine.get('not_native')}"],
        ["matrix products", machine.get("products", "unknown")],
        ["threads, spin count", f"{machine.get('threads')}, GOMP_SPINCOUNT={machine.get('spin')}"],
        ["versions", ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())],
        ["code", machine.get("code", "unknown")],
        ["system", machine.get("system")],
        ["measured", " to ".join(sorted({min(dates), max(dates)}))],
    ]
    return ["## Machine", markdown(Table("", ["what", "value"], rows))]


def markdown(table: Table) -> str:
    """A table as Markdown."""

    def row(values: list) -> str:
        return "| " + " | ".join(significant(value).replace("|", "\\|") for value in values) + " |"

    rule = "| " + " | ".join("---" for _ in table.columns) + " |"
    return "\n".join([row(table.columns), rule, *map(row, table.rows)])


class Bars:
    """Progress on standard error: measures, and the one at work."""

    def __init__(self, progress: Progress, total: int):
        self.progress = progress
        self.all = progress.add_task("benchmark", total=total)
        self.one = progress.add_task("", total=None, visible=False)

    def begin(self, about: str) -> None:
        self.progress.reset(self.one, total=None, description=escape(about), visible=True)

    def show(self, text: str, done: float, total: float) -> None:
        self.progress.update(self.one, description=escape(text), completed=done, total=total or None)

    def end(self, about: str, outcome: Outcome) -> None:
        said = outcome.problem or ("measured before" if outcome.cached else f"{outcome.seconds:.0f} s")
        self.progress.console.print(f"{escape(about)}: {escape(said)}")
        self.progress.update(self.one, visible=False)
        self.progress.advance(self.all)


@contextmanager
def progress_bars(total: int) -> Iterator[Bars]:
    """Progress bars that leave standard output alone."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        yield Bars(progress, total)
