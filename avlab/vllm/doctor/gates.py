"""The gates: what vLLM checks, some of it only after the weights are loaded. One pure function a gate.

Each takes settings, checkpoint and machine, and gives one finding. Where vLLM checks it stands in `source`, as file and
function of 0.33.0.
"""

from collections.abc import Callable

from avlab.vllm.doctor import backends
from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine, Verdict
from avlab.vllm.doctor.sizes import MANAGER, block_size, captures, memory, vocabulary
from avlab.vllm.settings import Settings

Gate = Callable[[Settings, Checkpoint, Machine], Finding]

FULL_GRAPHS = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
ONLY_V1 = ("suffix", "medusa", "mlp_speculator", "custom_class")
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
        return Finding(
            name, "refuses", "Nothing drafts.", "--speculative-config with a method and a drafter.", source
        )
    if not settings.adaptive:
        return Finding(
            name,
            "warns",
            "Adaptive verification is off: every draft token is verified.",
            '"enable_adaptive_verification": true in --speculative-config.',
            source,
        )
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
    name, source = "runner", "vllm/config/vllm.py, _validate_v1_model_runner"
    if settings.runner is not None and settings.runner.lower() in ("0", "false"):
        reason = "VLLM_USE_V2_MODEL_RUNNER=0 takes Model Runner V1, which has no adaptive verification."
        return Finding(name, "refuses", reason, "Take the variable away.", source)
    without: list[str] = []
    if settings.method in ONLY_V1:
        without.append(f"speculative method {settings.method}")
    if settings.parallel_drafting and settings.method not in ("dflash", "dspark"):
        without.append("parallel drafting of EAGLE")
    if settings.other_vocabulary:
        without.append("a drafter of another vocabulary")
    if settings.microbatching:
        without.append("microbatching (DBO) with drafts")
    if without and settings.runner is None:
        reason = (
            f"Model Runner V2 does not support {', '.join(without)}, so vLLM falls back to V1, which refuses."
        )
        return Finding(name, "refuses", reason, "Take that setting away.", source)
    return Finding(name, "passes", "Model Runner V2 serves this.", source=source)


def graphs(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Step costs are profiled from captured decode steps, so there must be graphs of whole steps."""
    name = "full graphs"
    remedy = '--compilation-config \'{"cudagraph_mode": "FULL_AND_PIECEWISE"}\', without --enforce-eager.'
    if machine.vendor == "cpu":
        return Finding(name, "refuses", "A CPU has no CUDA graphs.", "A GPU.", VALIDATION)
    if settings.eager:
        return Finding(name, "refuses", "--enforce-eager leaves no CUDA graphs.", remedy, VALIDATION)
    if settings.cudagraph_mode and settings.cudagraph_mode not in FULL_GRAPHS:
        reason = f"cudagraph_mode {settings.cudagraph_mode} captures no whole decode step."
        return Finding(name, "refuses", reason, remedy, VALIDATION)
    mode = settings.cudagraph_mode or "vLLM's default mode"
    return Finding(name, "passes", f"{mode} captures whole decode steps.", source=VALIDATION)


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
    """Features that need to know, on the CPU, how many tokens each request verifies."""
    name, source = "other features", "vllm/config/vllm.py"
    found = [
        flag
        for flag, is_set in (
            ("--enable-return-routed-experts", settings.routed_experts),
            ("--return-sampling-mask", settings.sampling_mask),
            ("--enable-batch-sharded-sampling", settings.sharded_sampling and settings.version < (0, 33)),
        )
        if is_set
    ]
    if found:
        reason = f"{', '.join(found)} needs verification of a length that the CPU knows."
        return Finding(name, "refuses", reason, f"Without {', '.join(found)}.", source)
    return Finding(name, "passes", "None that needs fixed lengths of verification.", source=source)


def attention(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """The target's attention must take lengths of verification that the GPU decides."""
    name, source = "attention", f"{MANAGER}, maybe_create_adaptive_verification_manager"
    hard_wired = backends.hard_wired_answer(checkpoint.model_type, machine)
    if hard_wired is not None:
        return _of_answer(name, checkpoint.model_type, hard_wired, source)
    backend = settings.backend or backends.default_backend(machine, checkpoint.attention)
    supposed = backends.default_backend(machine, "standard") if checkpoint.attention is None else None
    if backend is None and supposed is not None:
        answer = backends.target_answer(supposed, settings, machine)
        reason = f"The checkpoint is not on this machine. If its attention is standard: {supposed} {answer.reason}."
        return Finding(name, "unknown", reason, f"{answer.remedy}." if answer.remedy else "", source)
    if backend is None:
        reason = (
            f"Which attention backend vLLM takes on {machine.described} for this model is not known here."
        )
        remedy = "Say the GPU, and --attention-backend; TRITON_ATTN can on every GPU, for models without MLA."
        return Finding(name, "unknown", reason, remedy, source)
    return _of_answer(name, backend, backends.target_answer(backend, settings, machine), source)


def draft_attention(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Draft layers go through the same selection, but for DSpark's."""
    name, source = "drafter's attention", "vllm/v1/attention/selector.py"
    if settings.method == "dspark":
        return Finding(name, "passes", "DSpark's own layers are exempt.", source=source)
    backend = settings.draft_backend or settings.backend
    if backend is None:
        return Finding(name, "passes", "vLLM chooses among the backends that can.", source=source)
    return _of_answer(name, backend, backends.draft_answer(backend, settings, machine), source)


def _of_answer(gate: str, who: str, answer: backends.Answer, source: str) -> Finding:
    verdicts: dict[bool | None, Verdict] = {True: "passes", False: "refuses", None: "unknown"}
    remedy = f"{answer.remedy}." if answer.remedy and answer.able is not True else ""
    return Finding(gate, verdicts[answer.able], f"{who} {answer.reason}.", remedy, source)


GATES: tuple[Gate, ...] = (
    version, adaptive, runner, graphs, attention, draft_attention, lora, pipeline, local_argmax, other_features,
    block_size, vocabulary, captures, memory,
)  # fmt: skip
