"""Asked by the doctor's test: whether backends that a model names itself take lengths that the GPU decides.

In: {"vendor", "capability", "models": {model type: ["module:class", ..]}}; out, as the last line: for each model type
the first backend that cannot, and why; "" where all can.
"""

# ruff: noqa: E402  vLLM is imported after its stand-ins are in place
import importlib
import json
import logging
import sys
from types import SimpleNamespace as Part

import vllm_uninstalled

ORDER = json.load(sys.stdin)
vllm_uninstalled.prepare()
vllm_uninstalled.pretend(ORDER["vendor"], ORDER["capability"])
logging.disable(logging.CRITICAL)

import vllm.config.vllm as config
from vllm.config.attention import AttentionConfig
from vllm.v1.worker.gpu.attn_utils import (
    get_query_lens_mismatch_unsupported_backend,
    get_varlen_cudagraph_unsupported_backend,
)

vllm_uninstalled.MORE += ("torchvision",)  # pictures' sizes, in the same packages
ARCHITECTURES = {"deepseek_v4": "DeepseekV4ForCausalLM", "deepseek_v41": "DeepseekV41ForCausalLM"}


def settings_of(model):
    parallel = Part(decode_context_parallel_size=1, prefill_context_parallel_size=1, tensor_parallel_size=8)
    return Part(
        speculative_config=Part(
            enable_adaptive_verification=True, num_speculative_tokens=7, parallel_drafting=False, method="dspark"
        ),
        parallel_config=parallel, attention_config=AttentionConfig(),
        cache_config=Part(use_replayssm=False, cache_dtype="auto"), num_speculative_tokens=7, use_v2_model_runner=True,
        model_config=Part(architectures=[ARCHITECTURES.get(model, model)], get_num_attention_heads=lambda p: 8,
                          get_num_kv_heads=lambda p: 1),
    )  # fmt: skip


def answer(model, paths):
    config._current_vllm_config = settings_of(model)
    groups = []
    for path in paths:
        module, name = path.split(":")
        backend = getattr(importlib.import_module(module), name)
        builder = backend.get_builder_cls()
        groups.append(Part(layer_names=["layer"], backend=backend, kv_cache_spec=None,
                           get_metadata_builder=lambda index, builder=builder: builder))  # fmt: skip
    against = get_query_lens_mismatch_unsupported_backend([groups])
    return against or get_varlen_cudagraph_unsupported_backend([groups], config._current_vllm_config, 8) or ""


print(json.dumps([answer(model, paths) for model, paths in ORDER["models"].items()]))
