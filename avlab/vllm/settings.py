"""What decides whether adaptive verification starts: a plain description, from a command or from a running server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from avlab.vllm import SERVED
from avlab.vllm.serve_line import ServeLine

Version = tuple[int, ...]
DEFAULT_UTILISATION = 0.92  # of a GPU's memory, vLLM's own default (config/cache.py)


@dataclass(frozen=True)
class Settings:
    """A server's settings as far as they matter here. None: not said, so vLLM decides.

    method: of drafting; None without speculation. adaptive: verification is asked to be adaptive. K: draft positions.
    runner: the value of VLLM_USE_V2_MODEL_RUNNER. largest_capture: tokens of the largest captured batch that was asked
    for. schedule: draft lengths by batch size are set.
    """

    model: str
    version: Version
    method: str | None = None
    K: int | None = None
    adaptive: bool = False
    draft_model: str | None = None
    draft_sample_method: str = "greedy"
    rejection_sample_method: str = "standard"
    local_argmax: bool = False
    parallel_drafting: bool = False
    other_vocabulary: bool = False
    schedule: bool = False
    runner: str | None = None
    eager: bool = False
    cudagraph_mode: str | None = None
    largest_capture: int | None = None
    backend: str | None = None
    draft_backend: str | None = None
    flash_attention: int | None = None
    lora: bool = False
    tensor: int = 1
    pipeline: int = 1
    decode_context: int = 1
    requests: int | None = None
    batched_tokens: int | None = None
    max_model_len: int | None = None
    profile_context: int = 8192
    microbatching: bool = False
    routed_experts: bool = False
    sampling_mask: bool = False
    sharded_sampling: bool = False
    log_stats: bool = True
    utilisation: float = DEFAULT_UTILISATION


def parse_version(text: str) -> Version:
    """ "0.33.0rc1+cu130" as (0, 33, 0); () where there is no number."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def from_line(line: ServeLine, version: str = SERVED) -> Settings:
    """The settings of a command, served by this version of vLLM."""
    given, spec = line.arguments, line.speculative
    graphs = _mapping(given.get("compilation-config"))
    attention = _mapping(given.get("attention-config"))
    sizes = given.get("cudagraph-capture-sizes") or graphs.get("cudagraph_capture_sizes")
    largest = given.get("max-cudagraph-capture-size", graphs.get("max_cudagraph_capture_size"))
    backend = given.get("attention-backend") or attention.get("backend")
    dbo = given.get("enable-dbo") or _number(given.get("ubatch-size"), 0) > 1
    return Settings(
        model=line.model,
        version=parse_version(version),
        cudagraph_mode=_name(graphs.get("cudagraph_mode")),
        largest_capture=_number(largest) or (max(map(int, _list(sizes))) if sizes else None),
        backend=_name(backend),
        flash_attention=_number(attention.get("flash_attn_version")),
        runner=line.environment.get("VLLM_USE_V2_MODEL_RUNNER"),
        eager=bool(given.get("enforce-eager", False)),
        lora=bool(given.get("enable-lora", False)),
        tensor=_number(given.get("tensor-parallel-size"), 1),
        pipeline=_number(given.get("pipeline-parallel-size"), 1),
        decode_context=_number(given.get("decode-context-parallel-size"), 1),
        requests=_number(given.get("max-num-seqs")),
        batched_tokens=_number(given.get("max-num-batched-tokens")),
        max_model_len=_number(given.get("max-model-len")),
        profile_context=_number(line.environment.get("VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"), 8192),
        microbatching=bool(dbo),
        routed_experts=bool(given.get("enable-return-routed-experts", False)),
        sampling_mask=bool(given.get("return-sampling-mask", False)),
        sharded_sampling=bool(given.get("enable-batch-sharded-sampling", False)),
        log_stats=not given.get("disable-log-stats", False),
        utilisation=float(given.get("gpu-memory-utilization", DEFAULT_UTILISATION)),
        **_speculation(spec),
    )


def from_server(config: Mapping[str, Any], environment: Mapping[str, Any], version: str) -> Settings:
    """The settings of a running server, from /server_info?config_format=json."""

    def part(name: str) -> Mapping[str, Any]:
        return _mapping(config.get(name))

    model, parallel, scheduler = part("model_config"), part("parallel_config"), part("scheduler_config")
    graphs, attention = part("compilation_config"), part("attention_config")
    runner = environment.get("VLLM_USE_V2_MODEL_RUNNER")
    return Settings(
        model=str(model.get("model", "")),
        version=parse_version(version),
        cudagraph_mode=_graph_mode(graphs.get("cudagraph_mode")),
        largest_capture=_number(graphs.get("max_cudagraph_capture_size")),
        backend=_name(attention.get("backend")),
        flash_attention=_number(attention.get("flash_attn_version")),
        runner=None if runner is None else str(int(bool(runner))),
        eager=bool(model.get("enforce_eager", False)),
        lora=bool(config.get("lora_config")),
        tensor=_number(parallel.get("tensor_parallel_size"), 1),
        pipeline=_number(parallel.get("pipeline_parallel_size"), 1),
        decode_context=_number(parallel.get("decode_context_parallel_size"), 1),
        requests=_number(scheduler.get("max_num_seqs")),
        batched_tokens=_number(scheduler.get("max_num_batched_tokens")),
        max_model_len=_number(model.get("max_model_len")),
        profile_context=_number(environment.get("VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"), 8192),
        microbatching=bool(parallel.get("enable_dbo", False)),
        routed_experts=bool(model.get("enable_return_routed_experts", False)),
        sampling_mask=bool(model.get("return_sampling_mask", False)),
        sharded_sampling=bool(parallel.get("enable_batch_sharded_sampling", False)),
        utilisation=float(part("cache_config").get("gpu_memory_utilization") or DEFAULT_UTILISATION),
        **_speculation(part("speculative_config")),
    )


def _speculation(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": _method(spec),
        "K": _number(spec.get("num_speculative_tokens")),
        "adaptive": bool(spec.get("enable_adaptive_verification", False)),
        "draft_model": spec.get("model"),
        "draft_sample_method": spec.get("draft_sample_method") or "greedy",
        "rejection_sample_method": spec.get("rejection_sample_method") or "standard",
        "local_argmax": bool(spec.get("use_local_argmax_reduction", False)),
        "parallel_drafting": bool(spec.get("parallel_drafting", False)),
        "other_vocabulary": bool(spec.get("use_heterogeneous_vocab", False)),
        "schedule": bool(spec.get("num_speculative_tokens_per_batch_size")),
        "draft_backend": _name(spec.get("attention_backend")),
    }


def _method(spec: Mapping[str, Any]) -> str | None:
    if not spec:
        return None
    return spec.get("method") or ("draft_model" if spec.get("model") else "ngram")


def _graph_mode(value: Any) -> str | None:
    """A mode's name from the number, or pair of numbers, that a server tells (vllm/config/compilation.py)."""
    known = {
        "0": "NONE",
        "1": "PIECEWISE",
        "2": "FULL",
        "[2, 0]": "FULL_DECODE_ONLY",
        "[2, 1]": "FULL_AND_PIECEWISE",
    }
    return known.get(str(value)) or _name(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _name(value: Any) -> str | None:
    """The name of an enumeration's member, however it was written ("AttentionBackendEnum.FLASH_ATTN")."""
    return None if value in (None, "") else str(value).rpartition(".")[2].upper()


def _number(value: Any, default: Any = None) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError):
        return default
