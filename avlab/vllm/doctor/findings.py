"""What an examination says: one finding a gate, each with its reason and the setting that opens it."""

from dataclasses import dataclass, field
from typing import Literal

from avlab.vllm.doctor.layers import Layer

Verdict = Literal["refuses", "warns", "passes", "unknown"]
ORDER: tuple[Verdict, ...] = ("refuses", "warns", "unknown", "passes")


@dataclass(frozen=True)
class Finding:
    """gate: what was looked at. refuses: vLLM will not start so; warns: it starts, and may disappoint; unknown: cannot
    be said from here. remedy: what to set, "" where nothing is to be done. source: where vLLM, or a report, says so.
    """

    gate: str
    verdict: Verdict
    reason: str
    remedy: str = ""
    source: str = ""


@dataclass(frozen=True)
class Machine:
    """The machine that is to serve. vendor: "nvidia", "amd", "intel", "cpu", or "" where nobody knows.

    capability: of an NVIDIA GPU, (9, 0). memory_gib: of one GPU. gpus: how many there are.
    """

    vendor: str = ""
    name: str = ""
    capability: tuple[int, int] | None = None
    memory_gib: float | None = None
    gpus: int | None = None

    @property
    def described(self) -> str:
        """In a few words."""
        if not self.vendor:
            return "an unknown GPU"
        generation = (
            f", compute capability {self.capability[0]}.{self.capability[1]}" if self.capability else ""
        )
        count = f"{self.gpus} × " if self.gpus else ""
        return f"{count}{self.name or self.vendor}{generation}"


@dataclass(frozen=True)
class Checkpoint:
    """What the checkpoints' configuration says. None where they are not on this machine, or do not say.

    block: positions a parallel drafter was trained to draft at once, as its file counts them. heads: prediction heads
    (n_predict). layers: the target's kinds of layers. known_as: the model of the shipped list that the target was
    taken for by its name, "" where nothing was supposed. cache: the type of cache that the checkpoint asks for.
    vocabulary, draft_vocabulary: entries, of target and drafter. weights_gib: of target and drafter on disk.
    """

    block: int | None = None
    heads: int | None = None
    architectures: tuple[str, ...] = ()
    draft_architectures: tuple[str, ...] = ()
    model_type: str = ""
    layers: tuple[Layer, ...] | None = None
    known_as: str = ""
    cache: str | None = None
    vocabulary: int | None = None
    draft_vocabulary: int | None = None
    weights_gib: float | None = None


@dataclass(frozen=True)
class Traffic:
    """What is going to be asked of the server, as far as the reader says.

    sampling: names of sampling parameters that requests use. concurrency: requests under way.
    """

    dataset: str = ""
    temperature: float | None = None
    sampling: tuple[str, ...] = field(default=())
    concurrency: int | None = None


def ordered(findings: list[Finding]) -> list[Finding]:
    """What refuses first, then what warns, then what cannot be said."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.verdict))
