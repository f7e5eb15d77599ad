"""What may stand in a config.json: keys that are read, keys that change nothing, and how the others are judged.

A key that nobody knows is refused where its name speaks of the arithmetic, and named in the run's record otherwise.
"""

import re
from typing import Any

READ = frozenset((
    "model_type", "architectures", "hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps",
    "rope_theta", "rope_scaling", "rope_parameters", "tie_word_embeddings", "attention_bias", "mlp_bias",
    "eos_token_id", "bos_token_id", "quantization_config", "compression_config", "auto_map",
))  # fmt: skip
# of training, of bookkeeping, of how a library computes or generates: the forward pass is the same whatever they say
INERT = frozenset((
    "_name_or_path", "_model_name_or_path", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
    "attn_implementation", "_flash_attn_2_enabled", "use_flash_attn", "use_flash_attention",
    "_experts_implementation", "transformers_version", "torch_dtype", "dtype", "transformers.js_config",
    "torchscript", "use_cache", "return_dict", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "initializer_range", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
    "decoder_start_token_id", "pretraining_tp", "id2label", "label2id", "problem_type", "num_labels",
    "task_specific_params", "finetuning_task", "tokenizer_class", "prefix", "chunk_size_feed_forward", "is_decoder",
    "is_llama_config", "max_sequence_length", "max_length", "min_length", "max_new_tokens", "do_sample",
    "temperature", "top_k", "top_p", "num_beams", "num_return_sequences", "gradient_checkpointing", "use_bfloat16",
    "tf_legacy_loss", "unsloth_version", "unsloth_fixed", "base_model_name_or_path", "model_max_length", "is_local",
    "local_files_only", "license", "language",
))  # fmt: skip
# parts of names that speak of the arithmetic
ARITHMETIC = re.compile(
    "scal|multipl|softcap|cap$|rope|rotary|theta|norm|eps|attn|attention|quant|bits|window|expert|moe|rout|bias|act"
    "|embed|logit|clip|position|alibi|residual|layer|head|gat(e|ing)|mix|loop|recur|spars|mask|qk|kv|compress|lora"
    "|adapter|ffn|mlp|hidden|skip|eagle|medusa|draft|tie|untie|share|conv|pool|state|memory|vision|encoder|decoder"
    "|parallel|dim|size|softmax|sink|temper|mup|yarn|ntk|pruned|value|query|num_"
)
SCALE = re.compile("factor|scal|multipl|pct|percent|ratio")
# a scale that is not 1 where a Llama has none: it stands for the usual 1 / sqrt(head size) and its like
NEVER_NEUTRAL = ("attention_multiplier", "attention_scale", "query_pre_attn_scalar", "scale_depth")


def neutral(name: str, value: Any) -> bool:
    """Whether a setting of this name says with its value that there is nothing of the kind."""
    if value is None or value is False or value in ([], {}, ""):
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        every_layer = isinstance(value, list) and all(each == "full_attention" for each in value)
        return name == "layer_types" and every_layer
    if name in NEVER_NEUTRAL:
        return False
    return value == (1 if SCALE.search(name) else 0)


def unread(config: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Keys of a config.json that are not read: those that may change the arithmetic, and those that nobody knows."""
    arithmetic: list[str] = []
    unknown: list[str] = []
    off = config.get("use_sliding_window") is False
    for name, value in config.items():
        if name in READ or name in INERT or "dropout" in name or neutral(name, value):
            continue
        if off and name in ("sliding_window", "max_window_layers"):
            continue
        (arithmetic if ARITHMETIC.search(name.lower()) else unknown).append(name)
    return arithmetic, unknown
