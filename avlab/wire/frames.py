"""Frames: what a worker says to its lab.

Times are seconds since the run began (worker's monotonic clock) unless a name says `wall`.
"""

import msgspec

from avlab.wire.commands import Experiment
from avlab.wire.message import Message, snake

NAN = float("nan")
PLAYGROUND = "playground"  # the kind of its blocks, requests and events


class Hello(Message, frozen=True, tag=snake):
    """First frame of a run: what is about to run, and on what."""

    kind: str  # of the worker: a file of `avlab/kinds`
    pid: int
    wall: float  # seconds since the epoch at which the run's clock reads 0
    config: dict  # the run's whole configuration, plain values, no secrets
    target: str
    target_hash: str
    drafter: str | None
    drafter_hash: str | None
    K: int
    code: str  # commit of this project, its version where it is installed, or "unknown"
    machine: dict  # processor, cores, memory, dtype, threads, spin count, versions
    features: list[str] = msgspec.field(default_factory=list)  # names of the features in its Drafts


class CostProfile(Message, frozen=True, tag=snake):
    """Step costs as profiled at start or read from a file, and the tables made of them. Milliseconds."""

    source: str  # "profiled" or the file's name
    draft_samples: list[tuple[int, int, float]]  # (requests, depth, ms)
    verify_samples: list[tuple[int, float]]  # (tokens in the target's pass, ms)
    draft_table: list[list[float]]  # by number of requests and by depth, both from 0
    verify_table: list[float]  # by number of tokens, from 0
    cost_hash: str


HEADLINE = ("serve",)  # the kinds of block that headline numbers are of


class Block(Message, frozen=True, tag=snake):
    """A run of steps under one policy begins."""

    block: int
    arm: str
    kind: str  # "serve", "wash-out", "window", "playground", "audit"
    step: int
    time: float
    workload: str
    round: int | None = None


class Step(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One engine step, summed over its requests. Vectors have one entry a position.

    Of a server that is only watched: an interval between two readings of its counters, and None (nan for milliseconds)
    for what they do not tell.
    """

    step: int
    time: float  # at the step's end
    block: int
    running: int  # requests that held a cache row
    waiting: int
    emitting: int  # requests that emitted at least one token
    prompt_tokens: int  # prompt tokens computed this step
    target_tokens: int | None = None  # tokens in the target's pass, prompt and drafts included
    drafted: int  # positions the drafter was run for, 0 to K
    budget: int | None = None  # drafts the policy meant to verify
    tokens: int  # output tokens
    scheduled: tuple[int, ...] | None = None
    admitted: tuple[int, ...] | None = None
    accepted: tuple[int, ...]
    labelled: tuple[int, ...] | None = None
    expected_tokens: float = (
        NAN  # m + the survivals the budget was chosen for; nan where no estimate was used
    )
    expected_ms: float = (
        NAN  # of drafting and verification, by the costs that the policy decides by; nan likewise
    )
    draft_ms: float = NAN
    verify_ms: float = NAN
    sample_ms: float = NAN
    decide_ms: float = NAN
    report_ms: float = NAN
    idle_ms: float = NAN
    explored: int = 0  # drafts admitted by exploration, beyond the ranking
    # what they, and drafting deeper for them, cost, by the costs that the policy decides by
    explored_ms: float = 0.0
    # drafts accepted beyond what min(1, p/q) of these drafts made expected, of mean 0; nan where nobody tells
    surplus: float = NAN


class Steps(Message, frozen=True, tag=snake):
    """Steps in order, sent several times a second. Never dropped."""

    steps: list[Step]


class EngineSample(Message, frozen=True, tag=snake):
    """One engine of a watched server between two readings of its /metrics: `avlab.vllm.metrics.Counters`."""

    step: int  # the interval's number, as in Step
    time: float  # at its end
    block: int
    model: str
    engine: str
    seconds: float
    running: float
    waiting: float
    cache_usage: float | None  # share of the key-value cache in use
    engine_steps: float | None
    prompt_tokens: int
    tokens: int
    finished: int
    preemptions: int
    outputs: int  # outputs of requests: one for each step in which a request emitted
    first_tokens: int
    first_token_seconds: float  # their sum, from arrival
    later_outputs: int
    later_seconds: float  # their sum, since the request's output before
    drafts: int | None  # request-steps with a draft; None without speculation, as the next three
    draft_tokens: int | None  # scheduled
    accepted: int | None
    accepted_by_position: list[int]
    latencies: str | None = None  # histograms of the interval, as `avlab.vllm.histograms.told` writes them


class Refit(Message, frozen=True, tag=snake):
    """The estimator's coefficients after a refit, and what the round held."""

    arm: str
    block: int
    refit: int  # 0 is the cold start
    step: int
    time: float
    slope: float
    intercepts: list[float]
    counts: list[int]  # labelled slots of the round, by position
    positives: list[int]


class Calibration(Message, frozen=True, tag=snake):
    """Predictions against outcomes since the last such frame, for one source, block and class of requests.

    Sparse columns of equal length; `bin` is one of the 128 fixed log-odds bins of `speculation.calibration`.
    """

    source: str  # "online", "raw" (the maximum probability as it is), "head"
    block: int
    window: int  # rising number of the reporting window
    time: float
    kind: str  # workload kind of the requests
    temperature: float
    position: list[int]
    bin: list[int]
    count: list[int]
    positives: list[int]
    sum_p: list[float]
    sum_log_loss: list[float]
    sum_squared_error: list[float]


class Drafts(Message, frozen=True, tag=snake):
    """Raw draft slots, one row each. May be dropped when the lab cannot keep up."""

    rows: int
    batch: bytes  # an Arrow stream of one record batch: `avlab.wire.draft_rows`


class RequestDone(Message, frozen=True, tag=snake):
    """A request ended."""

    request: int
    kind: str
    temperature: float
    top_p: float
    top_k: int
    seed: int
    arrival: float
    admitted: float  # when it got a cache row
    first_token: float | None
    last_token: float | None
    prompt_tokens: int
    output_tokens: int
    steps: int  # steps in which it emitted
    drafts_accepted: int
    finish: str  # "end", "length", "cancelled", "refused"
    block: int
    prompt: str | None = None  # only with --keep-text
    output: str | None = None


class Choice(msgspec.Struct, frozen=True, array_like=True):
    """A token that a distribution holds, and how likely it is there."""

    token: int
    text: str
    probability: float


class Slot(msgspec.Struct, frozen=True):
    """A draft slot, or the target's own token behind them, with the tops of the distributions it was judged by."""

    token: int
    text: str
    fate: str  # of a draft: "accepted", "rejected", "behind" (a rejection or an end), "trimmed"; else as Tokens.fates
    q: float | None = None  # of the token, in the drafter's distribution
    p: float | None = None  # and in the target's; None where the target did not look
    estimate: float | None = None  # None where nothing predicted
    survival: float | None = None
    draft_top: list[Choice] = []
    target_top: list[Choice] = []
    residual_top: list[Choice] = []  # of a recovered token: the (p - q)+ that it was drawn from


class Tokens(Message, frozen=True, tag=snake):
    """One step of one request in full, for the playground."""

    request: int  # negative: the playground's requests count down from -1
    step: int
    tokens: list[int]
    texts: list[str]
    fates: list[
        str
    ]  # "accepted", "recovered", "bonus" (after a full accept), "sampled" (no draft was verified)
    draft: list[Slot]  # every scheduled position
    own: Slot | None = None  # the target's own token; None where an accepted draft ended the text
    draft_ms: float | None = None  # of the whole step, which served this request alone
    verify_ms: float | None = None  # the one pass in which the target read every verified draft token at once


class ExperimentBegun(Message, frozen=True, tag=snake):
    """An A/B begins: its plan as asked for, and when."""

    plan: Experiment
    time: float
    step: int


class RoundDone(Message, frozen=True, tag=snake):
    """A round of an A/B is over: kept, with a counted block for every arm, or dropped for a reason."""

    round: int
    kept: bool
    reason: str
    time: float
    step: int


class BlockRequests(Message, frozen=True, tag=snake):
    """What each request got within a counted block. Columns of equal length.

    seconds is from its last token before the block (or its first one, if that came within) to its last token in it,
    and tokens are those that came in that time.
    """

    block: int
    request: list[int]
    tokens: list[int]
    seconds: list[float]


class Event(Message, frozen=True, tag=snake):
    """Something worth telling the reader: level is "info", "warning" or "error"."""

    level: str
    kind: str
    text: str
    time: float
    step: int


class Heartbeat(Message, frozen=True, tag=snake):
    """The worker lives; also carries its state and memory."""

    time: float
    state: str  # "serving", "paused", "stopping"; before that what is being prepared, as "timing steps 3/40"
    step: int
    rss_mb: float
    drafts_dropped: int  # rows of Drafts frames dropped so far


class Bye(Message, frozen=True, tag=snake):
    """Last frame of a run."""

    reason: str  # "done", "stopped", or the sentence of the error that ended it
    complete: bool
    time: float


Frame = (
    Hello
    | CostProfile
    | Block
    | Steps
    | EngineSample
    | Refit
    | Calibration
    | Drafts
    | RequestDone
    | Tokens
    | ExperimentBegun
    | RoundDone
    | BlockRequests
    | Event
    | Heartbeat
    | Bye
)
