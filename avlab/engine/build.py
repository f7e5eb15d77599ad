"""From settings to an engine that can serve: every check first, then weights, then step costs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from avlab.cost_file import read_samples
from avlab.engine.checkpoint import weights_hash
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafters.base import Drafter, DrafterContext, DrafterKind, kind_named, kind_of
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.fetch import target_folder
from avlab.engine.model_config import read_config
from avlab.engine.profile import Costs, profile, read_costs
from avlab.engine.target import Target
from avlab.engine.text import Text
from avlab.engine.unserved import read_and_unserved
from avlab.policies.arm import Arm, PolicyError
from avlab.policies.fixed import NONE
from avlab.speculation.features import DEFAULT_FEATURES

SHIPPED_DRAFTER = Path(__file__).parent / "drafters" / "smollm2-135m-block"
Progress = Callable[[str, int, int], None]  # what is being done, done so far, total (0: unknown)


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What an engine is built from.

    target: a model's folder, or the default's name. drafter: as `choose_drafter` takes it. K: draft positions, at most.
    arm_chosen: whether somebody chose the arm; one that was not may give way to `none` where no drafter fits.
    head: whether a confidence head is on. features: those that are recorded. device, dtype: as `choose_device` and
    `choose_dtype` take them. max_model_len: tokens of a request. costs: a file of step costs; None times them.
    """

    target: str
    drafter: str
    K: int
    arm: Arm
    arm_chosen: bool = True
    head: bool = True
    features: tuple[str, ...] = DEFAULT_FEATURES
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int = 2048
    costs: Path | None = None
    serving: EngineConfig = field(default_factory=EngineConfig)


@dataclass(slots=True)
class Built:
    """An engine and what a run's record says of it.

    notes: what is worth knowing. warnings: what is not as the reader may think, to be said wherever the run is shown.
    """

    engine: Engine
    target: Target
    text: Text
    costs: Costs
    target_name: str
    target_hash: str
    drafter_name: str | None
    drafter_hash: str | None
    dtype: str
    notes: list[str]
    warnings: list[str]


def choose_device(asked: str) -> torch.device:
    """`auto` is the first CUDA device, else the CPU. Raises CheckpointError for a CUDA device that is not there."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(asked)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise CheckpointError(
            f"There is no device {asked} on this machine: use --device cpu or --device auto."
        )
    return device


def choose_dtype(asked: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the processor multiplies it in hardware (CUDA, AVX-512 BF16, AMX), else float32."""
    if asked != "auto":
        return getattr(torch, asked)
    if device.type == "cuda":
        return torch.bfloat16
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if fast else torch.float32


@dataclass(frozen=True, slots=True)
class ChosenDrafter:
    """A kind of drafter with its folder, or without one with the options behind its name."""

    kind: DrafterKind
    folder: Path | None
    options: str = ""

    @property
    def name(self) -> str:
        """As a run's record names it."""
        own = self.folder.name if self.folder else self.options
        return f"{self.kind.name}:{own}" if own else self.kind.name

    def make(
        self,
        target: Target,
        requests: int,
        K: int,
        head: bool = True,
        features: tuple[str, ...] = DEFAULT_FEATURES,
    ) -> Drafter:
        """The drafter. Raises CheckpointError."""
        folder = self.folder or Path()
        return self.kind.make(DrafterContext(folder, target, requests, K, head, features, self.options))

    def said(self, target: Path) -> list[str]:
        """What a reader must know of it beside the target in this folder. Raises CheckpointError."""
        own = [self.kind.note] if self.kind.note else []
        return own + (self.kind.against(self.folder, target) if self.folder else [])


def choose_drafter(asked: str, target: Path) -> tuple[ChosenDrafter | None, str]:
    """The drafter, and why there is none where nobody asked for that. `default` is the shipped one if it fits.

    asked: default, a folder, none, or a kind without weights, NAME or NAME:OPTION=VALUE,...; target: the target's
    folder. Raises CheckpointError.
    """
    if asked == "none":
        return None, ""
    name, _, options = asked.partition(":")
    if named := kind_named(name):
        return ChosenDrafter(named, None, options), ""
    folder = SHIPPED_DRAFTER if asked == "default" else Path(asked).expanduser()
    kind = kind_of(folder)
    if asked == "default" and not kind.fits(folder, read_config(target)):
        return None, f"the shipped drafter does not fit {target.name}"
    return ChosenDrafter(kind, folder), ""


def build(settings: BuildSettings, progress: Progress = lambda text, done, total: None) -> Built:
    """Build what the settings ask for. Raises CheckpointError, FetchError, CostError or PolicyError."""
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, device)
    folder = target_folder(settings.target)
    chosen, why_none = choose_drafter(settings.drafter, folder)
    arm, warnings = settings.arm, read_and_unserved(folder)
    if why_none and arm.drafts:
        arm = without_drafter(settings, why_none)
        warnings.append(
            f"No drafts: {why_none}, so this run serves by policy {arm} in place of {settings.arm}. A small Llama of "
            "the same vocabulary can be given with --drafter FOLDER."
        )
    text = Text(folder)
    if chosen:
        warnings += chosen.said(folder)
    if settings.costs:
        read_samples(settings.costs)  # a bad file is found before weights are read
    progress("loading the target", 0, 0)
    target = Target(folder, dtype, device, settings.max_model_len)
    serving = settings.serving
    requests = serving.max_num_seqs
    drafter: Drafter | None = None
    if chosen:
        progress("loading the drafter", 0, 0)
        drafter = chosen.make(target, requests + 1, settings.K, settings.head, settings.features)
    notes = []
    if target.native and (said := target.native.tiles.note):
        notes.append(f"{said}; {target.native.products.partition(' (')[0]} serves.")
    K = drafter.K if drafter else 0
    if target.length < K + 2:
        raise CheckpointError(
            f"The context holds {target.length} positions, too few for {K} drafts behind a prompt: "
            "raise --max-model-len, or choose a target that holds more."
        )
    most = serving.batched_tokens(K)
    cache = target.new_cache(requests + 1)  # one for a request served alone
    if settings.costs:
        costs = read_costs(settings.costs, K, requests, most, target.padded)
    else:
        costs = profile(
            target,
            drafter,
            cache,
            requests,
            most,
            lambda done, total: progress("timing steps", done, total),
        )
    engine = Engine(target, drafter, costs.table, serving, arm, cache)
    return Built(
        engine=engine,
        target=target,
        text=text,
        costs=costs,
        target_name=folder.name,
        target_hash=weights_hash(folder),
        drafter_name=chosen.name if chosen else None,
        drafter_hash=weights_hash(chosen.folder) if chosen and chosen.folder else None,
        dtype=str(dtype).removeprefix("torch."),
        notes=notes,
        warnings=warnings,
    )


def without_drafter(settings: BuildSettings, why: str) -> Arm:
    """The arm where no drafter fits. Raises PolicyError where somebody chose one that drafts."""
    if settings.arm_chosen:
        raise PolicyError(
            f"policy {settings.arm} needs a drafter, and {why}: give a small Llama of the same vocabulary with "
            "--drafter FOLDER, or take --policy none."
        )
    return NONE
