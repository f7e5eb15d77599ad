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
    for. schedule: draft lengths by batch size are set. optimisation: the level of -O. compilation: its mode, as the
    number or name given. synthetic: how many of the two ways to set a synthetic acceptance are used. window: of FLy.
    sizes: captured sizes by name. cache: type of the cache, "auto" as vLLM's default. aiter: VLLM_ROCM_USE_AITER.
    """

    model: str
    version: Version
    method: str | None = None
    K: int | None = None
    adaptive: bool = False
    draft_model: str | None = None
    draft_sample_method: str = "greedy"
    rejection_sample_method: str = "standard"
    synthetic: int = 0
    window: int | None = None
    local_argmax: bool = False
    draft_tensor: int | None = None
    parallel_drafting: bool = False
    other_vocabulary: bool = False
    schedule: bool = False
    runner: str | None = None
    eager: bool = False
    optimisation: int = 2
    compilation: str | None = None
    cudagraph_mode: str | None = None
    largest_capture: int | None = None
    sizes: tuple[int, ...] = ()
    backend: str | None = None
    draft_backend: str | None = None
    backends_by_kind: bool = False
    flash_attention: int | None = None
    trtllm: bool | None = None
    batch_invariant: bool = False
    cache: str = "auto"
    dtype: str = "auto"
    text_only: bool = False
    block_size: int | None = None
    connector: bool = False
    replay_ssm: bool = False
    aiter: bool = False
    aiter_mla: bool = False
    aiter_mha: bool = False
    lora: bool = False
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    local_data: int | None = None
    nodes: int = 1
    prefill_context: int = 1
    decode_context: int = 1
    requests: int | None = None
    batched_tokens: int | None = None
    max_model_len: int | None = None
    profile_context: int = 8192
    throughput: bool = False
    microbatching: bool = False
    routed_experts: bool = False
    sampling_mask: bool = False
    logprobs: str = "raw_logprobs"
    all2all: str = ""
    sharded_sampling: bool = False
    log_stats: bool = True
    utilisation: float = DEFAULT_UTILISATION

    @property
    def before_0_33(self) -> bool:
        """Whether this is vLLM 0.32 or older, as far as its version is known."""
        return bool(self.version) and self.version < (0, 33)


def parse_version(text: str) -> Version:
    """ "0.33.0rc1+cu130" as (0, 33, 0); () where there is no number."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def from_line(line: ServeLine, version: str = SERVED) -> Settings:
    """The settings of a command, served by this version of vLLM."""
    given, spec = line.arguments, line.speculative
    graphs = _mapping(given.get("compilation-config"))
    attention = _mapping(given.get("attention-config"))
    environment = line.environment
    sizes = given.get("cudagraph-capture-sizes") or graphs.get("cudagraph_capture_sizes")
    largest = given.get("max-cudagraph-capture-size", graphs.get("max_cudagraph_capture_size"))
    backend = given.get("attention-backend") or attention.get("backend")
    dbo = given.get("enable-dbo") or _number(given.get("ubatch-size"), 0) > 1
    aiter = _truth(environment, "VLLM_ROCM_USE_AITER", False)
    return Settings(
        model=line.model,
        version=parse_version(version),
        cudagraph_mode=_name(graphs.get("cudagraph_mode")),
        optimisation=_level(given.get("optimization-level")),
        compilation=_compilation(graphs, environment),
        largest_capture=_number(largest) or max(_wholes(sizes), default=None),
        sizes=_wholes(sizes),
        backend=_backend(backend),
        backends_by_kind=bool(attention.get("backend_per_kind")),
        flash_attention=_number(attention.get("flash_attn_version")),
        trtllm=attention.get("use_trtllm_attention"),
        batch_invariant=_truth(environment, "VLLM_BATCH_INVARIANT", False),
        cache=str(given.get("kv-cache-dtype") or "auto"),
        dtype=str(given.get("dtype") or "auto"),
        text_only=_text_only(given),
        block_size=_number(given.get("block-size")),
        connector=bool(given.get("kv-transfer-config")),
        replay_ssm=bool(given.get("use-replayssm", False)),
        aiter=aiter,
        aiter_mla=aiter and _truth(environment, "VLLM_ROCM_USE_AITER_MLA", True),
        aiter_mha=aiter and _truth(environment, "VLLM_ROCM_USE_AITER_MHA", True),
        runner=environment.get("VLLM_USE_V2_MODEL_RUNNER"),
        eager=bool(given.get("enforce-eager", False)),
        lora=bool(given.get("enable-lora", False)),
        tensor=_number(given.get("tensor-parallel-size"), 1),
        pipeline=_number(given.get("pipeline-parallel-size"), 1),
        data=_number(given.get("data-parallel-size"), 1),
        local_data=_number(given.get("data-parallel-size-local")),
        nodes=_number(given.get("nnodes"), 1),
        prefill_context=_number(given.get("prefill-context-parallel-size"), 1),
        decode_context=_number(given.get("decode-context-parallel-size"), 1),
        throughput=given.get("performance-mode") == "throughput",
        requests=_number(given.get("max-num-seqs")),
        batched_tokens=_number(given.get("max-num-batched-tokens")),
        max_model_len=_number(given.get("max-model-len")),
        profile_context=_number(environment.get("VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"), 8192),
        microbatching=bool(dbo),
        routed_experts=bool(given.get("enable-return-routed-experts", False)),
        sampling_mask=bool(given.get("return-sampling-mask", False)),
        logprobs=str(given.get("logprobs-mode") or "raw_logprobs"),
        all2all=str(given.get("all2all-backend") or ""),
        sharded_sampling=bool(given.get("enable-batch-sharded-sampling", False)),
        log_stats=not given.get("disable-log-stats", False),
        utilisation=_share(given.get("gpu-memory-utilization")),
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
        backend=_backend(attention.get("backend")),
        cache=str(part("cache_config").get("cache_dtype") or "auto"),
        data=_number(parallel.get("data_parallel_size"), 1),
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
        utilisation=_share(part("cache_config").get("gpu_memory_utilization")),
        **_speculation(part("speculative_config")),
    )


def _speculation(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": _method(spec),
        "K": _number(spec.get("num_speculative_tokens")),
        "adaptive": _yes(spec.get("enable_adaptive_verification", False)),
        "draft_model": spec.get("model"),
        "draft_sample_method": spec.get("draft_sample_method") or "greedy",
        "rejection_sample_method": spec.get("rejection_sample_method") or "standard",
        "synthetic": sum(
            spec.get(f"synthetic_acceptance_{each}") is not None for each in ("rates", "length")
        ),
        "window": _number(spec.get("fly_window_size")),
        "local_argmax": bool(spec.get("use_local_argmax_reduction", False)),
        "draft_tensor": _number(spec.get("draft_tensor_parallel_size")),
        "parallel_drafting": bool(spec.get("parallel_drafting", False)),
        "other_vocabulary": bool(spec.get("use_heterogeneous_vocab", False)),
        "schedule": bool(spec.get("num_speculative_tokens_per_batch_size")),
        "draft_backend": _backend(spec.get("attention_backend")),
    }


MTP = re.compile(
    r"(deepseek|dots3_note|mimo|mimo_v2|glm4_moe|glm4_moe_lite|glm_ocr|ernie|nemotron_h|exaone_moe|exaone4_5"
    r"|qwen3_next|qwen4_exp|qwen3_5|longcat_flash|bailing_hybrid|bailing_hybrid_v3|minimax_m3|kimi_k3|pangu_ultra_moe"
    r"|step3p5|step5|hy_v3|hy_v4|gemma4|inkling|glm5_next)_mtp"
)


def _method(spec: Mapping[str, Any]) -> str | None:
    """The method as vLLM takes it (`SpeculativeConfig.__post_init__`): named, or told from the drafter's name."""
    if not spec:
        return None
    named, drafter = spec.get("method"), str(spec.get("model") or "")
    if named:
        named = str(named)
        return "ngram" if named == "[ngram]" else "mtp" if MTP.fullmatch(named) else named
    if drafter in ("ngram", "[ngram]"):
        return "ngram"
    if "/" not in drafter and re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", drafter):
        return "custom_class"
    for mark, method in (
        ("eagle-", "eagle"),
        ("eagle3", "eagle3"),
        ("dflash", "dflash"),
        ("dspark", "dspark"),
    ):
        if mark in drafter.lower():
            return method
    return "draft_model"


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


def _level(value: Any) -> int:
    """The optimisation level; vLLM's default is 2."""
    found = _number(str(value).upper().removeprefix("O"))
    return 2 if found is None else found


COMPILATION = {"0": "NONE", "1": "STOCK_TORCH_COMPILE", "2": "DYNAMO_TRACE_ONCE", "3": "VLLM_COMPILE"}


def _compilation(graphs: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    if environment.get("TORCH_COMPILE_DISABLE") == "1":
        return "NONE"
    mode = graphs.get("mode")
    return None if mode is None else COMPILATION.get(str(mode), str(mode).upper())


def _backend(value: Any) -> str | None:
    found = _name(value)
    return None if found == "AUTO" else found


def _text_only(given: Mapping[str, Any]) -> bool:
    """Whether no picture can come: then image tokens need no attention of their own."""
    limits = _mapping(given.get("limit-mm-per-prompt"))
    return bool(given.get("language-model-only")) or (
        bool(limits) and all(each == 0 for each in limits.values())
    )


def _truth(environment: Mapping[str, str], name: str, default: bool) -> bool:
    value = environment.get(name)
    return default if value is None else value.strip().lower() in ("1", "true")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _wholes(value: Any) -> tuple[int, ...]:
    """The whole numbers of a list that may be none."""
    return tuple(each for each in map(_number, _list(value)) if each is not None)


def _name(value: Any) -> str | None:
    """The name of an enumeration's member, however it was written ("AttentionBackendEnum.FLASH_ATTN")."""
    return None if value in (None, "") else str(value).rpartition(".")[2].upper()


def _share(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return DEFAULT_UTILISATION


def _yes(value: Any) -> bool:
    """A switch as vLLM's configuration takes it: also "false", "off", "0", which are texts."""
    return (
        value.strip().lower() in ("true", "yes", "on", "1", "t", "y")
        if isinstance(value, str)
        else bool(value)
    )


def _number(value: Any, default: Any = None) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError):
        return default
