"""Reading a Llama-architecture checkpoint: a folder with config.json, model.safetensors and tokenizer.json.

Everything that can be wrong with a checkpoint is found here, before anything else starts, and said in one sentence.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

# the numbers that a rotary embedding of each kind needs beside its base
ROPE_NUMBERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


class CheckpointError(Exception):
    """A checkpoint is missing, damaged or of a kind the engine does not serve. The message says what to do."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a Llama-architecture model, as its config.json gives it."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: tuple[tuple[str, float], ...]
    tied_embeddings: bool
    end_tokens: tuple[int, ...]


def read_json(path: Path) -> dict:
    """The object in a JSON file of a checkpoint; a missing or damaged file raises CheckpointError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist: give a model folder in Hugging Face format (config.json, *.safetensors, "
            "tokenizer.json), or run `avlab fetch` for the default one."
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path} cannot be read as JSON ({error}): fetch the checkpoint again."
        ) from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object: fetch the checkpoint again.")
    return content


def read_config(folder: Path) -> ModelConfig:
    """The model's shape. Raises CheckpointError for architectures and options the engine does not serve."""
    path = folder / "config.json"
    raw = read_json(path)
    if raw.get("model_type") != "llama":
        raise CheckpointError(
            f"{path} describes a {raw.get('model_type', 'model of unknown type')!r}; the reference engine serves "
            "'llama' checkpoints (model_type): choose one of those."
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(
            f"{path} asks for activation {raw['hidden_act']!r}; the reference engine has 'silu'."
        )
    (rope, kind), end = _rope(raw, path), _end_tokens(raw, folder)
    try:
        hidden, heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
        config = ModelConfig(
            vocabulary=int(raw["vocab_size"]),
            hidden=hidden,
            intermediate=int(raw["intermediate_size"]),
            layers=int(raw["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // max(heads, 1)),
            max_positions=int(raw.get("max_position_embeddings", 2048)),
            norm_epsilon=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))),
            rope_scaling=tuple((name, float(rope[name])) for name in ROPE_NUMBERS[kind]),
            tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
            end_tokens=tuple(int(t) for t in (end if isinstance(end, list) else [end]) if t is not None),
        )
    except KeyError as missing:
        raise CheckpointError(f"{path} lacks {missing}: it is not a complete Llama configuration.") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} holds a value that is not a number where one is due ({error})."
        ) from None
    _check(config, path)
    return config


def _rope(raw: dict, path: Path) -> tuple[dict, str]:
    """The numbers of the rotary embedding, and its kind."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else str(rope)
    if not isinstance(rope, dict) or kind not in ROPE_NUMBERS:
        raise CheckpointError(
            f"{path} asks for rotary scaling {kind!r}; known are {', '.join(ROPE_NUMBERS)}."
        )
    return rope, kind


def _end_tokens(raw: dict, folder: Path) -> Any:
    """What ends a text, as the checkpoint gives it: a number, a list of them, or None."""
    generation, end = folder / "generation_config.json", raw.get("eos_token_id")
    return read_json(generation).get("eos_token_id", end) if generation.exists() else end


def _check(c: ModelConfig, path: Path) -> None:
    """Raise CheckpointError for sizes that no Llama has."""
    sizes = {
        "vocab_size": c.vocabulary,
        "hidden_size": c.hidden,
        "intermediate_size": c.intermediate,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "max_position_embeddings": c.max_positions,
    }
    for name, size in sizes.items():
        if size < 1:
            raise CheckpointError(f"{path} gives {name} as {size}: it is not a Llama configuration.")
    if c.heads % c.kv_heads or c.head_dim % 2 or c.head_dim < 2:
        raise CheckpointError(
            f"{path} asks for {c.heads} heads of size {c.head_dim} that share {c.kv_heads} keys; the number of heads "
            "must be a multiple of that of keys, and the size even."
        )


class Weights(dict[str, Tensor]):
    """A checkpoint's tensors by name. `take` refuses what is missing or of another shape than is due."""

    def __init__(self, folder: Path, tensors: dict[str, Tensor]):
        super().__init__(tensors)
        self.folder = folder

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name. Raises CheckpointError if there is none, or it has another shape."""
        if name not in self:
            raise CheckpointError(f"{self.folder} has no tensor {name!r}: it is incomplete, fetch it again.")
        if self[name].shape != shape:
            raise CheckpointError(
                f"{self.folder}: the tensor {name} is {tuple(self[name].shape)} where {shape} is due: the files do not "
                "belong together, or to this model."
            )
        return self[name]

    def maybe(self, name: str, *shape: int) -> Tensor | None:
        """As `take`, but None if there is none."""
        return self.take(name, *shape) if name in self else None


def read_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> Weights:
    """All tensors of the folder's safetensors files by name. Raises CheckpointError for absent or truncated files."""
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        files = read_json(index).get("weight_map")
        if not isinstance(files, dict) or not files:
            raise CheckpointError(f"{index} names no files of weights: fetch the checkpoint again.")
        names = sorted(set(map(str, files.values())))
    weights = Weights(folder, {})
    for name in names:
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist: the checkpoint is incomplete, fetch it again.")
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for key in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
                    weights[key] = file.get_tensor(key).to(
                        device=device, dtype=dtype, copy=True
                    )  # frees the file
        except SafetensorError as error:
            raise CheckpointError(
                f"{path} is truncated or not a safetensors file ({error}): fetch the checkpoint again."
            ) from None
    return weights


def weights_hash(folder: Path) -> str:
    """First 16 hex digits of the SHA-256 over the folder's weight files: names the model in a run's record."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]
