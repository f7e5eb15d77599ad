"""An A/B replayed: arms at one load, compared block by block on the same texts, with what it takes to know more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from avlab.experiments.plan import baseline_of
from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_intervals import Precision, Ratio, precision, ratio
from avlab.formats import counted


@dataclass(frozen=True, slots=True)
class Seen:
    """What one arm did."""

    arm: str
    tokens_per_s: float
    tokens_per_s_per_user: float
    tokens_per_step: float


@dataclass(frozen=True, slots=True)
class AB:
    """Arms at one load. ratios: of all but the baseline, over it. needed: what it takes to know each, in their
    order; None where one block says nothing of it."""

    load: int
    baseline: str
    arms: list[Seen]
    ratios: list[Ratio]
    needed: list[Precision | None]

    def sentences(self, emulation: str) -> list[str]:
        """A verdict an arm, and how many repeats its half-width takes."""
        return [
            f"{_verdict(each)} ({emulation}). {_effort(needed)}".strip()
            for each, needed in zip(self.ratios, self.needed, strict=True)
        ]


def compared(cells: Sequence[Cell], baseline: str | None = None, half_width: float = 0.01) -> AB:
    """The cells of one load, over a baseline. Raises PolicyError for a baseline that is not among them."""
    chosen = baseline_of([cell.arm for cell in cells], baseline)
    base = next(cell for cell in cells if cell.arm == chosen)
    others = [cell for cell in cells if cell.arm != chosen]
    return AB(
        load=base.load,
        baseline=chosen,
        arms=[Seen(c.arm, c.tokens_per_s, c.tokens_per_s_per_user, c.tokens_per_step) for c in cells],
        ratios=[ratio(cell, base) for cell in others],
        needed=[precision(cell, base, half_width) for cell in others],
    )


def _verdict(each: Ratio) -> str:
    percent = f"{100 * abs(each.ratio - 1):.1f} %"
    if each.low is None or each.high is None:
        return f"{each.arm} over {each.over}: {each.ratio:.3f}, without an interval"
    ends = f"[{100 * (each.low - 1):+.1f}, {100 * (each.high - 1):+.1f}]"
    if not each.separated:
        seen = f"{100 * (each.ratio - 1):+.1f} % {ends}"
        return f"{each.arm} and {each.over} are equal as far as this replay can tell: {seen}"
    return f"{each.arm} is {percent} {'faster' if each.ratio > 1 else 'slower'} than {each.over}: {ends}"


def _effort(needed: Precision | None) -> str:
    if needed is None:
        return "An interval needs two repeats or more."
    goal = f"± {100 * needed.half_width:g} %"
    if needed.repeats is None:
        return f"No number of repeats reaches {goal}: that takes a trace of about {counted(needed.texts, 'text')}."
    return f"{counted(needed.repeats, 'repeat')} are enough for {goal}."
