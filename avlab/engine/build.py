"""From a run's configuration to an engine that can serve: every check first, then weights, then step costs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from avlab.config import RunConfig
from avlab.cost_file import read_samples
from avlab.engine.checkpoint import CheckpointError, read_config, weights_hash
from avlab.engine.drafters.base import Drafter
from avlab.engine.drafters.block import BlockDrafter, read_card
from avlab.engine.drafters.llama import LlamaDrafter
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.fetch import target_folder
from avlab.engine.profile import Costs, profile, read_costs
from avlab.engine.target import Target
from avlab.engine.text import Text
from avlab.policies.fixed import NONE

SHIPPED_DRAFTER = Path(__file__).parent / "drafters" / "smollm2-135m-block"
Progress = Callable[[str, int, int], None]  # what is being done, done so far, total (0: unknown)


@dataclass(slots=True)
class Built:
    """An engine and what a run's record says of it."""

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


def choose_drafter(config: RunConfig, target_folder_: Path) -> tuple[str, Path | None, str | None]:
    """("block" | "llama" | "none", its folder, a note for the reader). `default` is the shipped one if it fits."""
    if config.drafter == "none":
        return "none", None, None
    folder = SHIPPED_DRAFTER if config.drafter == "default" else Path(config.drafter).expanduser()
    if (folder / "drafter.json").is_file():
        card, shape = read_card(folder), read_config(target_folder_)
        fits = (card["hidden"], card["target_vocabulary"]) == (shape.hidden, shape.vocabulary)
        if config.drafter == "default" and not fits:
            return (
                "none",
                None,
                (
                    f"The shipped drafter does not fit {target_folder_.name}: serving without one. A small Llama of "
                    "the same vocabulary can be given with --drafter FOLDER."
                ),
            )
        return "block", folder, None
    if (folder / "config.json").is_file():
        return "llama", folder, None
    raise CheckpointError(
        f"{folder} holds neither drafter.json nor config.json: --drafter takes a block drafter's folder, a small "
        "Llama of the target's vocabulary, default, or none."
    )


def build(config: RunConfig, progress: Progress = lambda text, done, total: None) -> Built:
    """Build what the configuration asks for. Raises CheckpointError, FetchError, CostError or PolicyError."""
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    folder = target_folder(config.target)
    kind, drafter_folder, note = choose_drafter(config, folder)
    text = Text(folder)
    if config.costs:
        read_samples(Path(config.costs).expanduser())  # a bad file is found before weights are read
    progress("loading the target", 0, 0)
    target = Target(folder, dtype, device, config.max_model_len)
    drafter: Drafter | None = None
    features = config.reading([config.arm]).recorded_features
    if drafter_folder is not None:
        progress("loading the drafter", 0, 0)
        if kind == "block":
            drafter = BlockDrafter(drafter_folder, target, config.K, config.head, features)
        else:
            drafter = LlamaDrafter(drafter_folder, target, config.max_num_seqs + 1, config.K, features)
    arm, notes = config.arm, [note] if note else []
    if drafter is None and arm.drafts:
        arm = NONE
    K = drafter.K if drafter else 0
    if target.length < K + 2:
        raise CheckpointError(
            f"The context holds {target.length} positions, too few for {K} drafts behind a prompt: "
            "raise --max-model-len, or choose a target that holds more."
        )
    settings = EngineConfig(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        new_request=config.new_request,
        measure_costs=config.measures_costs,
    )
    most = settings.batched_tokens(K)
    cache = target.new_cache(config.max_num_seqs + 1)  # one for a request served alone
    if config.costs:
        costs = read_costs(Path(config.costs).expanduser(), K, config.max_num_seqs, most)
    else:
        costs = profile(
            target,
            drafter,
            cache,
            config.max_num_seqs,
            most,
            lambda done, total: progress("timing steps", done, total),
        )
    engine = Engine(target, drafter, costs.table, settings, arm, cache)
    return Built(
        engine=engine,
        target=target,
        text=text,
        costs=costs,
        target_name=folder.name,
        target_hash=weights_hash(folder),
        drafter_name=f"{drafter.name}:{drafter_folder.name}" if drafter and drafter_folder else None,
        drafter_hash=weights_hash(drafter_folder) if drafter_folder else None,
        dtype=str(dtype).removeprefix("torch."),
        notes=notes,
    )
