"""Asked by the doctor's test, in a process a GPU: what vLLM's selector takes for layers, and what its manager says.

In: {"vendor", "capability", "cells": [{"layer": .., "settings": ..}]}; out, as the last line: a list of
{"backend": name or null, "able": bool, "why": text}.
"""

# ruff: noqa: E402  vLLM is imported after its stand-ins are in place
import json
import logging
import sys
from types import SimpleNamespace as Part

import vllm_uninstalled

ORDER = json.load(sys.stdin)
vllm_uninstalled.prepare()
vllm_uninstalled.pretend(ORDER["vendor"], ORDER["capability"])
logging.disable(logging.CRITICAL)

import torch
import vllm.config.vllm as config
import vllm.v1.attention.selector as selector
from vllm.config.attention import AttentionConfig
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec
from vllm.v1.worker.gpu.attn_utils import (
    get_query_lens_mismatch_unsupported_backend,
    get_varlen_cudagraph_unsupported_backend,
)

DTYPES = {"auto": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
STATES = {
    "mamba1": "MAMBA1",
    "mamba2": "MAMBA2",
    "gdn": "GDN_ATTN",
    "linear": "LINEAR",
    "short convolution": "SHORT_CONV",
}


def settings_of(layer, asked):
    """A configuration as far as selector and builders read it."""
    tensor, K = asked["tensor"], asked["K"]
    heads, kv_heads = layer["heads"] // tensor, max(1, layer["kv_heads"] // tensor)
    sizes = {"kv_lora_rank": layer["head_size"] - (layer["rotary"] or 0)} if layer["kind"] == "latent" else {}
    sizes |= {"qk_nope_head_dim": layer["no_rotary"], "qk_rope_head_dim": layer["rotary"]} if sizes else {}
    sizes |= {"v_head_dim": layer["value_size"]} if sizes else {}
    if layer["top_k"]:
        sizes["index_topk"] = layer["top_k"]
    text = Part(attn_logit_softcapping=50.0 if layer["softcap"] else None, **sizes)
    attention = AttentionConfig(
        backend=asked["backend"],
        flash_attn_version=asked["flash_attention"],
        use_trtllm_attention=asked["trtllm"],
    )
    return Part(
        cache_config=Part(
            user_specified_block_size=asked["block_size"] is not None, block_size=asked["block_size"],
            cache_dtype=asked["cache"], use_replayssm=asked["replay_ssm"],
        ),
        kv_transfer_config=Part(is_kv_transfer_instance=True) if asked["connector"] else None,
        speculative_config=Part(
            enable_adaptive_verification=True, num_speculative_tokens=K, parallel_drafting=False, method="eagle3"
        ),
        attention_config=attention,
        parallel_config=Part(
            prefill_context_parallel_size=1, decode_context_parallel_size=asked["decode_context"],
            tensor_parallel_size=tensor, cp_kv_cache_interleave_size=1,
        ),
        model_config=Part(
            get_num_attention_heads=lambda parallel: heads, get_num_kv_heads=lambda parallel: kv_heads,
            get_head_size=lambda: layer["head_size"], hf_text_config=text, hf_config=text, is_diffusion=False,
            is_mm_prefix_lm=layer["prefix"], rswa_window=None, architectures=["LlamaForCausalLM"],
            use_mla=layer["kind"] == "latent", dtype=torch.bfloat16, attn_type="decoder",
        ),
        scheduler_config=Part(max_num_batched_tokens=8192, max_num_seqs=256),
        use_v2_model_runner=True, num_speculative_tokens=K,
    )  # fmt: skip


def specification(layer, kv_heads, block_size, cache):
    dtype = torch.bfloat16
    if layer["kind"] == "latent":
        return MLAAttentionSpec(
            block_size=block_size,
            num_kv_heads=1,
            head_size=layer["head_size"],
            dtype=dtype,
            cache_dtype_str=cache,
        )
    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=kv_heads, head_size=layer["head_size"], dtype=dtype
    )


def indexer(made):
    """The indexer beside a sparse layer."""
    from vllm.v1.attention.backends.mla.indexer import DeepseekV32IndexerBackend

    return (DeepseekV32IndexerBackend, made)


def answer(cell):
    layer, asked = cell["layer"], cell["settings"]
    made = settings_of(layer, asked)
    config._current_vllm_config = made
    selector._cached_get_attn_backend.cache_clear()
    backends = []
    if layer["kind"] in STATES:
        backends.append(
            (selector.get_mamba_attn_backend(MambaAttentionBackendEnum[STATES[layer["kind"]]]), None)
        )
    else:
        try:
            taken = selector.get_attn_backend(
                layer["head_size"], DTYPES[asked["dtype"]], asked["cache"], use_mla=layer["kind"] == "latent",
                has_sink=layer["sinks"], use_sparse=layer["sparse"], use_mm_prefix=layer["prefix"],
                num_heads=layer["heads"] // asked["tensor"],
            )  # fmt: skip
        except (
            ValueError,
            AttributeError,
        ) as error:  # a sparse backend asks plain models for sizes they have not
            return {"backend": None, "able": False, "why": str(error)[:600]}
        kv_heads = max(1, layer["kv_heads"] // asked["tensor"])
        spec = specification(layer, kv_heads, asked["block_size"] or 64, asked["cache"])
        backends.append((taken, spec))
        if layer["sparse"]:
            backends.append(indexer(spec))
    groups = []
    for backend, spec in backends:
        builder = backend.get_builder_cls()
        groups.append(Part(layer_names=["layer"], backend=backend, kv_cache_spec=spec,
                           get_metadata_builder=lambda index, builder=builder: builder))  # fmt: skip
    name = backends[0][0].get_name()
    if against := get_query_lens_mismatch_unsupported_backend([groups]):
        return {"backend": name, "able": False, "why": f"{against}: query lengths"}
    if against := get_varlen_cudagraph_unsupported_backend([groups], made, asked["K"] + 1):
        return {"backend": name, "able": False, "why": f"{against[0]}: graphs {against[1]}"}
    return {"backend": name, "able": True, "why": ""}


print(json.dumps([answer(cell) for cell in ORDER["cells"]]))
