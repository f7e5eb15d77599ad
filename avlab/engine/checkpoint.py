"""Reading a Llama-architecture checkpoint: a folder with config.json, model.safetensors and tokenizer.json.

Everything that can be wrong with a checkpoint is found here, before anything else starts, and said in one sentence.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor


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
    rope = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise CheckpointError(
            f"{path} asks for rotary scaling {kind!r}; known are default, linear and llama3."
        )
    theta = float(rope.pop("rope_theta", raw.get("rope_theta", 10000.0)))
    end = raw.get("eos_token_id")
    generation = folder / "generation_config.json"
    if generation.exists():
        end = read_json(generation).get("eos_token_id", end)
    try:
        return ModelConfig(
            vocabulary=int(raw["vocab_size"]),
            hidden=int(raw["hidden_size"]),
            intermediate=int(raw["intermediate_size"]),
            layers=int(raw["num_hidden_layers"]),
            heads=int(raw["num_attention_heads"]),
            kv_heads=int(raw.get("num_key_value_heads") or raw["num_attention_heads"]),
            head_dim=int(raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]),
            max_positions=int(raw.get("max_position_embeddings", 2048)),
            norm_epsilon=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=theta,
            rope_scaling=tuple(
                sorted((name, float(value)) for name, value in rope.items() if kind != "default")
            ),
            tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
            end_tokens=() if end is None else tuple(end) if isinstance(end, list) else (int(end),),
        )
    except KeyError as missing:
        raise CheckpointError(f"{path} lacks {missing}: it is not a complete Llama configuration.") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} holds a value that is not a number where one is due ({error})."
        ) from None


def read_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """All tensors of the folder's safetensors files by name. Raises CheckpointError for absent or truncated files."""
    index = folder / "model.safetensors.index.json"
    several = index.exists()
    names = sorted(set(read_json(index).get("weight_map", {}).values())) if several else ["model.safetensors"]
    weights: dict[str, Tensor] = {}
    for name in names:
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist: the checkpoint is incomplete, fetch it again.")
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for key in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
                    weights[key] = file.get_tensor(key).to(device=device, dtype=dtype)
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
