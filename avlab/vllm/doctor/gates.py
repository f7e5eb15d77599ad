"""The gates: what vLLM checks, some of it only after the weights are loaded. One pure function a gate.

Each takes settings, checkpoint and machine, and gives one finding. Where vLLM checks it stands in `source`, as file and
function of 0.33.0.
"""

import difflib
from collections.abc import Callable

from avlab.vllm.doctor.attention import attention, draft_attention
from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine
from avlab.vllm.doctor.sizes import batch, block_size, captures, memory, shares, vocabulary
from avlab.vllm.settings import Settings

Gate = Callable[[Settings, Checkpoint, Machine], Finding]

FULL_GRAPHS = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
GONE = {"medusa": "0.33 has no Medusa", "mlp_speculator": "0.33 has no MLP speculator"}
MICROBATCHING = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")
METHODS = {
    "ngram", "ngram_gpu", "draft_model", "suffix", "custom_class", "eagle", "eagle3", "extract_hidden_states", "mtp",
    "dflash", "dspark",
}  # fmt: skip
VALIDATION = "vllm/config/vllm.py, _validate_adaptive_verification"


def version(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Whether this vLLM has adaptive verification, and the estimator for drafters without a head."""
    found = ".".join(map(str, settings.version))
    source = "https://docs.vllm.ai/en/v0.32.0/features/speculative_decoding/adaptive_verification/"
    if not settings.version:
        return Finding(
            "version",
            "unknown",
            "The version of vLLM is not known.",
            "Say which it is, such as 0.33.0.",
            source,
        )
    if settings.version < (0, 25):
        reason = f"vLLM {found} has neither DSpark nor adaptive verification."
        return Finding("version", "refuses", reason, "vLLM 0.33.0.", source)
    if settings.version < (0, 32):
        reason = (
            f"vLLM {found} was not read: 0.29 knew adaptive verification of DSpark, 0.32 knows the estimator."
        )
        return Finding("version", "warns", reason, "vLLM 0.33.0.", source)
    reason = f"vLLM {found} has adaptive verification and the online estimator."
    return Finding("version", "passes", reason, source=source)


def adaptive(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Whether it is asked for at all, of a drafter that can give estimates."""
    name, source = "drafter", "vllm/config/speculative.py"
    if settings.method is None:
        remedy = "--speculative-config with a method and a drafter."
        return Finding(name, "warns", "It starts, and nothing drafts.", remedy, source)
    if settings.method not in METHODS:
        reason = GONE.get(settings.method, f"vLLM knows no speculative method {settings.method!r}")
        near = difflib.get_close_matches(settings.method, METHODS, 1)
        remedy = f'"method": "{near[0]}".' if near else f"One of {', '.join(sorted(METHODS))}."
        return Finding(name, "refuses", f"{reason}.", remedy, f"{source}, SpeculativeMethod")
    if settings.method == "mtp" and checkpoint.model_type == "deepseek_v41":
        reason = "DeepSeek-V4.1 has no MTP heads: its checkpoint ships DSpark's."
        return Finding(name, "refuses", reason, '"method": "dspark".', source)
    if not settings.adaptive:
        return Finding(
            name,
            "warns",
            "Adaptive verification is off: every draft token is verified.",
            '"enable_adaptive_verification": true in --speculative-config.',
            source,
        )
    if settings.method == "extract_hidden_states":
        reason = "extract_hidden_states drafts nothing."
        return Finding(name, "warns", reason, "A model as drafter.", source)
    if settings.method in ("ngram", "ngram_gpu"):
        return Finding(
            name,
            "warns",
            "An n-gram drafter has no distribution to estimate from: the switch is ignored without a word.",
            "A model as drafter (dflash, dspark, eagle3, mtp, draft_model).",
            "vllm/v1/worker/gpu/spec_decode/ngram/speculator.py",
        )
    if any("XPress" in each for each in checkpoint.draft_architectures):
        return Finding(
            name,
            "warns",
            "XPress drafters never write their estimates: what the budget reads is not defined.",
            "Switch adaptive verification off for this drafter.",
            "vllm/v1/worker/gpu/spec_decode/xpress/speculator.py",
        )
    return Finding(name, "passes", f"{settings.method} drafts, and its estimates decide.", source=source)


def runner(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Adaptive verification exists in Model Runner V2 only."""
    name, source = "runner", "vllm/config/vllm.py, use_v2_model_runner and _validate_v2_model_runner"
    asked = None if settings.runner is None else settings.runner.strip()
    if asked is not None and asked.lower() not in ("0", "1"):
        reason = f"VLLM_USE_V2_MODEL_RUNNER={asked} is neither 0 nor 1."
        return Finding(name, "refuses", reason, "Take the variable away.", "vllm/envs.py, maybe_convert_bool")
    needs_v2 = settings.adaptive or settings.method == "dspark"
    if asked == "0":
        if not needs_v2:
            return Finding(name, "passes", "Model Runner V1 serves this.", source=source)
        lacks = "adaptive verification" if settings.adaptive else "DSpark"
        reason = f"VLLM_USE_V2_MODEL_RUNNER=0 takes Model Runner V1, which has no {lacks}."
        return Finding(name, "refuses", reason, "Take the variable away.", source)
    without = _not_in_v2(settings)
    if not without:
        return Finding(name, "passes", "Model Runner V2 serves this.", source=source)
    told = ", ".join(without)
    if asked == "1":
        reason = f"VLLM_USE_V2_MODEL_RUNNER=1 asks for Model Runner V2, which does not support {told}."
        return Finding(name, "refuses", reason, "Take that setting away.", source)
    if needs_v2:
        reason = f"Model Runner V2 does not support {told}, so vLLM falls back to V1, which refuses."
        return Finding(name, "refuses", reason, "Take that setting away.", source)
    return Finding(name, "passes", f"Model Runner V1 serves this, because of {told}.", source=source)


def _not_in_v2(settings: Settings) -> list[str]:
    """Features that Model Runner V2 lacks (`_get_v2_model_runner_unsupported_features`)."""
    without = []
    if settings.method in ("suffix", "custom_class"):
        without.append(f"speculative method {settings.method}")
    if settings.parallel_drafting and settings.method not in ("dflash", "dspark"):
        without.append("parallel drafting of EAGLE")
    if settings.other_vocabulary:
        without.append("a drafter of another vocabulary")
    if settings.microbatching and (settings.method or settings.runner is None):
        without.append("microbatching (DBO) with drafts" if settings.method else "microbatching (DBO)")
    return without


def graph_mode(settings: Settings) -> str:
    """The mode of graphs that vLLM arrives at, from what was asked for and the level of optimisation."""
    if settings.eager:
        return "NONE"
    level = settings.optimisation
    mode = settings.cudagraph_mode or {0: "NONE", 1: "PIECEWISE"}.get(level, "FULL_AND_PIECEWISE")
    compilation = settings.compilation or ("NONE" if level == 0 else "VLLM_COMPILE")
    if compilation == "STOCK_TORCH_COMPILE":
        return "NONE"
    if compilation != "VLLM_COMPILE":
        return {"PIECEWISE": "NONE", "FULL_AND_PIECEWISE": "FULL_DECODE_ONLY"}.get(mode, mode)
    return mode


def graphs(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Step costs are profiled from captured decode steps, so there must be graphs of whole steps."""
    name = "full graphs"
    remedy = '--compilation-config \'{"cudagraph_mode": "FULL_AND_PIECEWISE"}\', without --enforce-eager.'
    if machine.vendor == "cpu":
        return Finding(name, "refuses", "A CPU has no CUDA graphs.", "A GPU.", VALIDATION)
    if settings.eager:
        return Finding(name, "refuses", "--enforce-eager leaves no CUDA graphs.", remedy, VALIDATION)
    mode = graph_mode(settings)
    if mode not in FULL_GRAPHS:
        if settings.cudagraph_mode is None and settings.optimisation < 2:
            reason = f"-O{settings.optimisation} captures {'nothing' if mode == 'NONE' else 'pieces only'}."
            return Finding(name, "refuses", reason, "-O2, which is the default.", VALIDATION)
        if settings.compilation == "STOCK_TORCH_COMPILE":
            reason = "Stock torch.compile has no CUDA graphs in Model Runner V2."
            return Finding(name, "refuses", reason, "Another compilation mode.", VALIDATION)
        reason = f"cudagraph_mode {settings.cudagraph_mode or mode} captures no whole decode step."
        return Finding(name, "refuses", reason, remedy, VALIDATION)
    told = mode if settings.cudagraph_mode else f"vLLM's default mode, {mode},"
    return Finding(name, "passes", f"{told} captures whole decode steps.", source=VALIDATION)


def lora(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Adapters are mapped to tokens by boundaries that the CPU knows."""
    if settings.lora:
        reason = (
            "Adapters are mapped to tokens on the CPU, which does not know the lengths that the GPU chose."
        )
        return Finding("LoRA", "refuses", reason, "Without --enable-lora; merge the adapter.", VALIDATION)
    return Finding("LoRA", "passes", "No adapters.", source=VALIDATION)


def pipeline(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Costs and estimates exist on the last rank only."""
    name = "pipeline parallel"
    if settings.pipeline > 1:
        reason = (
            f"--pipeline-parallel-size {settings.pipeline}: costs and estimates exist on the last rank only."
        )
        remedy = f"--pipeline-parallel-size 1 --tensor-parallel-size {settings.pipeline * settings.tensor}."
        return Finding(name, "refuses", reason, remedy, VALIDATION)
    return Finding(name, "passes", "No pipeline stages.", source=VALIDATION)


def local_argmax(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """The estimator reads the draft's logits, which a local argmax never makes."""
    name, source = "local argmax", "vllm/config/speculative.py, and the speculator at loading"
    remedy = '"use_local_argmax_reduction": false.'
    if not settings.local_argmax:
        return Finding(name, "passes", "The drafter's logits are whole.", source=source)
    if settings.draft_sample_method == "probabilistic":
        reason = "A local argmax makes no logits, and drawing draft tokens by chance needs them."
        return Finding(name, "refuses", reason, remedy, source)
    if settings.method == "dspark":
        reason = "A local argmax makes no logits: a DSpark checkpoint starts with a confidence head only."
        return Finding(name, "unknown", reason, remedy, source)
    reason = "A local argmax makes no logits, from which acceptance is estimated."
    return Finding(name, "refuses", reason, remedy, source)


def other_features(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Features that need to know, on the CPU, how many tokens each request verifies, and what else those need."""
    name, source = "other features", "vllm/config/vllm.py"
    sharded = settings.sharded_sampling and bool(settings.version) and settings.version < (0, 33)
    found = [
        flag
        for flag, is_set in (
            ("--enable-return-routed-experts", settings.routed_experts),
            ("--return-sampling-mask", settings.sampling_mask),
            ("--enable-batch-sharded-sampling", sharded),
        )
        if is_set and settings.adaptive
    ]
    if found:
        reason = f"{', '.join(found)} needs verification of a length that the CPU knows."
        return Finding(name, "refuses", reason, f"Without {', '.join(found)}.", source)
    if settings.sampling_mask and settings.logprobs != "processed_logprobs":
        reason = "--return-sampling-mask needs logprobs of what sampling saw."
        return Finding(name, "refuses", reason, "--logprobs-mode processed_logprobs.", source)
    if settings.microbatching and settings.all2all not in MICROBATCHING:
        reason = "Microbatching (DBO) needs an all-to-all backend that overlaps."
        return Finding(name, "refuses", reason, "--all2all-backend deepep_low_latency.", source)
    return Finding(name, "passes", "None that needs fixed lengths of verification.", source=source)


def rejection(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """What the ways of rejection need beside their name."""
    name, source = "rejection", "vllm/config/speculative.py, _verify_args"
    method, K = settings.rejection_sample_method, settings.K
    if method not in ("standard", "block", "synthetic", "fly"):
        near = difflib.get_close_matches(method, ("standard", "block", "synthetic", "fly"), 1)
        remedy = f'"rejection_sample_method": "{near[0] if near else "standard"}".'
        return Finding(name, "refuses", f"vLLM knows no rejection_sample_method {method!r}.", remedy, source)
    if method == "synthetic" and settings.synthetic != 1:
        reason = "Synthetic rejection needs either synthetic_acceptance_length or synthetic_acceptance_rates."
        return Finding(name, "refuses", reason, '"synthetic_acceptance_length": 2.5.', source)
    if method != "synthetic" and settings.synthetic:
        reason = "A synthetic acceptance is set, and the rejection is not synthetic."
        return Finding(name, "refuses", reason, '"rejection_sample_method": "synthetic".', source)
    if (
        method == "fly"
        and K is not None
        and (K < 2 or (settings.window is not None and settings.window >= K))
    ):
        reason = "FLy needs two draft tokens at least, and a window smaller than their number."
        return Finding(name, "refuses", reason, '"rejection_sample_method": "standard".', source)
    return Finding(name, "passes", f"{method} rejection.", source=source)


FOR_ADAPTIVE: tuple[Gate, ...] = (
    graphs, attention, draft_attention, lora, pipeline, local_argmax
)  # fmt: skip
GATES: tuple[Gate, ...] = (
    version,
    adaptive,
    runner,
    *FOR_ADAPTIVE,
    other_features,
    rejection,
    block_size,
    vocabulary,
    captures,
    shares,
    batch,
    memory,
)
