"""A replay: recorded texts served on another machine's clock. Emulated, and says so; no model, no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from avlab.config import Traffic
from avlab.kinds.base import Kind
from avlab.machines import DEFAULT_MACHINE, Machine, machine
from avlab.policies.arm import DEFAULT_ARM, Arm, grammar
from avlab.replay.about import About
from avlab.replay.emulation import emulation
from avlab.replay.server import MOST_REQUESTS
from avlab.replay.trace import Trace
from avlab.replay.traces import DEFAULT_TRACE, about_named, trace_named
from avlab.replay.workload import open_texts
from avlab.workloads import Workload

PACES = {
    "machine": 1.0,
    "fast": None,
}  # this machine's seconds are so many of the emulated one's; None: no waiting
SLOWEST, FASTEST = 0.001, 1000.0
POLICIES = (
    DEFAULT_ARM,
    "adaptive",
    "adaptive+explore=0.02",
    "adaptive+depth",
    "adaptive:raw",
    "adaptive:head",
    "fixed:2",
    "fixed:4",
    "fixed:7",
    "none",
)
NOTES = (
    "Replayed: arms meet recorded texts, and time is the emulated machine's. Everything but its costs is exact; the "
    "ratio holds for that machine's table."
)


class ReplayConfig(Traffic):
    """Everything that decides a replay."""

    kind: ClassVar[str] = "replay"
    threads: ClassVar[int] = 1
    spin: ClassVar[int] = 0
    engines: ClassVar[bool] = False
    keep_text: ClassVar[bool] = False  # a trace holds no words

    # whose texts, on whose costs
    machine: str = Field(
        DEFAULT_MACHINE,
        min_length=1,
        description="whose step costs: a name from avlab replay machines, or a TOML file",
    )
    trace: str = Field(
        DEFAULT_TRACE,
        min_length=1,
        description="whose texts: a name from avlab trace list, or a Parquet file",
    )
    pace: str = Field(
        "machine",
        description="machine (moves as that machine would), fast (as fast as it computes), or a factor as 10",
    )
    policy: str = Field(DEFAULT_ARM, description=grammar())
    new_request: Literal["one", "running-mean"] = Field(
        "one",
        description="what a new request's earlier estimate counts as: one (vLLM's rule), or running-mean",
    )
    requests_at_once: int | None = Field(
        None,
        ge=1,
        le=MOST_REQUESTS,
        description="requests that may run at once; else as many as the machine serves",
    )
    kv_tokens: int | None = Field(
        None,
        ge=1,
        le=10**12,
        description="tokens that the machine's memory holds keys and values of: others wait; else it is not limited",
    )
    prefill_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="most prompt tokens of a step; else as the machine says"
    )
    drafts: Literal["all", "sampled", "none"] = Field(
        "sampled", description="raw draft slots to store: all, sampled (every tenth step) or none"
    )

    @property
    def arm(self) -> Arm:
        return Arm.parse(self.policy, self.K)

    @property
    def speed(self) -> float | None:
        """The emulated machine's seconds in one of this machine's; None for as many as it computes."""
        return PACES[self.pace] if self.pace in PACES else float(self.pace)

    @property
    def about(self) -> About:
        """What the trace says of itself. Raises TraceError."""
        return about_named(self.trace)

    @property
    def emulated(self) -> Machine:
        """The machine. Raises MachineError."""
        return machine(self.machine, self.K)

    @property
    def emulation(self) -> str:
        """What of the run is emulated, in words. Raises TraceError or MachineError."""
        return emulation(self.emulated.about, self.about)

    @property
    def recorded(self) -> Trace:
        """The whole trace. Raises TraceError."""
        return trace_named(self.trace)

    @property
    def K(self) -> int:
        return self.about.K

    @property
    def head(self) -> bool:
        return "head_log_odds" in self.about.features

    @property
    def max_num_seqs(self) -> int:
        return self.requests_at_once or min(self.emulated.about.most_requests, MOST_REQUESTS)

    @property
    def temperature(self) -> float:
        return self.about.temperature

    @property
    def top_k(self) -> int:
        return self.about.top_k

    @property
    def top_p(self) -> float:
        return self.about.top_p

    def reading(self, arms: Sequence[Arm]) -> Self:
        """A trace holds what it holds."""
        return self

    def open(self, arrival: str | None, seed: int, repeat: bool = False) -> Workload:
        return open_texts(self.recorded, self.workload, arrival, seed)

    @field_validator("machine", "trace")
    @classmethod
    def _whole_path(cls, name: str) -> str:
        """A file by its whole path, since the worker runs in another folder."""
        return str(Path(name).expanduser().resolve()) if name.endswith((".toml", ".parquet")) else name

    @field_validator("pace")
    @classmethod
    def _pace(cls, text: str) -> str:
        text = text.strip()
        if text in PACES:
            return text
        try:
            factor = float(text.removesuffix("x"))
        except ValueError:
            factor = 0.0
        if not SLOWEST <= factor <= FASTEST:
            raise ValueError(
                f"pace is {text!r}; it must be machine, fast, or a factor from {SLOWEST:g} to {FASTEST:g}, such as 10."
            )
        return f"{factor:g}"

    @field_validator("workload")
    @classmethod
    def _workload(cls, spec: str) -> str:
        if spec.startswith("file:"):
            raise ValueError(
                "a replay serves the texts of its trace: choose a kind of them, or record your own prompts with "
                "avlab trace record."
            )
        return spec

    @field_validator("policy")
    @classmethod
    def _policy(cls, text: str) -> str:
        return str(Arm.parse(text))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Raises TraceError, MachineError or PolicyError, each a sentence."""
        most = self.emulated.about.most_requests
        self.emulated.require_depth(self.K)
        self.arm.require_features(self.about.features)
        if self.requests_at_once is not None and self.requests_at_once > most:
            raise ValueError(
                f"requests_at_once is {self.requests_at_once}; {self.emulated.about.title} serves {most} at most."
            )
        return self


def _ab_notes(values: Mapping[str, Any]) -> str:
    return NOTES


KIND = Kind(ReplayConfig, policies=POLICIES, ab_notes=_ab_notes)
