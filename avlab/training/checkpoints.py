"""A training's state on disk: network, optimiser moments and place in the schedule, whole or not at all."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

NAME = "checkpoint.safetensors"


def save_training(
    folder: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    vocabulary: Tensor,
    meta: dict[str, str],
) -> None:
    """Write the folder's checkpoint. meta: "update" says how far the training is."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for i, p in enumerate(p for g in optimiser.param_groups for p in g["params"]):
        for name, value in optimiser.state.get(p, {}).items():
            tensors[f"optimiser.{i}.{name}"] = value
    tensors["vocabulary"] = vocabulary
    path = folder / NAME
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path.with_suffix(".part"), meta)
    path.with_suffix(".part").rename(path)


def load_training(folder: Path, network: nn.Module, optimiser: torch.optim.Optimizer) -> int | None:
    """Take over the folder's checkpoint; the update that it is of, None where there is none."""
    path = folder / NAME
    if not path.exists():
        return None
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        update = int(file.metadata()["update"])
    network.load_state_dict(
        {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
    )
    for i, p in enumerate(p for g in optimiser.param_groups for p in g["params"]):
        prefix = f"optimiser.{i}."
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if state:
            optimiser.state[p] = state
    return update
