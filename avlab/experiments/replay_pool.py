"""Cells replayed in processes of their own: progress, cells as they come, cancelled at once.

Each cell is one process's from its first block to its last, and no cell knows another, so the result does not depend
on how many processes there are.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from avlab.experiments.replay_cells import Cell, block_of
from avlab.lines import LineChild, Said
from avlab.policies.arm import arm_of

CHILD = "avlab.experiments.replay_process"


class ReplayFailed(RuntimeError):
    """A replay that ended early. The message is one sentence."""


class Pool:
    """Serves cells of one trace, machine and seed in the background; `cells` holds what stands by now.

    wanted: (arm, load) by cell. passes: blocks that each cell is served in turn, so that (2, 8) gives all cells with
    two blocks first and then with ten.
    """

    def __init__(
        self,
        trace: str,
        machine: str,
        seed: int,
        wanted: Sequence[tuple[str, int]],
        passes: Sequence[int],
        processes: int,
    ):
        self.cells: dict[tuple[str, int], Cell] = {}
        self.served, self.due = 0, len(passes) * len(wanted)  # cells times passes
        self.error = ""
        self._lock, self._over = threading.Lock(), threading.Event()
        order = {"trace": trace, "machine": machine, "seed": seed, "passes": list(passes)}
        shares = [share for share in shared(wanted, processes) if share]
        self._running = len(shares)
        if not shares:
            self._over.set()
        self._children = [
            LineChild(CHILD, order | {"cells": share}, "A replay's process", self._heard, self._ended)
            for share in shares
        ]

    def wait(self, seconds: float | None = None) -> bool:
        """Whether everything is served, or has failed, within so many seconds."""
        return self._over.wait(seconds)

    def finished(self) -> dict[tuple[str, int], Cell]:
        """All cells, once `wait` is over. Raises ReplayFailed."""
        if self.error:
            raise ReplayFailed(self.error)
        return self.cells

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        if not self._over.is_set():
            self.error = self.error or "The replay was stopped."
        for child in self._children:
            child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _heard(self, child: LineChild, said: Said) -> None:
        """A cell as it stands now."""
        blocks = tuple(block_of(sums) for sums in said["blocks"])
        with self._lock:
            self.cells[said["arm"], said["load"]] = Cell(
                said["arm"], said["load"], said["texts"], said["of"], blocks
            )
            self.served += 1

    def _ended(self, error: str) -> None:
        """One process is done; error: why it could not go on, or ""."""
        with self._lock:
            self.error = self.error or error
            self._running -= 1
            if not self._running or error:
                self._over.set()


def shared(wanted: Sequence[tuple[str, int]], processes: int) -> list[list[tuple[str, int]]]:
    """Cells dealt to processes, about as much work each: the heaviest first, to whoever has least."""
    loads, shares = [0.0] * processes, [list[tuple[str, int]]() for _ in range(processes)]
    for cell in sorted(wanted, key=_work, reverse=True):
        least = loads.index(min(loads))
        shares[least].append(cell)
        loads[least] += _work(cell)
    return [sorted(share, key=list(wanted).index) for share in shares]


def _work(cell: tuple[str, int]) -> float:
    """Seconds that a cell takes, about: measured once, and only for sharing."""
    arm, load = cell
    steps = 12_000 / load if load < 4 else 2_700
    return steps * ((0.2 + 0.0015 * load) if arm_of(arm).adaptive else (0.05 + 0.0002 * load))
