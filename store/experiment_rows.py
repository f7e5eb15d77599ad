"""What the database holds of an experiment, as values with names: plan, rounds, counted blocks, users, ledger."""

from dataclasses import dataclass

from avlab.wire.commands import Experiment


class RecordedPlan(Experiment, frozen=True, kw_only=True, tag_field=None, tag=False):
    """The plan of an experiment as it was asked for, and when it began."""

    time: float  # seconds since the run began
    step: int

    def asked(self) -> Experiment:
        """The plan alone."""
        return Experiment(**{name: getattr(self, name) for name in Experiment.__struct_fields__})


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is over. round: from 0. kept: else reason says why it was dropped. time: seconds since the start."""

    round: int
    kept: bool
    reason: str
    time: float
    step: int


@dataclass(frozen=True, slots=True)
class BlockRate:
    """A counted block.

    seconds: from its beginning to its last step. emitting: requests that emitted, summed over steps. tokens_per_s: None
    for a block without time. interactivity: median tokens/s of a request within it. prompt_tokens: computed in it, in
    prompt_steps of its steps, which took prompt_seconds. surplus: drafts accepted beyond what was expected of
    these drafts, of mean 0; None where some step does not tell.
    """

    run: str
    block: int
    arm: str
    round: int
    tokens: int
    seconds: float
    steps: int
    emitting: int
    tokens_per_s: float | None
    interactivity: float | None
    prompt_tokens: int
    prompt_steps: int
    prompt_seconds: float
    surplus: float | None = None

    @property
    def expected(self) -> float:
        """Output tokens, with as many drafts accepted as these drafts made expected; as served where nobody tells.

        Of the same mean as `tokens` under every policy, with less chance in it.
        """
        return self.tokens - (self.surplus or 0.0)


@dataclass(frozen=True, slots=True)
class UserTimes:
    """What the users of an arm saw within its blocks.

    interactivity: median tokens/s of a request. p50_tpot_ms, p95_tpot_ms: milliseconds per output token, of the
    requests that tokens belong to. p50_ttft_ms: milliseconds to the first token, of the finished requests whose first
    token came in the arm's blocks; None without one.
    """

    interactivity: float
    p50_tpot_ms: float
    p95_tpot_ms: float
    p50_ttft_ms: float | None


@dataclass(frozen=True, slots=True)
class ServedLedger:
    """Where the time of an arm's counted blocks went, and what became of draft tokens, per 1,000 output tokens.

    draft_ms to decide_ms: None where the engine does not tell. other_ms: reporting, waiting, and what is not told.
    saved_ms: what verifying every draft token would have cost more, by the cost table; None without one. explored:
    draft tokens admitted by exploration, and explored_ms what they cost; None where no step says.

    As they are, and not per 1,000 tokens: tokens, steps, seconds, tokens_per_step (of a request that gains any), and
    expected_ms and measured_ms, the means of the steps that had an expectation.
    """

    draft_ms: float | None
    verify_ms: float | None
    sample_ms: float | None
    decide_ms: float | None
    other_ms: float
    total_ms: float
    scheduled: float
    admitted: float
    accepted: float
    trimmed: float
    rejected: float
    saved_ms: float | None
    explored: float | None
    explored_ms: float | None
    tokens: int
    steps: int
    seconds: float
    tokens_per_step: float | None
    expected_ms: float | None
    measured_ms: float | None
