"""What an A/B and a frontier say, as values with names (`avlab.experiments.values` makes JSON of them).

Rates are in tokens/s, times in ms or s as their names say. An end of an interval is None where it has no bound.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from avlab.store.experiment_rows import RecordedPlan, ServedLedger

Objective = tuple[str, float]  # a measure of what users see, and its limit in ms


@dataclass(frozen=True, slots=True)
class Ledger(ServedLedger):
    """An arm's ledger with the time of prompts as a line of its own, prompt_ms.

    served_tokens_per_s: throughput as it was served.
    """

    prompt_ms: float
    served_tokens_per_s: float | None

    def line(self, name: str) -> float | None:
        """A line by the name of its field."""
        return getattr(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one arm stands to another by now.

    baseline: the other arm; "" for the plan's baseline. ratio: `words.RATIO`; None without a round. low, high: of the
    confidence sequence. declared: it excludes 1. moved: the ratio changed on the way. rounds_to_2_percent,
    minutes_to_2_percent: in all, until it is known to ± 2 %; None where that cannot be told.
    """

    arm: str
    baseline: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int
    declared: bool = False
    moved: bool = False
    rounds_to_2_percent: int | None = None
    minutes_to_2_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Standing):
    """An arm against the plan's baseline.

    declared_at: the round in which a difference was first declared (from 1); it stays if the ratio then moved, which
    withdraws the declaration. fixed_low, fixed_high: the fixed-sample interval. By kept round: ratio_by_round, and the
    estimate and the sequence's ends after it.
    """

    declared_at: int | None = None
    fixed_low: float | None = None
    fixed_high: float | None = None
    ratio_by_round: tuple[float, ...] = ()
    estimate_by_round: tuple[float, ...] = ()
    low_by_round: tuple[float | None, ...] = ()
    high_by_round: tuple[float | None, ...] = ()

    def unsaid(self) -> Iterable[str]:
        known = {"arm", "ratio", "low", "high", "rounds", "declared"}
        return {"baseline"} if self.rounds else {field.name for field in fields(self)} - known


@dataclass(frozen=True, slots=True)
class AgainstFixed:
    """An adaptive arm against the fixed lengths compared.

    fixed: these lengths. declared: there are two or more, and its sequence against each excludes 1 from below;
    declared_at: since which round; least_low: by which ratio at least. beaten_by: the arms whose sequence against it
    excludes 1, of the baseline and those that do not adapt, or of all where it is the baseline. against: how it stands
    to each fixed length.
    """

    arm: str
    fixed: list[str]
    declared: bool
    declared_at: int | None
    least_low: float | None
    beaten_by: list[str]
    against: list[Standing]


@dataclass(frozen=True, slots=True)
class BestFixed:
    """The best of two or more fixed lengths, and its tokens_per_s. Both are None unless either half of the rounds alone
    names it too; between: else those that are named.
    """

    arm: str | None
    tokens_per_s: float | None
    between: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSeen:
    """An arm: its throughput, what users saw (`store.experiment_rows.UserTimes`, as served), and its ledger.

    tokens_per_s: of its counted blocks, their tokens over their adjusted seconds; 1e6 over the ledger's total_ms.
    """

    tokens_per_s: float | None
    interactivity: float | None = None
    p50_tpot_ms: float | None = None
    p95_tpot_ms: float | None = None
    p50_ttft_ms: float | None = None
    ledger: Ledger | None

    def measure(self, name: str) -> float | None:
        """One of `slo.SLO_MEASURES`, in ms."""
        return _measure(self, name)

    def unsaid(self) -> Iterable[str]:
        users = ("interactivity", "p50_tpot_ms", "p95_tpot_ms", "p50_ttft_ms")
        return users if self.interactivity is None else ()


def _measure(seen: "ArmSeen | Point", name: str) -> float | None:
    times = {
        "p50_tpot_ms": seen.p50_tpot_ms,
        "p95_tpot_ms": seen.p95_tpot_ms,
        "p50_ttft_ms": seen.p50_ttft_ms,
    }
    return times[name]


@dataclass(frozen=True, slots=True)
class Within:
    """The fastest arm whose measure is within a limit, in ms; None if none is.

    unmeasured: arms of which the measure is not known. text: the sentence.
    """

    measure: str
    limit_ms: float
    arm: str | None
    unmeasured: list[str]
    text: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A round that does not count. round: from 0."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an arm lost to the fastest that has beaten it (by): the term of the cost, and a sentence."""

    arm: str
    by: str
    term: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptAdjustment:
    """As `control_variate.PromptCosts`; evened: whether throughput is adjusted by them."""

    price: float
    share: float
    evened: bool


@dataclass(frozen=True, slots=True)
class ABAnswer:
    """Everything that is said of an A/B.

    rounds: kept ones. seconds_a_round: the median, wash-outs included; None before two are over. results: a comparison
    for each arm but the baseline. best_fixed: None while there are too few rounds or lengths. slo: where a limit was
    asked for. verdicts: sentences, most important first. why: for each adaptive arm that another has beaten.
    expected: whether as many drafts count as accepted as were to be expected of them.
    """

    run_id: str
    state: str
    plan: RecordedPlan
    workload: str
    sampling: str
    rounds: int
    seconds_a_round: float | None
    prompts: PromptAdjustment
    dropped: list[Dropped]
    results: list[Comparison]
    arms: dict[str, ArmSeen]
    adaptive: list[AgainstFixed]
    best_fixed: BestFixed | None
    slo: Within | None
    verdicts: list[str]
    why: list[Reason]
    emulated: str = ""  # what of the run is, in words
    expected: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A cell of a frontier: an arm under a load (requests under way).

    tokens_per_s and interactivity (tokens/s for one user) are geometric means over repeats; low and high are Student's
    95 % interval over repeats, None below three. ledger and times of users are of all repeats together. dominated:
    another point is at least as good in both, and better in one.
    """

    arm: str
    load: int
    repeats: int
    ledger: Ledger
    tokens_per_s: float
    tokens_per_s_low: float | None
    tokens_per_s_high: float | None
    interactivity: float
    interactivity_low: float | None
    interactivity_high: float | None
    p50_tpot_ms: float | None
    p95_tpot_ms: float | None
    p50_ttft_ms: float | None
    dominated: bool

    def measure(self, name: str) -> float | None:
        """One of `slo.SLO_MEASURES`, in ms."""
        return _measure(self, name)


@dataclass(frozen=True, slots=True)
class FrontierAnswer:
    """What is known of a frontier.

    runs: that measured a cell of it, and this one. repeats: whole ones. cells: those measured, and those of one
    repeat. planned: cells to be measured, those of earlier runs' whole repeats included. beyond: cells of repeats that
    were begun again; they count in points, too.
    """

    run_id: str
    runs: list[str]
    state: str
    plan: RecordedPlan
    repeats: int
    cells: tuple[int, int]
    planned: int
    beyond: int
    points: list[Point]
    sentences: list[str]
    emulated: str = ""  # what of the run is, in words
