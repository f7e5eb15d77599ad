"""The gates that compare sizes: draft length, vocabularies, captured batches, memory."""

from avlab.vllm.doctor import backends
from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine
from avlab.vllm.settings import Settings

GIB = 2**30
MANAGER = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"
OMNI = {"Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration"}


def block_size(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """K against what the drafter was trained for."""
    name, source, length = "draft length", "vllm/config/speculative.py", settings.K
    if length is None:
        reason = "K is not said: vLLM takes the checkpoint's own (DSpark, MTP), or refuses."
        return Finding(name, "unknown", reason, '"num_speculative_tokens": K.', source)
    if (
        checkpoint.heads
        and settings.method == "mtp"
        and length > checkpoint.heads
        and length % checkpoint.heads
    ):
        reason = f"K = {length} is no multiple of the checkpoint's {checkpoint.heads} prediction heads."
        return Finding(name, "refuses", reason, f"K = {checkpoint.heads}, or a multiple.", source)
    if checkpoint.block is None or settings.method not in ("dspark", "dflash"):
        if checkpoint.heads or settings.method not in ("dspark", "dflash"):
            return Finding(name, "passes", f"K = {length}.", source=source)
        reason = f"K = {length}; the checkpoint is not on this machine, so its block size is not known."
        return Finding(name, "unknown", reason, "Give the checkpoint's folder as --model.", source)
    if _is_omni(checkpoint) and settings.method == "dspark" and length != checkpoint.block:
        reason = (
            f"K = {length}, and DSpark of Qwen3-Omni drafts its whole block of {checkpoint.block} or nothing."
        )
        source = "vllm/config/speculative.py, _validate_qwen3_omni_dspark"
        return Finding(name, "refuses", reason, f"K = {checkpoint.block}.", source)
    return _block(settings.method, length, checkpoint.block)


def _is_omni(checkpoint: Checkpoint) -> bool:
    return checkpoint.model_type == "qwen3_omni_moe" or bool(OMNI.intersection(checkpoint.architectures))


def _block(method: str, length: int, block: int) -> Finding:
    """A block of DFlash begins with the token that is known already; one of DSpark does not."""
    name = "draft length"
    most = block - 1 if method == "dflash" else block
    source = (
        "https://github.com/vllm-project/recipes/blob/main/models/meta-models/Muse-Glimmer-30B.yaml"
        if method == "dflash"
        else "vllm/config/speculative.py"
    )
    if length > most:
        reason = f"K = {length}, but the drafter was trained for blocks of {most} draft tokens: the rest are guesses."
        return Finding(name, "warns", reason, f"K = {most}.", source)
    if length < most and method == "dspark":
        reason = (
            f"K = {length} is below the drafter's block of {block}; some DeepSeek-V4 checkpoints refuse that."
        )
        return Finding(
            name,
            "warns",
            reason,
            f"K = {block}.",
            "https://github.com/vllm-project/vllm-project.github.io/pull/297",
        )
    return Finding(name, "passes", f"K = {length}, a block of {block}.", source=source)


def vocabulary(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """A draft model's tokens must be the target's; other drafters are made for theirs."""
    name, source = "vocabulary", "vllm/config/speculative.py, verify_equal_vocab_size_if_draft_model"
    if settings.other_vocabulary:
        remedy = '"use_heterogeneous_vocab": false.'
        if settings.method != "draft_model":
            reason = (
                f"use_heterogeneous_vocab is for the method draft_model alone, and {settings.method} drafts."
            )
            return Finding(name, "refuses", reason, remedy, source)
        if settings.draft_sample_method != "greedy":
            reason = "Under use_heterogeneous_vocab drafting is greedy only."
            return Finding(name, "refuses", reason, '"draft_sample_method": "greedy".', source)
        return Finding(name, "passes", "The drafter may have another vocabulary.", source=source)
    if settings.method != "draft_model":
        return Finding(name, "passes", "Only a draft model brings a vocabulary of its own.", source=source)
    target, draft = checkpoint.vocabulary, checkpoint.draft_vocabulary
    if target is None or draft is None:
        reason = "A draft model must have the target's vocabulary; the checkpoints are not on this machine."
        return Finding(name, "unknown", reason, "Compare vocab_size in their config.json.", source)
    if target != draft:
        reason = f"The drafter has {draft:,} tokens and the target {target:,}, and a draft model must have the same."
        return Finding(name, "refuses", reason, "A draft model of the target's own family.", source)
    return Finding(name, "passes", f"Drafter and target both have {target:,} tokens.", source=source)


def captures(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Verification of the largest batch should lie within the captured sizes: (K + 1) × requests tokens."""
    name, source = "captured sizes", "vllm/config/vllm.py, _set_cudagraph_sizes"
    K = settings.K
    if K is None or settings.eager:
        return Finding(name, "unknown", "Without K and graphs there is no size to compare.", source=source)
    largest = settings.largest_capture
    default = 1024 if machine.capability and machine.capability[0] == backends.BLACKWELL else 512
    if largest is not None and largest < K + 1:
        reason = f"The largest captured size, {largest} tokens, holds not one request of K + 1 = {K + 1}."
        return Finding(name, "refuses", reason, _capture(K + 1), f"{MANAGER}, set_cost_curves")
    if settings.requests is None:
        reason = f"--max-num-seqs is not said: captured sizes should reach {K + 1} tokens a request."
        return Finding(name, "unknown", reason, f"--max-num-seqs N and {_capture(K + 1, 'N')}", source)
    needed = (K + 1) * settings.requests
    reach = largest if largest is not None else min(2 * needed, default)
    reach = min(reach, settings.batched_tokens or reach)
    if reach < needed:
        reason = (
            f"{settings.requests} requests of K + 1 = {K + 1} tokens are {needed}, captured sizes end at {reach}: "
            "larger batches run without a graph, and their cost leaps there."
        )
        return Finding(name, "warns", reason, _capture(needed), source)
    reason = f"{settings.requests} requests of K + 1 = {K + 1} tokens are {needed}, within {reach} captured."
    return Finding(name, "passes", reason, source=source)


def memory(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Weights, and the logits that probabilistic drafting keeps, against a GPU's memory."""
    name, source = "memory", "vllm/v1/worker/gpu/spec_decode/speculator.py, draft_logits"
    if machine.gpus is not None and settings.tensor * settings.pipeline > machine.gpus:
        reason = f"{settings.tensor * settings.pipeline} GPUs are asked for, and there are {machine.gpus}."
        return Finding(
            name, "refuses", reason, f"--tensor-parallel-size {machine.gpus}.", "vllm/config/parallel.py"
        )
    if checkpoint.weights_gib is None or machine.memory_gib is None:
        reason = "The size of the weights or of the GPU's memory is not known here."
        return Finding(
            name, "unknown", reason, "Say both, in GiB, or name a local folder and the GPU.", source
        )
    each = checkpoint.weights_gib / (settings.tensor * settings.pipeline)
    logits = _draft_logits_gib(settings, checkpoint)
    allowed = machine.memory_gib * settings.utilisation
    parts = f"{each:.1f} GiB of weights" + (f" and {logits:.1f} GiB of draft logits" if logits else "")
    reason = f"{parts} a GPU, of {allowed:.1f} GiB that vLLM may use."
    if each + logits >= allowed:
        return Finding(
            name, "refuses", reason, "More GPUs (--tensor-parallel-size), or fewer requests.", source
        )
    return Finding(name, "passes", f"{reason} The rest is for cache and graphs.", source=source)


def _draft_logits_gib(settings: Settings, checkpoint: Checkpoint) -> float:
    """Requests × K × vocabulary logits of two bytes; 0 where something is not known, or nothing is kept."""
    if settings.draft_sample_method != "probabilistic" or not (
        settings.requests and settings.K and checkpoint.vocabulary
    ):
        return 0.0
    return settings.requests * settings.K * checkpoint.vocabulary * 2 / GIB


def _capture(size: int, times: str = "") -> str:
    value = f"{size} × {times}" if times else str(size)
    return f"--max-cudagraph-capture-size {value}."
