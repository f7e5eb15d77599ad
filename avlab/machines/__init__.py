"""Machines: tables of step costs with a name and a source, one TOML file each. A run on one of them is emulated.

A machine says what a step takes there: drafting by requests and depth, the target's pass by tokens (and by cached
tokens where that is known), and what a step takes besides. A new machine is one file in this folder; a reader's own
stand in the folder `machines` beside the lab's database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from avlab.installation import data_folder
from avlab.machines.description import Description, Fit, MachineError, read
from avlab.machines.notes import notes
from avlab.speculation.costs import CostTable, convex_table, depth_table, linear_table, medians

DEFAULT_MACHINE = "b300-deepseek-v4-flash-tp4"  # the one that is published in full
FOLDER = Path(__file__).parent
PROFILED = "profiled here"  # how far to trust what the reference engine has timed


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """What a step costs there, in milliseconds. Names and limits are in `about`; K: the longest draft.

    draft: [requests + 1, K + 1]. verify: [tokens + 1], without cached tokens. Sizes between captured ones cost what
    the next captured one does; beyond the largest captured size, and where nothing is captured, straight lines.
    decided: the table that policies decide by, without cached tokens. draft_cached_ms, verify_cached_ms: what a token
    in the caches of a step's requests adds.
    """

    name: str
    about: Description
    draft: np.ndarray
    verify: np.ndarray
    decided: CostTable
    notes: tuple[str, ...] = ()
    draft_cached_ms: float = 0.0
    verify_cached_ms: float = 0.0
    # the same tables as lists: a replay reads a number of each at every step
    _draft: list[list[float]] = field(init=False, repr=False)
    _verify: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_draft", self.draft.tolist())
        object.__setattr__(self, "_verify", self.verify.tolist())

    @property
    def knows_cached(self) -> bool:
        """Whether a step's cost depends on the tokens in its requests' caches."""
        return self.draft_cached_ms + self.verify_cached_ms > 0

    def require_depth(self, K: int) -> None:
        """Raises MachineError where drafts of K positions were not timed: what lies beyond would cost nothing."""
        draft = self.about.draft
        if isinstance(draft, Fit) or not draft.by_depth or not any(ms > 0 for *_, ms in draft.samples):
            return
        deepest = max(depth for _, depth, _ in draft.samples)
        if deepest < K:
            raise MachineError(
                f"{self.about.title}: drafts of up to {deepest} positions were timed, and the trace drafts {K}: take "
                f"a trace of at most {deepest}, or time deeper drafts."
            )

    def milliseconds(
        self, requests: int, depth: int, tokens: int, cached: int = 0, prefill: int = 0
    ) -> tuple[float, float, float]:
        """What a step takes: its draft, the target's pass, and the rest.

        tokens: of the pass, `prefill` prompt tokens among them. cached: tokens in its requests' caches.
        """
        draft = self._draft[requests][depth]
        verify = self._verify[tokens] if tokens < len(self._verify) else self._verify[-1]
        if prefill:
            verify = max(verify - self.about.prompt_saves_ms * prefill, 0.0)
        if cached:
            verify += self.verify_cached_ms * cached
            if depth:
                draft += self.draft_cached_ms * cached
        return draft, verify, self.about.step_ms + self.about.row_ms * (tokens - prefill)

    def table(self, cached: int = 0) -> CostTable:
        """The table that policies decide by there: as vLLM builds it, costs never falling as sizes grow; where the
        reference engine profiled the machine, as that does, the convex curve beneath the samples.

        cached: tokens in the caches of a step's requests.
        """
        if not cached or not self.knows_cached:
            return self.decided
        draft = self.decided.by_depth(self.draft.shape[1] - 1).copy()
        draft[:, 1:] += self.draft_cached_ms * cached
        return CostTable(draft, self.decided.verify + self.verify_cached_ms * cached)

    def executed(self, cached: int = 0) -> CostTable:
        """What steps take there, all of it, also where a larger pass costs less: what measuring them would tell.

        cached: tokens in the caches of a step's requests. Every token of a pass counts as a row that is sampled from;
        a prompt's are not, which shifts a step's cost, and no choice between its budgets.
        """
        draft = self.draft.copy()
        draft[:, 1:] += self.draft_cached_ms * cached
        besides = self.about.step_ms + self.about.row_ms * np.arange(len(self.verify))
        return CostTable(draft, self.verify + self.verify_cached_ms * cached + besides)


def own_folder() -> Path:
    """Where a reader's own machines are."""
    return data_folder() / "machines"


def known() -> list[str]:
    """The names of the machines that ship, and of the reader's own behind them."""
    own = {path.stem for path in own_folder().glob("*.toml")} - _shipped()
    return sorted(_shipped()) + sorted(own)


def path_of(name: str) -> Path:
    """The file of a machine that ships or is the reader's own, by its name; or the path of one. Raises MachineError."""
    if name in _shipped():
        return FOLDER / f"{name}.toml"
    if name in known():
        return own_folder() / f"{name}.toml"
    path = Path(name).expanduser()
    if path.suffix != ".toml":
        raise MachineError(
            f"There is no machine {name!r}; known are {', '.join(known())}, or the path of a TOML file."
        )
    return path


def machine(name: str, K: int) -> Machine:
    """A machine by its name, or by the path of a TOML file. K: the longest draft asked of it. Raises MachineError."""
    path = path_of(name)
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    return _machine(path, K, changed)


def _shipped() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.toml")}


@lru_cache(maxsize=16)
def _machine(path: Path, K: int, changed: int) -> Machine:
    """changed: when the file was, so that a new one is read."""
    about = read(path)
    draft, decided_draft = _draft_tables(about, K)
    if isinstance(about.verify, Fit):
        verify = about.verify.base_ms + about.verify.token_ms * np.arange(about.most_tokens + 1)
        decided_verify = verify
    else:
        samples = np.array(about.verify.samples, dtype=np.float64)
        verify = _executed(samples, about.most_tokens, about.captured)
        decided_verify = np.maximum.accumulate(verify)
        if about.trust == PROFILED:
            decided_verify = convex_table(samples, about.most_tokens)
    return Machine(
        name=path.stem,
        about=about,
        draft=draft,
        verify=verify,
        decided=CostTable(decided_draft, decided_verify),
        notes=tuple(notes(about, verify)),
        draft_cached_ms=about.draft.cached_ms if isinstance(about.draft, Fit) else 0.0,
        verify_cached_ms=about.verify.cached_ms,
    )


def _draft_tables(about: Description, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Drafts as they are executed and as policies decide by them, [requests + 1, K + 1] each."""
    R = about.most_requests
    if isinstance(about.draft, Fit):
        drafted = np.arange(R + 1)[:, None] * np.arange(K + 1)
        table = np.where(drafted > 0, about.draft.base_ms + about.draft.token_ms * drafted, 0.0)
        return table, np.maximum.accumulate(table, axis=0)
    if about.draft.by_depth:
        samples = [each for each in about.draft.samples if each[1]]
        table = depth_table(samples, R, K)
        if about.trust == PROFILED:
            return table, depth_table(samples, R, K, convex_table)
    else:
        one = linear_table([(requests, ms) for requests, _, ms in about.draft.samples], R)
        table = np.where(np.arange(K + 1) > 0, one[:, None], 0.0)
    return table, np.maximum.accumulate(table, axis=0)


def _executed(samples: np.ndarray, largest: int, captured: int) -> np.ndarray:
    """What a pass of 0..largest tokens takes where sizes are padded to the next sampled one up to `captured`."""
    sizes, costs = medians(samples)
    every = np.arange(largest + 1)
    table = np.interp(every, sizes, costs)
    padded = every <= captured
    table[padded] = costs[np.minimum(np.searchsorted(sizes, every[padded]), len(sizes) - 1)]
    beyond = sizes > captured
    if captured and beyond.any():
        table[~padded] = np.interp(every[~padded], sizes[beyond], costs[beyond])
    if largest > sizes[-1] and len(sizes) > 1:
        slope = max((costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2]), 0.0)
        far = every > sizes[-1]
        table[far] = costs[-1] + slope * (every[far] - sizes[-1])
    return table
