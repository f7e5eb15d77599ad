"""The exporter's metrics. Two names are those proposed in vLLM's tracker #51303; the others continue them.

None of them is a name that vLLM 0.33 exports, so one Prometheus may scrape both.
"""

from dataclasses import dataclass
from typing import Literal

PREFIX = "vllm:adaptive_sd_"
TRACKER = "vLLM #51303"
ENGINE = ("model_name", "engine")  # as vLLM's own metrics name them
POSITION, SOURCE = "position", "source"


@dataclass(frozen=True)
class Metric:
    """name: as it is scraped, without the _bucket, _sum and _count of a histogram. labels: behind those of ENGINE."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    says: str
    labels: tuple[str, ...] = ()
    proposed: str = ""  # by whom

    @property
    def all_labels(self) -> tuple[str, ...]:
        return ENGINE + self.labels


def _counter(name: str, says: str, *labels: str, proposed: str = "") -> Metric:
    return Metric(f"{PREFIX}{name}_total", "counter", says, labels, proposed)


def _gauge(name: str, says: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, "gauge", says, labels)


EXPECTED = _counter(
    "expected_accepted_tokens",
    "Drafts expected to be accepted among those verified: the sum of their estimated survival.",
    proposed=TRACKER,
)
ERROR = Metric(
    PREFIX + "confidence_calibration_error",
    "histogram",
    "Expected less accepted drafts, tokens of one step.",
    proposed=TRACKER,
)
STEPS = _counter("steps", "Steps of the engine that emitted or verified something.")
TOKENS = _counter("sampled_tokens", "Tokens sampled, with the target's own; vLLM drops some behind a stop.")
REQUESTS = _counter("request_steps", "Requests, counted in each step that they were in.")
DRAFTING = _counter("drafting_steps", "Steps that were offered drafts.")
EMPTY = _counter("empty_steps", "Of those, steps that verified no draft: nothing is learnt from them.")
SCHEDULED = _counter("scheduled_tokens_per_pos", "Drafts offered for verification.", POSITION)
ADMITTED = _counter("admitted_tokens_per_pos", "Drafts verified: the budget, by position.", POSITION)
ACCEPTED = _counter("accepted_tokens_per_pos", "Drafts accepted.", POSITION)
LABELLED = _counter("labelled_tokens_per_pos", "Verified drafts that taught the estimator.", POSITION)
HELD = _counter("held_steps", "Steps in which somebody held the length of verification (avlab_policy).")
EXPLORED = _counter(
    "explored_tokens", "Drafts verified in those steps, whatever vLLM's own budget would have been."
)
PREDICTED_STEPS = _counter("predicted_steps", "Steps whose time vLLM's cost tables predicted.")
PREDICTED = _counter("predicted_step_seconds", "Time predicted for those steps: drafting and verification.")
MEASURED = _counter("measured_step_seconds", "Time that drafting and verification of those steps took.")
REFITS = _counter("refits", "Refits of the online estimator.")
ESTIMATED = _counter("estimated_tokens", "Labelled drafts with an estimate of this source.", SOURCE, POSITION)
ESTIMATED_SUM = _counter(
    "estimated_acceptance", "Sum of their estimated acceptance, given all before them.", SOURCE, POSITION
)
ESTIMATED_ACCEPTED = _counter("estimated_accepted_tokens", "Accepted ones among them.", SOURCE, POSITION)
BUDGET = _gauge("budget_tokens", "Drafts verified in the last step.")
OFFERED = _gauge("offered_tokens", "Drafts offered in the last step.")
RUNNING = _gauge("running_requests", "Requests in the last step.")
LENGTH = _gauge("held_length", "Length that verification is held at; -1 where vLLM decides.")
SLOPE = _gauge("slope", "Coefficient of the draft's maximum log-odds.")
INTERCEPT = _gauge("intercept", "Coefficient of a position.", POSITION)
ECE = _gauge("expected_calibration_error", "Calibration error of the last five minutes, 0 to 1.", SOURCE)
ECE_FLOOR = _gauge(
    "calibration_noise_floor",
    "What perfect calibration would show there at so few drafts.",
    SOURCE,
)
RECORDING = _gauge("recording", "1 while steps are recorded; 0 where the extension ended its record.")
UP = _gauge("telemetry_up", "1 while the worker writes its file.")
AGE = _gauge("telemetry_age_seconds", "Seconds since it was written.")
INFO = _gauge("info", "1, with what was found.", "source", "vllm", "draft_positions", "refit_interval")

METRICS: tuple[Metric, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
