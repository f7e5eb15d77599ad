"""The trained head as a folder that vLLM loads as `"method": "eagle3"`, and this engine's drafter reads."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from avlab.training.eagle3.network import Eagle3Network, block_of

LAYER = "midlayer."


def export(network: Eagle3Network, vocabulary: Tensor, out: Path, facts: dict) -> Path:
    """Write config.json and model.safetensors (bfloat16) to `out`. vocabulary: [Q] rising target tokens.

    d2t: [Q] what is added to a draft token's number to give the target's; t2d: [V] whether a token is among them.
    """
    c = network.config
    tensors = {
        "fc.weight": network.fc.weight,
        "norm.weight": network.norm,
        "lm_head.weight": network.lm_head.weight,
    }
    for name, linear in network.linears().items():
        tensors[f"{LAYER}{block_of(name)}.{name}.weight"] = linear.weight
    tensors[f"{LAYER}input_layernorm.weight"] = network.input_layernorm
    tensors[f"{LAYER}hidden_norm.weight"] = network.hidden_norm
    tensors[f"{LAYER}post_attention_layernorm.weight"] = network.post_attention_layernorm
    written = {name: value.detach().bfloat16().contiguous() for name, value in tensors.items()}
    written["d2t"] = vocabulary - torch.arange(len(vocabulary))
    written["t2d"] = torch.zeros(c.vocabulary, dtype=torch.bool)
    written["t2d"][vocabulary] = True
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": c.hidden,
        "intermediate_size": c.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_epsilon,
        "rope_theta": c.rope_theta,
        "max_position_embeddings": c.max_positions,
        "vocab_size": c.vocabulary,
        "draft_vocab_size": len(vocabulary),
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": list(network.state_layers),
        "avlab": facts,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(written, out / "model.safetensors", metadata={"format": "pt"})
    return out
