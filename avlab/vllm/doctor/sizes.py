"""The gates that compare sizes: draft length, vocabularies, captured batches, memory."""

from avlab.vllm.doctor import backends
from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine
from avlab.vllm.doctor.machines import default_batch
from avlab.vllm.settings import Settings

GIB = 2**30
MANAGER = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"
OMNI = {"Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration"}


def block_size(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """K against what the drafter was trained for."""
    name, source, length = "draft length", "vllm/config/speculative.py", settings.K
    if settings.method is None:
        return Finding(name, "passes", "Nothing drafts.", source=source)
    needs_K = settings.method in ("draft_model", "eagle", "eagle3", "dflash", "ngram", "ngram_gpu")
    if length is None and needs_K and "speculator" not in (settings.draft_model or "").lower():
        reason = f"K is not said, and the method {settings.method} has no K of its own."
        return Finding(name, "refuses", reason, '"num_speculative_tokens": K.', source)
    if length is not None and length < 1:
        reason = f"num_speculative_tokens is {length}, and vLLM wants one at least."
        return Finding(name, "refuses", reason, '"num_speculative_tokens": 3.', source)
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


def requests_of(settings: Settings, machine: Machine) -> int | None:
    """Requests at a time, as asked or by vLLM's default (`get_batch_defaults`); None where neither is known."""
    if settings.requests is not None:
        return settings.requests
    found = default_batch(machine)
    if found is None:
        return None
    times = 2 if settings.throughput else 1
    return min(found[0] * times, settings.batched_tokens or found[1] * times)


def tokens_of(settings: Settings, machine: Machine) -> int | None:
    """Tokens of a step at most, as asked or by vLLM's default; None where neither is known."""
    if settings.batched_tokens is not None:
        return settings.batched_tokens
    found = default_batch(machine)
    return None if found is None else found[1] * (2 if settings.throughput else 1)


def captures(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Verification of the largest batch should lie within the captured sizes: (K + 1) × requests tokens."""
    name, source = "captured sizes", "vllm/config/vllm.py, _set_cudagraph_sizes"
    K = settings.K
    if not settings.adaptive:
        return Finding(name, "passes", "Verification is not adaptive.", source=source)
    if K is None or settings.eager:
        return Finding(name, "unknown", "Without K and graphs there is no size to compare.", source=source)
    largest = settings.largest_capture
    wide = checkpoint.model_type == "gpt_oss" or (machine.capability or (0, 0))[0] == backends.BLACKWELL
    default = 1024 if wide else 512
    if largest is not None and largest < K + 1:
        reason = f"The largest captured size, {largest} tokens, holds not one request of K + 1 = {K + 1}."
        return Finding(name, "refuses", reason, _capture(K + 1), f"{MANAGER}, set_cost_curves")
    requests = requests_of(settings, machine)
    if requests is None:
        reason = f"--max-num-seqs is not said: captured sizes should reach {K + 1} tokens a request."
        return Finding(name, "unknown", reason, f"--max-num-seqs N and {_capture(K + 1, 'N')}", source)
    told = f"{requests} requests" + ("" if settings.requests else " (vLLM's default here)")
    needed = (K + 1) * requests
    reach = largest if largest is not None else min(2 * needed, default)
    reach = min(reach, tokens_of(settings, machine) or reach)
    if reach < needed:
        reason = (
            f"{told} of K + 1 = {K + 1} tokens are {needed}, captured sizes end at {reach}: "
            "larger batches run without a graph, and their cost leaps there."
        )
        advice = _capture(needed) if settings.requests else f"--max-num-seqs N and {_capture(K + 1, 'N')}"
        return Finding(name, "warns", reason, advice, source)
    reason = f"{told} of K + 1 = {K + 1} tokens are {needed}, within {reach} captured."
    return Finding(name, "passes", reason, source=source)


def shares(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Whether heads divide among the GPUs, and enough GPUs are there."""
    name, source = "parallel", "vllm/config/model.py, verify_with_parallel_config; vllm/config/parallel.py"
    tensor, context = settings.tensor, settings.decode_context
    heads = max((layer.heads for layer in checkpoint.layers or ()), default=0)
    if heads and heads % tensor:
        fitting = max(each for each in range(1, tensor) if heads % each == 0)
        reason = f"{heads} attention heads do not divide among {tensor} GPUs."
        return Finding(name, "refuses", reason, f"--tensor-parallel-size {fitting}.", source)
    if tensor % context:
        reason = (
            f"--tensor-parallel-size {tensor} is no multiple of --decode-context-parallel-size {context}."
        )
        return Finding(name, "refuses", reason, "--decode-context-parallel-size 1.", source)
    kv_heads = max(
        (layer.kv_heads for layer in checkpoint.layers or () if layer.kind == "standard"), default=0
    )
    if context > 1 and kv_heads and (tensor <= kv_heads or context > tensor // kv_heads):
        reason = (
            f"Decode context parallelism of plain attention needs more GPUs than its {kv_heads} heads of the cache, "
            f"and {context} times as many at least."
        )
        return Finding(name, "refuses", reason, "--decode-context-parallel-size 1.", source)
    if settings.draft_tensor not in (None, 1, tensor):
        reason = f"draft_tensor_parallel_size is {settings.draft_tensor}, and only 1 or {tensor} is taken."
        return Finding(name, "refuses", reason, f'"draft_tensor_parallel_size": {tensor}.', source)
    engine = tensor * settings.pipeline * settings.prefill_context
    world = engine * settings.data
    here = engine * settings.local_data if settings.local_data else max(1, world // max(1, settings.nodes))
    if machine.gpus is not None and here > machine.gpus:
        product = " × ".join(
            f"{count} ({what})"
            for count, what in (
                (tensor, "tensor"), (settings.pipeline, "pipeline"), (settings.prefill_context, "prefill context"),
                (settings.local_data or settings.data, "data"),
            )
            if count > 1
        )  # fmt: skip
        reason = f"{here} GPUs are asked for, {product}, and there are {machine.gpus}."
        copies = machine.gpus // engine
        remedy = (
            f"--data-parallel-size {copies}." if copies else f"--tensor-parallel-size {machine.gpus} at most."
        )
        return Finding(name, "refuses", reason, remedy, source)
    return Finding(name, "passes", f"{here} GPU{'s' * (here > 1)} on this machine.", source=source)


def batch(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """A step's tokens must hold a request with its drafts, and every request once."""
    name, source = "batch", "vllm/config/scheduler.py; vllm/config/vllm.py, _set_max_num_scheduled_tokens"
    requests, tokens = settings.requests, settings.batched_tokens
    if requests and tokens and tokens < requests:
        reason = f"--max-num-batched-tokens {tokens} is below --max-num-seqs {requests}."
        return Finding(name, "refuses", reason, f"--max-num-batched-tokens {requests}, or more.", source)
    if tokens and settings.K and tokens <= settings.K:
        reason = f"--max-num-batched-tokens {tokens} does not hold one request with its {settings.K} drafts."
        return Finding(name, "refuses", reason, "--max-num-batched-tokens 8192.", source)
    if settings.sizes and settings.largest_capture not in (None, max(settings.sizes)):
        most = max(settings.sizes)
        reason = (
            f"The captured sizes end at {most}, and the largest is said to be {settings.largest_capture}."
        )
        return Finding(name, "refuses", reason, f"--max-cudagraph-capture-size {most}.", source)
    return Finding(name, "passes", "A step holds its requests.", source=source)


def memory(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Weights, and the logits that probabilistic drafting keeps, against a GPU's memory."""
    name, source = "memory", "vllm/v1/worker/gpu/spec_decode/speculator.py, draft_logits"
    if checkpoint.weights_gib is None or machine.memory_gib is None:
        reason = "The size of the weights or of the GPU's memory is not known here."
        return Finding(
            name, "unknown", reason, "Say both, in GiB, or name a local folder and the GPU.", source
        )
    each = checkpoint.weights_gib / (settings.tensor * settings.pipeline)
    logits = _draft_logits_gib(settings, checkpoint, machine)
    allowed = machine.memory_gib * settings.utilisation
    parts = f"{each:.1f} GiB of weights" + (f" and {logits:.1f} GiB of draft logits" if logits else "")
    reason = f"{parts} a GPU, of {allowed:.1f} GiB that vLLM may use."
    if each + logits >= allowed:
        return Finding(
            name, "refuses", reason, "More GPUs (--tensor-parallel-size), or fewer requests.", source
        )
    return Finding(name, "passes", f"{reason} The rest is for cache and graphs.", source=source)


def _draft_logits_gib(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> float:
    """Requests × K × vocabulary logits of two bytes; 0 where something is not known, or nothing is kept."""
    requests = requests_of(settings, machine)
    if settings.draft_sample_method != "probabilistic" or not (
        requests and settings.K and checkpoint.vocabulary
    ):
        return 0.0
    return requests * settings.K * checkpoint.vocabulary * 2 / GIB


def _capture(size: int, times: str = "") -> str:
    value = f"{size} × {times}" if times else str(size)
    return f"--max-cudagraph-capture-size {value}."
