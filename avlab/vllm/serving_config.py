"""The configuration of a run that vLLM serves: for the command line, the worker and the dashboard's form."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from avlab.config import SampledTraffic
from avlab.engine.recommended import recommended
from avlab.policies.arm import Arm, PolicyError
from avlab.speculation.sampling import USUAL, Sampling
from avlab.vllm.serve_line import SPECULATIVE, ServeLine, ServeLineError

VARIABLES = re.compile(
    r"^(VLLM|HF|CUDA|NCCL|OMP|MKL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|NVIDIA|HIP|ROCM)_\w+$"
)
SECRETS = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD)S?$")
SECRET_ARGUMENTS = ("api-key", "hf-token")
EXTENSION = "worker-extension-cls"
REPLICAS = "data-parallel-size"
DEFAULT_REQUESTS = 256  # that run at once where the command does not say; vLLM's own default


def held_length(arm: Arm) -> int | None:
    """The length that one engine can hold verification at while it drafts K (`verify:k`); None for other arms."""
    return arm.verified if arm.drafted is None else None


class VllmConfig(SampledTraffic):
    """What is served, as a `vllm serve` command, and the lab's own traffic on it."""

    kind: ClassVar[str] = "vllm"
    threads: ClassVar[int | None] = None
    spin: ClassVar[int] = 0
    drafts: ClassVar[str] = "none"  # raw slots stay on the device
    head: ClassVar[bool] = True  # whether its drafter has one is known once it is open

    serve: str = Field(
        min_length=1,
        description="what is behind vllm serve: MODEL --name value ...; variables may stand in front",
    )
    policy: str = Field(
        "",
        description="where verification is adaptive: adaptive (vLLM's rule) or verify:k; else as the command says",
    )

    engines: bool = Field(
        False, description="an engine for each policy, started anew: then fixed:k and none can be served, too"
    )

    @classmethod
    def recommended_sampling(cls, values: Mapping[str, Any]) -> Sampling:
        try:
            return recommended(ServeLine.parse(str(values.get("serve", "")).replace("\\\n", " ")).model)
        except ServeLineError:  # said where the command is checked
            return USUAL

    @property
    def line(self) -> ServeLine:
        """The command. Raises ServeLineError."""
        return ServeLine.parse(self.serve.replace("\\\n", " "))

    @property
    def K(self) -> int:
        """Draft positions; 0 without speculation."""
        return int(self.line.speculative.get("num_speculative_tokens") or 0)

    @property
    def adaptive(self) -> bool:
        return bool(self.line.speculative.get("enable_adaptive_verification"))

    @property
    def arm(self) -> Arm:
        """What verification does at first."""
        if self.policy:
            return Arm.parse(self.policy, self.K or None)
        return self.own_arm

    @property
    def own_arm(self) -> Arm:
        """What verification does as the command says."""
        if self.adaptive:
            return Arm.parse("adaptive")
        return Arm.parse(f"fixed:{self.K}" if self.K else "none")

    def line_of(self, arm: Arm) -> ServeLine:
        """The command of an engine that serves nothing but this arm. Raises PolicyError."""
        line, spec = self.line, self.line.speculative
        arguments = {name: value for name, value in line.arguments.items() if name != SPECULATIVE}
        if arm == self.own_arm:
            return line
        if arm.fixed and arm.verified and arm.verified <= self.K:
            spec |= {"num_speculative_tokens": arm.verified, "enable_adaptive_verification": False}
            arguments[SPECULATIVE] = spec
        elif arm.drafts:
            raise PolicyError(
                f"no engine of this command serves {arm}: choose {self.own_arm}, none, or fixed:1 to fixed:{self.K}."
            )
        return ServeLine(line.model, arguments, line.environment)

    @property
    def has_drafter(self) -> bool:
        return bool(self.line.speculative)

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at once."""
        return int(self.line.arguments.get("max-num-seqs") or DEFAULT_REQUESTS)

    @field_validator("serve")
    @classmethod
    def _serve(cls, text: str) -> str:
        line = ServeLine.parse(text.replace("\\\n", " "))
        for name in line.environment:
            if SECRETS.search(name):
                raise ServeLineError(
                    f"{name} would be recorded with the run: set it where the lab is started instead."
                )
            if not VARIABLES.match(name):
                raise ServeLineError(
                    f"{name} is no variable of vLLM's: set it where the lab is started instead."
                )
        for name in SECRET_ARGUMENTS:
            if name in line.arguments:
                raise ServeLineError(
                    f"--{name} would be recorded with the run: leave it out; a variable can hold it."
                )
        if EXTENSION in line.arguments:
            raise ServeLineError(f"--{EXTENSION} is the lab's own here: leave it out.")
        if line.arguments.get(REPLICAS, 1) != 1:
            raise ServeLineError(
                f"--{REPLICAS} asks for several engines, and a run's steps are one engine's: leave it out, or watch "
                "such a server with avlab attach."
            )
        return text.strip()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        arm = self.arm
        if self.engines:
            self.line_of(arm)
            return self
        if arm == self.own_arm or (self.adaptive and held_length(arm) is not None):
            return self
        if self.adaptive:
            raise ValueError(f"policy {self.policy!r} is not vLLM's: it serves adaptive, or verify:k.")
        raise ValueError(
            f"policy {self.policy!r} needs adaptive verification, and the command does not ask for it: "
            "--speculative-config.enable_adaptive_verification true; or choose an engine for each policy: --engines."
        )
