"""Asks vLLM's own class of EAGLE-3 heads, on a CPU: loads a folder and computes a text, with plain causal attention.

In: {"target", "head": folders, "reference": a file with embedding, aux [n, S * H] and tokens [n]}. Out: architecture,
tapped layers, and a file beside the reference with outputs [n, H], logits [n, Q] and ids [Q].
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM
from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config

order = json.loads(sys.stdin.read())
reference = Path(order["reference"])
given = load_file(reference)


class Plain(nn.Module):
    """Causal attention over the rows themselves, in the place of vLLM's over its cache."""

    def __init__(self, head_dim: int):
        super().__init__()
        self.head_dim = head_dim

    def forward(self, q, k, v):
        q, k, v = (x.view(len(x), -1, self.head_dim).transpose(0, 1) for x in (q, k, v))
        k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        return mixed.transpose(0, 1).flatten(1)


speculation = {"method": "eagle3", "model": order["head"], "num_speculative_tokens": 3}
config = EngineArgs(
    model=order["target"],
    dtype="float32",
    max_model_len=256,
    enforce_eager=True,
    skip_tokenizer_init=True,
    speculative_config=speculation,
).create_engine_config()
draft = config.speculative_config.draft_model_config.hf_config
with set_current_vllm_config(config), torch.no_grad():
    init_distributed_environment(1, 0, f"file://{reference}.rendezvous", 0, "gloo")
    initialize_model_parallel(1, 1)
    torch.set_default_dtype(torch.float32)
    model = Eagle3LlamaForCausalLM(vllm_config=config)
    model.load_weights(iter(load_file(Path(order["head"]) / "model.safetensors").items()))
    model.model.embed_tokens.weight.data = given["embedding"]  # the target's, as vLLM shares it
    for module in model.modules():
        if hasattr(module, "quant_method"):
            object.__setattr__(module, "cpu_linear", F.linear)  # what vLLM sets once weights are loaded
    model.model.layers[0].self_attn.attn = Plain(draft.head_dim)
    fused = model.combine_hidden_states(given["aux"])
    out, outputs = model.model(given["tokens"], torch.arange(len(given["tokens"])), fused)
    steps = model.draft_id_to_target_id
    logits = F.linear(out, model.lm_head.weight[: len(steps)])  # vLLM pads the head
    ids = torch.arange(len(steps)) + steps
found = {"outputs": outputs, "logits": logits, "ids": ids}
save_file({name: x.contiguous() for name, x in found.items()}, f"{reference}.found")
layers = get_eagle3_aux_layers_from_config(config.speculative_config)
print(json.dumps({"architectures": draft.architectures, "layers": list(layers or ())}))
