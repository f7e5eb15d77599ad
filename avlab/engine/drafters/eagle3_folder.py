"""The folder of an EAGLE-3 head, as vLLM loads it: everything in it is checked before it is used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from avlab.engine.checkpoint import Weights
from avlab.engine.checkpoint_files import CONFIG, WEIGHTS, CheckpointError, check_whole, read_json, wrong
from avlab.engine.drafts import DraftVocabulary
from avlab.engine.model_config import ModelConfig
from avlab.formats import as_json

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
# what other heads of this architecture compute and this one does not, with the values that change nothing
PLAIN = {
    "num_hidden_layers": 1,
    "norm_before_residual": False,
    "norm_before_fc": False,
    "fc_norm": False,
    "norm_output": False,
    "attention_bias": False,
    "mlp_bias": False,
    "logit_scale": 1.0,
    "parallel_drafting": False,
    "rope_scaling": None,
}


def holds(folder: Path) -> bool:
    """Whether the folder's config.json is of such a head."""
    try:
        names = read_json(folder / CONFIG).get("architectures")
    except CheckpointError:
        return False  # the kind that shares the marker says what is wrong
    return isinstance(names, list) and any(name in ARCHITECTURES for name in names)


def head_config(folder: Path, raw: dict[str, Any], target: ModelConfig) -> ModelConfig:
    """The layer's shape. Raises CheckpointError for a head of another target, or one that computes something else."""
    path = folder / CONFIG
    for name, plain in PLAIN.items():
        value = raw.get(name, plain)
        if value != plain and not (name == "rope_scaling" and not value):
            raise CheckpointError(
                f"{path} asks for {name} = {as_json(value)}, which this engine's EAGLE-3 head does not compute: choose "
                "a head without it."
            )
    sizes = {name: size(folder, raw, name) for name in ("hidden_size", "vocab_size", "intermediate_size")}
    if (sizes["hidden_size"], sizes["vocab_size"]) != (target.hidden, target.vocabulary):
        raise CheckpointError(
            f"The EAGLE-3 head in {folder} was made for a target of hidden size {sizes['hidden_size']} and vocabulary "
            f"{sizes['vocab_size']}; this target has {target.hidden} and {target.vocabulary}: give the head that "
            "belongs to it, or run without one (--drafter none)."
        )
    heads = size(folder, raw, "num_attention_heads")
    kv_heads = size(folder, raw, "num_key_value_heads", heads)
    head_dim = size(folder, raw, "head_dim", max(target.hidden // heads, 1))
    if heads % kv_heads or head_dim % 2:
        raise CheckpointError(f"{path} asks for {heads} heads of size {head_dim} that share {kv_heads} keys.")
    epsilon, theta = (raw.get(name, usual) for name, usual in (("rms_norm_eps", 1e-6), ("rope_theta", 1e4)))
    for name, value, most in (("rms_norm_eps", epsilon, 1.0), ("rope_theta", theta, 1e12)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise wrong(path, name, value, f"above 0 and at most {most:g}")
    return replace(
        target,
        intermediate=sizes["intermediate_size"],
        layers=1,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_epsilon=float(epsilon),
        rope_theta=float(theta),
        rope_scaling=(),
        attention_bias=False,
        mlp_bias=False,
    )


def tapped_layers(folder: Path, raw: dict[str, Any], layers: int) -> tuple[int, ...]:
    """The target layers whose inputs the head reads; where its config.json is silent, vLLM's: 2, the middle, the last
    but two. Raises CheckpointError."""
    name, own = "eagle_aux_hidden_state_layer_ids", raw.get("eagle_config")
    named = raw.get(name) or (own.get(name) if isinstance(own, dict) else None)
    found = (2, layers // 2, layers - 3) if named is None else named
    whole = isinstance(found, list | tuple) and all(type(each) is int for each in found)
    if not whole or not found or list(found) != sorted(set(found)) or not 0 <= found[0] <= found[-1] < layers:
        raise wrong(folder / CONFIG, name, found, f"rising numbers from 0 to {layers - 1}")
    return tuple(found)


def read_head(folder: Path) -> Weights:
    """The tensors of a head's folder, as they are stored. Raises CheckpointError."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: the head is incomplete, fetch it again.")
    check_whole(path)
    weights = Weights(folder, {})
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
                value = file.get_tensor(name)
                if value.is_floating_point() and not value.isfinite().all():
                    raise CheckpointError(f"{path}: the tensor {name} holds values that are no numbers.")
                weights[name] = value
    except SafetensorError as error:
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}).") from None
    return weights


def draft_vocabulary(folder: Path, weights: Weights, Q: int, V: int) -> DraftVocabulary | None:
    """The tokens that the head can say; None where they are the target's own. d2t is what takes a draft token's number
    to the target's."""
    weights.maybe("t2d", V)  # says the same again
    steps = weights.maybe("d2t", Q)
    if steps is None:
        if Q != V:
            raise CheckpointError(
                f"{folder} has a draft vocabulary of {Q} tokens and no d2t: fetch it again."
            )
        return None
    ids = steps.long() + torch.arange(Q)
    if int(ids.min()) < 0 or int(ids.max()) >= V or not (ids.diff() > 0).all():
        raise CheckpointError(
            f"{folder}: d2t names tokens that the target lacks, or one twice: fetch it again."
        )
    return DraftVocabulary(ids, V)


def size(folder: Path, raw: dict[str, Any], name: str, usual: int | None = None) -> int:
    value = raw.get(name, usual)
    if type(value) is not int or not 1 <= value <= 10_000_000:
        raise wrong(folder / CONFIG, name, value, "a whole number from 1 to 10,000,000")
    return value
