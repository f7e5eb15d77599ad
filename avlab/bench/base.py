"""What a measure is: the bars it reports against, the function that takes it, and what that function returns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from avlab.config import RunConfig
from avlab.modules import import_all

Progress = Callable[[str, float, float], None]  # what is being done, done so far, total (0: unknown)
Choice = TypeVar("Choice")


class NotMeasured(Exception):
    """A measure that this machine cannot take as it is. The message is one sentence that says what to do."""


class BenchError(ValueError):
    """A benchmark asked for in a way that cannot be. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the table. sense: "<=" or ">=", how the value must stand to the bar; bar None: a fact."""

    name: str
    title: str
    unit: str
    bar: float | None = None
    sense: str = ">="

    def met(self, value: float | None) -> bool | None:
        """Whether a value meets the bar; None where there is no bar or no value."""
        if self.bar is None or value is None:
            return None
        return value <= self.bar if self.sense == "<=" else value >= self.bar


@dataclass(slots=True)
class Table:
    """Details of a measure, for the page that is written."""

    title: str
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """values: by the name of a bar; None where it could not be taken. notes: sentences."""

    values: Mapping[str, float | None]
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Context:
    """What a measure is given. folder: where it may keep files; costs: a cost table shared by all measures; key: names
    all that its figures depend on.
    """

    config: RunConfig
    quick: bool
    folder: Path
    costs: Path
    key: str = ""
    progress: Progress = lambda text, done, total: None

    def pick(self, quick: Choice, full: Choice) -> Choice:
        """The setting for this form of the benchmark."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Measure:
    """Something to measure. name: unique. bars: every line it adds to the table, known before it runs.

    alone: whether it needs a fresh process also in the quick form, where others share one.
    """

    name: str
    about: str
    bars: tuple[Bar, ...]
    run: Callable[[Context], Result]
    order: int = 100  # place in the table
    alone: bool = False


@dataclass(slots=True)
class Outcome:
    """A measure that was taken, or why not: what is cached, shown and written."""

    measure: str
    key: str = ""
    values: dict[str, float | None] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""  # a sentence; values are then missing
    failed: bool = False  # the problem is an error, not something that is merely absent here
    seconds: float = 0.0
    when: str = ""
    load: float = 0.0  # one-minute load average as the measure began
    machine: dict[str, Any] = field(default_factory=dict)
    cached: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Outcome":
        """The reverse of `to_dict`. Raises TypeError or KeyError for anything else."""
        return cls(**{**plain, "tables": [Table(**table) for table in plain["tables"]]})


def all_measures() -> list[Measure]:
    """Every measure in `avlab.bench.measures`, in the order of the table."""
    found: list[Measure] = []
    for module in import_all("avlab.bench.measures"):
        found += getattr(module, "MEASURES", ())
    return sorted(found, key=lambda measure: (measure.order, measure.name))


def choose(measures: Iterable[Measure], only: Iterable[str]) -> list[Measure]:
    """The measures with these names (or with a bar of that name); all of them for none. Raises BenchError."""
    measures, only = list(measures), list(only)
    if not only:
        return measures
    known = {name: each for each in measures for name in (each.name, *(bar.name for bar in each.bars))}
    for name in only:
        if name not in known:
            raise BenchError(
                f"there is no measure named {name!r}; the measures are {', '.join(m.name for m in measures)}."
            )
    wanted = {known[name].name for name in only}
    return [each for each in measures if each.name in wanted]
