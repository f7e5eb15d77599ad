"""What a target's layers ask of attention, from its configuration: one `Layer` for each kind of layer it has.

A model's layers choose their backends one kind at a time (`vllm/v1/attention/selector.py`), so a hybrid target has as
many answers as it has kinds of layers. Types whose code in vLLM 0.33 was read are in `READ`; of others nothing is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["standard", "latent", "mamba1", "mamba2", "gdn", "linear", "short convolution", "own"]

STANDARD = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
    "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe",
    "qwen3_omni_moe_thinker", "qwen3_omni_moe_text", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "phi3",
    "glm4", "glm4_moe", "minimax_m2", "seed_oss", "smollm3", "olmo2", "olmo3", "cohere", "cohere2", "exaone4",
    "ernie4_5", "ernie4_5_moe", "gpt_oss", "granite", "granitemoe", "starcoder2", "stablelm", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "mistral3", "muse_glimmer", "muse_glimmer_text",
}  # fmt: skip
LATENT = {
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe_lite",
    "longcat_flash",
}  # fmt: skip
HYBRID: dict[str, Kind] = {  # beside layers of standard attention
    "qwen3_next": "gdn", "qwen3_5": "gdn", "qwen3_5_text": "gdn", "qwen3_5_moe": "gdn", "qwen3_5_moe_text": "gdn",
    "nemotron_h": "mamba2", "falcon_h1": "mamba2", "granitemoehybrid": "mamba2", "zamba2": "mamba2", "jamba": "mamba1",
    "lfm2": "short convolution", "lfm2_moe": "short convolution", "bailing_moe_linear": "linear",
}  # fmt: skip
RECURRENT: dict[str, Kind] = {"mamba": "mamba1", "falcon_mamba": "mamba1", "mamba2": "mamba2"}
OWN = {  # they name their backends themselves
    "deepseek_v4", "deepseek_v41", "inkling_mm_model", "inkling_model", "minimax_m3", "minimax_m3_vl", "qwen4_exp",
    "step5", "dots3_note", "kimi_k3", "kimi_linear", "mimo_v2", "mimo_v2_flash", "llama4", "llama4_text",
}  # fmt: skip
SINKS = {"gpt_oss"}
PREFIX = {"gemma3", "paligemma", "molmo2", "bagel", "moondream3"}  # images are seen from both sides
READ = STANDARD | LATENT | OWN | set(HYBRID) | set(RECURRENT)


@dataclass(frozen=True)
class Layer:
    """One kind of a target's layers.

    kind: "standard", "latent" (MLA), a state-space kind, or "own" for a model with backends of its own. head_size: of
    the cache, per head; of a latent layer its rank and rotary part together. heads, kv_heads: of the whole model.
    no_rotary: a latent layer's head size without its rotary part. sparse: a latent layer behind an indexer.
    """

    kind: Kind
    head_size: int = 0
    heads: int = 0
    kv_heads: int = 0
    no_rotary: int | None = None
    rotary: int | None = None
    value_size: int | None = None
    sparse: bool = False
    top_k: int | None = None
    sinks: bool = False
    prefix: bool = False
    softcap: bool = False


def layers_of(config: Mapping[str, Any]) -> tuple[Layer, ...] | None:
    """The kinds of layers of a checkpoint's config.json; None where its type was not read."""
    text = language_model(config)
    outer = str(config.get("model_type", ""))
    kind = outer if outer in READ else str(text.get("model_type", outer))
    if kind not in READ:
        return None
    if kind in OWN:
        return (_own(kind, text),)
    if kind in RECURRENT:
        return (Layer(RECURRENT[kind]),)
    if kind in LATENT or str(text.get("model_type")) in LATENT:
        latent = _latent(text)
        return None if latent is None else (latent,)
    head_sizes = _head_sizes(text)
    if head_sizes is None:
        return None
    standard = tuple(_standard(text, size, kind, config) for size in head_sizes)
    return (*standard, Layer(HYBRID[kind])) if kind in HYBRID else standard


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration: Qwen3-Omni's is its thinker's."""
    outer = _part(config, "thinker_config") or config
    return _part(outer, "text_config") or _part(outer, "llm_config") or outer


def _standard(text: Mapping[str, Any], head_size: int, kind: str, config: Mapping[str, Any]) -> Layer:
    heads = _whole(text, "num_attention_heads") or 0
    vision = "vision_config" in config
    bidirectional = text.get("use_bidirectional_attention") == "vision"
    return Layer(
        "standard",
        head_size,
        heads,
        _whole(text, "num_key_value_heads") or heads,
        sinks=kind in SINKS,
        prefix=(kind in PREFIX and vision) or bidirectional or bool(config.get("is_mm_prefix_lm")),
        softcap=bool(text.get("attn_logit_softcapping")),
    )


def _head_sizes(text: Mapping[str, Any]) -> list[int] | None:
    """The sizes there are, largest first: Gemma 4's global layers have a size of their own."""
    heads, hidden = _whole(text, "num_attention_heads"), _whole(text, "hidden_size")
    named = _whole(text, "head_dim") or _whole(text, "attention_head_dim")
    found = named or (hidden // heads if heads and hidden else None)
    if found is None:
        return None
    return sorted({found, _whole(text, "global_head_dim") or found}, reverse=True)


def _latent(text: Mapping[str, Any]) -> Layer | None:
    rank = _whole(text, "kv_lora_rank")
    if rank is None:
        return None
    rotary = _whole(text, "qk_rope_head_dim") or 0
    return Layer(
        "latent",
        rank + rotary,
        _whole(text, "num_attention_heads") or 0,
        1,
        no_rotary=_whole(text, "qk_nope_head_dim"),
        rotary=rotary,
        value_size=_whole(text, "v_head_dim"),
        sparse=_whole(text, "index_topk") is not None,
        top_k=_whole(text, "index_topk"),
    )


def _own(kind: str, text: Mapping[str, Any]) -> Layer:
    """A model with backends of its own. What of its attention decides stays: Kimi-K3's latent layers, MiMo's sizes."""
    latent = _latent(text) or Layer("own")
    size = latent.head_size or _whole(text, "head_dim") or 0
    value = latent.value_size or _whole(text, "v_head_dim")
    return Layer(
        "own",
        size,
        _whole(text, "num_attention_heads") or 0,
        _whole(text, "num_key_value_heads") or 1,
        no_rotary=latent.no_rotary,
        rotary=latent.rotary,
        value_size=value,
    )


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _whole(values: Mapping[str, Any], name: str) -> int | None:
    found = values.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
