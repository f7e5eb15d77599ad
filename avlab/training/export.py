"""Writing a trained drafter for serving: int8 weights with one scale a row, and its description."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from avlab.training.model import DrafterNetwork


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows rounded to int8: [out, in] -> ([out, in] int8, [out] float32 scale)."""
    scale = weight.abs().amax(1).clamp_min(1e-12) / 127
    return (weight / scale[:, None]).round().to(torch.int8), scale


def export(network: DrafterNetwork, vocabulary: Tensor, folder: Path, facts: dict) -> Path:
    """Write drafter.safetensors and drafter.json; matrices become int8, vectors stay float32. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"vocabulary": vocabulary.to(torch.int32)}
    for name, value in network.state_dict().items():
        if value.ndim == 2 and name.endswith(".weight"):
            tensors[name], tensors[f"{name}.scale"] = quantise(value)
        else:
            tensors[name] = value.float().contiguous()
    save_file(tensors, folder / "drafter.safetensors")
    config = network.config
    card = {
        "shape": network.shape.as_dict(),
        "hidden": config.hidden,
        "target_vocabulary": config.vocabulary,
        **facts,
    }
    (folder / "drafter.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return folder
