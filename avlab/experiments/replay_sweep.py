"""Sweeps over a recorded trace: every arm under every load, on one machine or several, of one trace or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from avlab.experiments.replay_cells import REPEATS, Cell, serve
from avlab.experiments.replay_intervals import Ratio, over_best_fixed, rate
from avlab.experiments.replay_pool import Pool
from avlab.machines import Machine, machine
from avlab.policies.arm import DEFAULT_ARM, Arm, labels, unlabelled
from avlab.replay.doubts import doubts, drawn_again
from avlab.replay.emulation import emulation
from avlab.replay.trace import Trace, TraceError
from avlab.replay.traces import trace_named

ARMS = (
    "none", "fixed:1", "fixed:2", "fixed:3", "fixed:4", "fixed:5", "fixed:7",
    DEFAULT_ARM, "adaptive", "adaptive+depth", "adaptive:head", "adaptive:head+depth", "adaptive:raw",
)  # fmt: skip
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Progress = Callable[[int, int], None]
Number = str | int | float | None


@dataclass(frozen=True, slots=True)
class Case:
    """What is replayed, by names or paths: a trace and a machine; the seed and how many blocks a cell has."""

    trace: str
    machine: str
    seed: int = 0
    repeats: int = REPEATS

    def opened(self) -> tuple[Trace, Machine]:
        """Trace and machine. Raises TraceError, MachineError."""
        recorded = trace_named(self.trace)
        emulated = machine(self.machine, recorded.about.K)
        emulated.require_depth(recorded.about.K)
        return recorded, emulated

    @property
    def emulation(self) -> str:
        """The badge: whose costs, whose text. Raises as `opened`."""
        recorded, emulated = self.opened()
        return emulation(emulated.about, recorded.about)

    def doubts(self, cells: Sequence[Cell] = ()) -> list[str]:
        """What a reader should know before believing these cells. Raises as `opened`."""
        recorded, emulated = self.opened()
        found, most = doubts(emulated, recorded.about), max(cells, key=lambda cell: cell.load, default=None)
        short = drawn_again(most.load, most.texts, most.of) if most else ""
        return [*found, short] if short else found

    def wanted(self, arms: Sequence[str], loads: Sequence[int]) -> list[tuple[str, int]]:
        """The cells of these arms, as labels, and loads, load by load.

        Raises PolicyError for an arm that the trace cannot serve, TraceError for a load that the machine cannot.
        """
        recorded, emulated = self.opened()
        names, most = labels(arms, recorded.about.K), emulated.about.most_requests
        for name in names:
            Arm.parse(unlabelled(name), recorded.about.K).require_features(recorded.about.features)
        for load in loads:
            if not 1 <= load <= most:
                raise TraceError(f"{emulated.about.title}: serves 1 to {most} requests at once, not {load}.")
        return [(name, load) for load in dict.fromkeys(loads) for name in names]


def sweep(
    case: Case,
    arms: Sequence[str] = ARMS,
    loads: Sequence[int] = LOADS,
    processes: int = 1,
    progress: Progress = lambda done, total: None,
) -> list[Cell]:
    """All cells, load by load; the same ones however many processes serve them. Raises as `Case.wanted` does."""
    wanted, found = case.wanted(arms, loads), dict[tuple[str, int], Cell]()
    if processes == 1:
        recorded, emulated = case.opened()
        for arm, load in wanted:
            found[arm, load] = serve(recorded, emulated, arm, load, case.seed, case.repeats)
            progress(len(found), len(wanted))
    else:
        with Pool(case.trace, case.machine, case.seed, wanted, (case.repeats,), processes) as pool:
            while not pool.wait(0.2):
                progress(len(pool.cells), len(wanted))
            found = pool.finished()
    return [found[each] for each in wanted]


def rows(case: Case, cells: Sequence[Cell]) -> list[dict[str, Number]]:
    """A sweep as a table, a row a cell, with what it holds for."""
    ratios: dict[tuple[str, int], Ratio] = {(each.arm, each.load): each for each in over_best_fixed(cells)}
    found: list[dict[str, Number]] = []
    for cell in cells:
        low, high = rate(cell)
        compared = ratios.get((cell.arm, cell.load))
        found.append(
            {
                "trace": case.trace,
                "machine": case.machine,
                "arm": cell.arm,
                "requests": cell.load,
                "tokens_per_s": cell.tokens_per_s,
                "tokens_per_s_low": low,
                "tokens_per_s_high": high,
                "tokens_per_s_per_user": cell.tokens_per_s_per_user,
                "tokens_per_step": cell.tokens_per_step,
                "admitted": cell.admitted,
                "depth": cell.depth,
                "best_fixed": compared.over if compared else None,
                "over_best_fixed": compared.ratio if compared else None,
                "over_best_fixed_low": compared.low if compared else None,
                "over_best_fixed_high": compared.high if compared else None,
                "repeats": len(cell.blocks),
                "texts_a_repeat": cell.texts,
                "seed": case.seed,
                "emulated": case.emulation,
            }
        )
    return found
