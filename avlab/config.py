"""The configuration of a run: one validated object for the CLI, the worker and the dashboard's form.

Light to import: no torch, no model code. What is wrong with a value is said in one sentence a field.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from avlab.engine.fetch import DEFAULT_TARGET
from avlab.engine.recommended import recommended
from avlab.field_sentences import sentences
from avlab.installation import data_folder
from avlab.policies.arm import DEFAULT_ARM, Arm, grammar
from avlab.speculation.features import DEFAULT_FEATURES, FEATURES, known_features
from avlab.speculation.sampling import MODELS_OWN, USUAL, Sampling
from avlab.workloads import DEFAULT_ARRIVAL, Workload, open_arrivals, open_workload

# GOMP_SPINCOUNT, measured on two cores, a decode step of 16 requests alone / beside a process that keeps a core busy:
# 1,000: 73 / 112 ms; 10,000: 58 / 203 ms; 30,000: 58 / 355 ms. A dashboard keeps a core busy only for moments.
SPIN = 10_000
_ELSE = "else as the checkpoint recommends, or {}"
AS_RECOMMENDED: Any = None  # a number takes its place before values are checked


def arrival_shown(arrival: str | None, workload: str | None) -> str:
    """How requests arrive, for readers: what was set, or what that defaults to; a dash where nothing was served."""
    if arrival or not workload:
        return arrival or "–"
    return f"its times, or {DEFAULT_ARRIVAL}" if workload.startswith("file:") else DEFAULT_ARRIVAL


def sampled(recorded: Mapping[str, Any]) -> Sampling:
    """The sampling of a recorded configuration. What an older one does not name cut nothing."""
    return Sampling(*(recorded.get(name, neutral) for name, neutral in MODELS_OWN._asdict().items()))


class ConfigError(ValueError):
    """A configuration that cannot run. `sentences` has one for each field that is wrong."""

    def __init__(self, sentences: list[str]):
        super().__init__("\n".join(sentences))
        self.sentences = sentences


def default_database() -> Path:
    """Where runs are kept when nobody says otherwise: $AVLAB_DATABASE, or the user's data folder."""
    named = os.environ.get("AVLAB_DATABASE")
    return Path(named) if named else data_folder() / "lab.duckdb"


def number_kind(annotation: Any) -> str:
    """What number a setting is, "int" or "float"; "" for what is none."""
    kinds = {int: "int", float: "float"}
    return next((kinds[each] for each in (annotation, *get_args(annotation)) if each in kinds), "")


class Traffic(BaseModel):
    """What every worker that serves a workload is told. Seconds are the run's clock's; a limit of None ends nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    # the traffic
    workload: str = Field(
        "mixed", min_length=1, description="a kind, mixed, mixture:A=2,B=1, drift:A,B@60s or file:PATH"
    )
    arrival: str | None = Field(
        None,
        description="closed:N, closed:A,B@60s, poisson:RATE, burst:N or replay; else a file's own times, or closed:16",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="seed of prompts, arrivals and sampling")

    # the end: whichever comes first; with none of them the run goes on until it is stopped
    duration: float | None = Field(
        None, gt=0, le=30 * 86400, description="serve so many seconds, or forever; 60 when no limit is given"
    )
    tokens: int | None = Field(None, ge=1, description="end after so many output tokens")
    requests: int | None = Field(None, ge=1, description="end after so many requests")

    # what is kept
    database: str = Field(
        default_factory=lambda: str(default_database()),
        min_length=1,
        description="the lab's file; else $AVLAB_DATABASE, else the user's own",
    )

    @classmethod
    def make(cls, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """A configuration from plain values. Raises ConfigError with a sentence for every wrong field."""
        try:
            return cls(**{**(values or {}), **more})
        except ValidationError as error:
            raise ConfigError(sentences(error, cls)) from None

    def reading(self, arms: Sequence[Arm]) -> Self:
        """This configuration, with all that these arms read computed."""
        return self

    def changed(self, **values: Any) -> Self:
        """This configuration with some values replaced, checked again; what was left open stays so.

        Raises ConfigError.
        """
        return self.make({**self.given(), **values})

    def given(self) -> dict[str, Any]:
        """The values that somebody chose, as JSON can hold them; `make` adds the same defaults to them again."""
        return self.model_dump(mode="json", exclude_unset=True)

    @property
    def has_file(self) -> bool:
        """Whether the prompts come from a file of the reader's own."""
        return self.workload.startswith("file:")

    @property
    def arrival_pattern(self) -> str | None:
        """What `workloads.open_workload` is to be given; None lets a file's own arrival times decide."""
        return self.arrival or (None if self.has_file else DEFAULT_ARRIVAL)

    @property
    def traffic(self) -> tuple[str, str]:
        """Workload and arrival; "" for a file's own arrival times."""
        return self.workload, self.arrival_pattern or ""

    def open(self, arrival: str | None, seed: int, repeat: bool = False) -> Workload:
        """The workload, arriving so. repeat: a file begins again at its end. Raises WorkloadError."""
        return open_workload(self.workload, arrival, seed=seed, repeat=repeat)

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python's 1_0 is no number that anybody types into a form or a command."""
        assert info.field_name is not None
        kind = number_kind(cls.model_fields[info.field_name].annotation)
        if kind and isinstance(value, str) and "_" in value:
            raise PydanticCustomError(f"{kind}_underscore", "")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("a name or path in the configuration holds a NUL character.")
        if isinstance(value, str) and value != value.encode("utf-8", "replace").decode("utf-8"):
            raise ValueError(f"a name or path is {ascii(value)[:80]}; it must be text (UTF-8).")
        return value

    @field_validator("arrival")
    @classmethod
    def _arrival(cls, text: str | None) -> str | None:
        if text is not None:
            open_arrivals(text.strip(), times=[0.0])  # raises WorkloadError
        return text and text.strip()

    @model_validator(mode="after")
    def _times(self) -> Self:
        if (self.arrival or "").startswith("replay") and not self.has_file:
            raise ValueError("arrival replay needs a workload of the form file:PATH, with arrival times.")
        return self


class SampledTraffic(Traffic):
    """What a worker is told whose target writes the texts."""

    temperature: float = Field(
        AS_RECOMMENDED,
        ge=0,
        le=10,
        description=f"sampling temperature; 0 is greedy; {_ELSE.format(USUAL.temperature)}",
    )
    top_k: int = Field(
        AS_RECOMMENDED,
        ge=0,
        le=10_000_000,
        description=f"sample among so many likeliest tokens; 0: all; {_ELSE.format('0')}",
    )
    top_p: float = Field(
        AS_RECOMMENDED,
        gt=0,
        le=1,
        description=f"sample among the likeliest tokens up to this mass, after top-k; {_ELSE.format(USUAL.top_p)}",
    )
    max_new_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="most output tokens of a request; else as its prompt suggests"
    )
    strict: bool = Field(
        False,
        description="end where an entry of a prompt file cannot be served as it asks; else it is counted",
    )
    keep_text: bool = Field(False, description="store prompts and outputs")

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)

    @classmethod
    def recommended_sampling(cls, values: Mapping[str, Any]) -> Sampling:
        """How requests are sampled where these values, not checked yet, do not say."""
        return USUAL

    @model_validator(mode="before")
    @classmethod
    def _sampling(cls, values: Any) -> Any:
        """What is not said of the sampling is what the checkpoint recommends: the record of a run names numbers."""
        if not isinstance(values, Mapping):
            return values
        found = cls.recommended_sampling(values)._asdict()
        return {**values, **{name: found[name] for name in found if values.get(name) is None}}

    def open(self, arrival: str | None, seed: int, repeat: bool = False) -> Workload:
        return open_workload(
            self.workload,
            arrival,
            seed=seed,
            max_new_tokens=self.max_new_tokens,
            repeat=repeat,
            strict=self.strict,
        )


class RunConfig(SampledTraffic):
    """Everything that decides a run of the reference engine."""

    kind: ClassVar[str] = "reference"  # of the worker that serves it
    engines: ClassVar[bool] = False  # one engine serves every arm of an A/B

    # what is served
    target: str = Field(
        DEFAULT_TARGET, min_length=1, description="model folder in Hugging Face format, or the default's name"
    )
    drafter: str = Field(
        "default",
        min_length=1,
        description="default, a folder (a block drafter, or a small Llama), ngram, suffix, or none",
    )
    policy: str = Field(DEFAULT_ARM, description=grammar())
    K: int = Field(7, ge=1, le=32, description="draft positions, at most: num_speculative_tokens of vLLM")
    new_request: Literal["one", "running-mean"] = Field(
        "one",
        description="what a new request's earlier estimate counts as: one (vLLM's rule), or running-mean",
    )
    head: bool = Field(True, description="use the drafter's confidence head where a policy asks for it")

    # what is kept
    drafts: Literal["all", "sampled", "none"] = Field(
        "sampled", description="raw draft slots to store: all, sampled (every tenth step) or none"
    )
    features: str = Field(
        ",".join(DEFAULT_FEATURES),
        description=f"what is stored of a raw draft slot, some of {', '.join(FEATURES)}",
    )

    # the machine
    max_num_seqs: int = Field(64, ge=1, le=4096, description="requests that may run at once")
    max_model_len: int = Field(
        2048, ge=16, le=1_000_000, description="tokens a request may fill, prompt included"
    )
    max_num_batched_tokens: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="tokens of a step, decode and prefill; else max_num_seqs * (K + 1) + 256",
    )
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$", description="auto, cpu, cuda or cuda:N"
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field("auto", description="auto, bfloat16 or float32")
    threads: int | None = Field(
        None, ge=1, le=1024, description="threads of the worker; else one a physical core"
    )
    spin: int = Field(
        SPIN, ge=0, le=10**12, description="how long idle threads spin (GOMP_SPINCOUNT); 0: not at all"
    )
    costs: str | None = Field(None, description="cost file; else steps are timed at start")
    depth_costs: Literal["auto", "measured", "table"] = Field(
        "auto",
        description="+depth decides by recent steps or by the table; auto: measured, unless costs names a file",
    )

    @classmethod
    def recommended_sampling(cls, values: Mapping[str, Any]) -> Sampling:
        return recommended(str(values.get("target", DEFAULT_TARGET)))

    @property
    def arm(self) -> Arm:
        return Arm.parse(self.policy, self.K)

    def reading(self, arms: Sequence[Arm]) -> Self:
        """This configuration with the features that these arms read, beside those that every drafter tells anyway."""
        read = [name for arm in arms for name in arm.reads if name not in DEFAULT_FEATURES]
        return self.changed(features=",".join([*self.recorded_features, *read])) if read else self

    @property
    def recorded_features(self) -> tuple[str, ...]:
        return tuple(self.features.split(","))

    @property
    def has_drafter(self) -> bool:
        return self.drafter != "none"

    @property
    def measures_costs(self) -> bool:
        """Whether `+depth` decides by what steps have cost lately."""
        return self.depth_costs == "measured" or (self.depth_costs == "auto" and self.costs is None)

    @field_validator("features")
    @classmethod
    def _features(cls, text: str) -> str:
        return ",".join(known_features([name.strip() for name in text.split(",")]))

    @field_validator("policy")
    @classmethod
    def _policy(cls, text: str) -> str:
        arm = Arm.parse(text)
        arm.require_declared()
        return str(arm)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        arm = Arm.parse(self.policy, self.K)
        if not self.has_drafter and arm.drafts:
            raise ValueError(f"policy {self.policy!r} needs a drafter: choose one, or take policy none.")
        if "head_log_odds" in arm.reads and not self.head:
            raise ValueError(
                f"policy {self.policy} needs the drafter's confidence head, which is off: leave --no-head out."
            )
        if self.max_new_tokens is not None and self.max_new_tokens >= self.max_model_len:
            raise ValueError(
                f"max_new_tokens is {self.max_new_tokens} where a request has {self.max_model_len} tokens in all: "
                "lower it or raise max_model_len."
            )
        decode = self.max_num_seqs * ((self.K if self.has_drafter else 0) + 1)
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens <= decode:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, and decoding alone may take {decode} "
                f"(max_num_seqs * (K + 1)): give at least {decode + 1}, or lower max_num_seqs or K."
            )
        return self
