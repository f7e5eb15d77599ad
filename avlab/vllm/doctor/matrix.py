"""Which models adaptive verification starts with on which GPUs: the doctor's answer for each pair, with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass

from avlab.vllm import SERVED
from avlab.vllm.doctor.attention import attention
from avlab.vllm.doctor.facts import names
from avlab.vllm.doctor.findings import Verdict
from avlab.vllm.doctor.look import checkpoint_of
from avlab.vllm.doctor.machines import machine_named
from avlab.vllm.settings import Settings, parse_version

NAMING = "--attention-backend "
GPUS = ("a100", "l40s", "h100", "b200", "rtx-pro-6000", "mi355x")  # one of each generation


@dataclass(frozen=True)
class Cell:
    """What vLLM does with one model on one GPU, asked for adaptive verification and for nothing else."""

    model: str
    gpu: str
    verdict: Verdict
    reason: str
    remedy: str

    @property
    def short(self) -> str:
        """The verdict in a word; "→ TRITON_ATTN" where it refuses, and serves once that backend is named."""
        if self.verdict == "refuses" and self.remedy.startswith(NAMING):
            return f"→ {self.remedy.removeprefix(NAMING).rstrip('.')}"
        return {"refuses": "refuses", "unknown": "?"}.get(self.verdict, "serves")


def matrix(models: Sequence[str] = (), gpus: Sequence[str] = GPUS, version: str = SERVED) -> list[Cell]:
    """A cell for each model and GPU, by default of every model that ships.

    Asked with vLLM's defaults on one GPU. Raises MachineError for a GPU that is not known.
    """
    cells = []
    for model in models or names():
        checkpoint = checkpoint_of(model, None)
        for gpu in gpus:
            settings = Settings(model, parse_version(version), method="dspark", K=7, adaptive=True)
            found = attention(settings, checkpoint, machine_named(gpu))
            cells.append(Cell(model, gpu, found.verdict, found.reason, found.remedy))
    return cells
