"""A Llama's shape from its config.json: every value checked, every key known, refused or named. No torch here."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avlab.engine.checkpoint_files import CONFIG, CheckpointError, read_json, wrong
from avlab.engine.config_keys import neutral, unread
from avlab.engine.special_tokens import end_tokens
from avlab.formats import as_json

# the numbers that a rotary embedding of each kind needs beside its base
ROPE_NUMBERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
ROPE_KEYS = ("rope_type", "type", "rope_theta", "original_max_position_embeddings")
LARGEST = 10_000_000  # of any size: ten times the longest context, forty times the largest vocabulary in use
# files beside config.json that say how weights were quantised, and who writes them
QUANTISED_BY = {
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
    "hf_quant_config.json": "ModelOpt",
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a Llama-architecture model, as its config.json gives it.

    attention_bias, mlp_bias: whether its projections have biases, all of them. end_tokens: those that end a text.
    """

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
    attention_bias: bool = False
    mlp_bias: bool = False


class _Values:
    """Values of a config.json by name; each is checked as it is read."""

    def __init__(self, raw: dict[str, Any], path: Path):
        self.raw, self.path = raw, path

    def whole(self, name: str, default: int | None = None) -> int:
        """A size. Raises CheckpointError for what is missing or none; null is as good as nothing."""
        value = self.raw.get(name)
        value = default if value is None and default is not None else value
        if name not in self.raw and value is None:
            raise CheckpointError(f"{self.path} lacks {name!r}: it is not a complete Llama configuration.")
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(self.path, name, value, "a whole number; this is not a number of that kind")
        if not 1 <= value <= LARGEST:
            raise wrong(self.path, name, value, f"1 to {LARGEST:,}")
        return value

    def number(self, name: str, default: float | None = None, most: float = math.inf) -> float:
        """A finite number above 0."""
        value = self.raw.get(name)
        value = default if value is None and default is not None else value
        if name not in self.raw and value is None:
            raise CheckpointError(f"{self.path} lacks {name!r}: it is not a complete Llama configuration.")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(self.path, name, value, "a number; this is not a number")
        if not 0 < value < math.inf or value > most:
            raise wrong(
                self.path, name, value, f"above 0 and {f'at most {most:g}' if most < math.inf else 'finite'}"
            )
        return float(value)

    def flag(self, name: str) -> bool:
        """A yes or no; no where nothing is said."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, bool):
            raise wrong(self.path, name, value, "true or false")
        return bool(value)


def read_config(folder: Path) -> ModelConfig:
    """The model's shape. Raises CheckpointError for architectures and options the engine does not serve."""
    path = folder / CONFIG
    raw = read_json(path)
    _check_kind(raw, path)
    _check_plain(raw, folder)
    arithmetic, _ = unread(raw)
    if arithmetic:
        named = ", ".join(f"{name} ({as_json(raw[name])})" for name in arithmetic[:5])
        raise CheckpointError(
            f"{path} asks for what the reference engine does not compute: {named}. The target would not be the model "
            "that its maker meant: choose another one."
        )
    values = _Values(raw, path)
    kind, rope = _rope(raw, path)
    heads, hidden = values.whole("num_attention_heads"), values.whole("hidden_size")
    config = ModelConfig(
        vocabulary=values.whole("vocab_size"),
        hidden=hidden,
        intermediate=values.whole("intermediate_size"),
        layers=values.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=values.whole("num_key_value_heads", heads),
        head_dim=values.whole("head_dim", max(hidden // heads, 1)),
        max_positions=values.whole("max_position_embeddings", 2048),
        norm_epsilon=values.number("rms_norm_eps", 1e-6, most=1.0),
        rope_theta=rope.number("rope_theta", 10000.0),
        rope_scaling=tuple((name, rope.number(name)) for name in ROPE_NUMBERS[kind]),
        tied_embeddings=values.flag("tie_word_embeddings"),
        end_tokens=end_tokens(folder, raw),
        attention_bias=values.flag("attention_bias"),
        mlp_bias=values.flag("mlp_bias"),
    )
    if config.heads % config.kv_heads or config.head_dim % 2:
        raise CheckpointError(
            f"{path} asks for {config.heads} heads of size {config.head_dim} that share {config.kv_heads} keys; the "
            "number of heads must be a multiple of that of keys, and the size (head_dim) even."
        )
    scaling = dict(config.rope_scaling)
    if "low_freq_factor" in scaling and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise CheckpointError(f"{path} gives a high_freq_factor that is not above its low_freq_factor.")
    return config


def unknown_keys(folder: Path) -> list[str]:
    """Keys of the folder's config.json that nobody knows, and that do not sound like arithmetic."""
    return unread(read_json(folder / CONFIG))[1]


def _check_kind(raw: dict[str, Any], path: Path) -> None:
    """Raise CheckpointError for a model that is no plain Llama."""
    if raw.get("model_type") != "llama":
        raise CheckpointError(
            f"{path} describes a {raw.get('model_type', 'model of unknown type')!r}; the reference engine serves "
            "'llama' checkpoints (model_type): choose one of those."
        )
    names = raw.get("architectures")
    if names and (not isinstance(names, list) or "LlamaForCausalLM" not in names):
        raise CheckpointError(
            f"{path} is of the architecture {as_json(names)}; the reference engine serves LlamaForCausalLM: choose one "
            "of those."
        )
    own = raw.get("auto_map")
    if isinstance(own, dict) and (code := own.get("AutoModelForCausalLM") or own.get("AutoModel")):
        raise CheckpointError(
            f"{path} asks for code of its own (auto_map: {as_json(code)}), which nobody runs here: choose a checkpoint "
            "that is a Llama as transformers has it."
        )
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):
        raise CheckpointError(
            f"{path} asks for activation {as_json(raw['hidden_act'])}; the reference engine has 'silu'."
        )


def _check_plain(raw: dict[str, Any], folder: Path) -> None:
    """Raise CheckpointError for quantised weights, by whatever says so, and for an adapter beside the weights."""
    for key in ("quantization_config", "compression_config"):
        found = raw.get(key)
        if found in (None, {}):
            continue
        method = found.get("quant_method") or found.get("format") if isinstance(found, dict) else None
        raise CheckpointError(
            f"{folder / CONFIG} has a {key}: the weights are quantised ({as_json(method or found)}), which the "
            "reference engine does not compute: take the checkpoint in bfloat16, float16 or float32."
        )
    for name, by in QUANTISED_BY.items():
        if (folder / name).is_file():
            raise CheckpointError(
                f"{folder / name} says that the weights are quantised ({by}), which the reference engine does not "
                "compute: take the checkpoint in bfloat16, float16 or float32."
            )
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder} holds an adapter (adapter_config.json) beside the model, which would not be applied: merge it "
            "into the weights, or remove it from the folder."
        )


def _rope(raw: dict[str, Any], path: Path) -> tuple[str, _Values]:
    """The kind of the rotary embedding, and its numbers, rope_theta among them."""
    found: dict[str, Any] = {} if raw.get("rope_theta") is None else {"rope_theta": raw["rope_theta"]}
    for key in ("rope_scaling", "rope_parameters"):
        given = raw.get(key)
        if given is None:
            continue
        if not isinstance(given, dict):
            raise CheckpointError(f"{path} asks for rotary scaling {as_json(given)}; known are {_kinds()}.")
        for name, value in given.items():
            name = "rope_type" if name == "type" else name
            if found.setdefault(name, value) != value:
                raise CheckpointError(
                    f"{path} gives two values of the rotary embedding's {name}, {as_json(found[name])} and "
                    f"{as_json(value)}: leave the right one."
                )
    kind = found.get("rope_type", "default")
    if not isinstance(kind, str) or kind not in ROPE_NUMBERS:
        raise CheckpointError(f"{path} asks for rotary scaling {as_json(kind)}; known are {_kinds()}.")
    for name, value in found.items():
        if name not in ROPE_KEYS and name not in ROPE_NUMBERS[kind] and not neutral(name, value):
            raise CheckpointError(
                f"{path} gives the rotary embedding a {name} of {as_json(value)}, which a {kind!r} one does not have: "
                "the reference engine does not compute it."
            )
    return kind, _Values(found, path)


def _kinds() -> str:
    return ", ".join(ROPE_NUMBERS)
