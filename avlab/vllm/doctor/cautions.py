"""Settings that start and may disappoint, or that bend what is measured. One pure function a caution.

Each gives a finding that warns, or None where there is nothing to say.
"""

from collections.abc import Callable

from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine, Traffic
from avlab.vllm.settings import Settings

Caution = Callable[[Settings, Checkpoint, Traffic], Finding | None]
MachineCaution = Callable[[Settings, Checkpoint, Traffic, Machine], Finding | None]

PULL = "https://github.com/vllm-project/vllm/pull"
ISSUES = "https://github.com/vllm-project/vllm/issues"
TARGET_ONLY = {
    "presence_penalty", "frequency_penalty", "repetition_penalty", "bad_words", "allowed_token_ids", "logit_bias",
    "min_tokens",
}  # fmt: skip
POSITION_BY_POSITION = ("eagle", "eagle3", "mtp", "draft_model")
LONG_RATIO = 4  # chosen here: how much longer than the profiled context served contexts may be


def random_tokens(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Acceptance on random tokens says nothing of text."""
    if traffic.dataset != "random":
        return None
    return _warns(
        "traffic",
        "A dataset of random tokens: no drafter foresees them, so acceptance says nothing of real text.",
        "Prompts of your own, SPEED-Bench or ShareGPT.",
        f"{ISSUES}/33497",
    )


def repeated_noise(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Before 0.33 a position drawn again gets the same noise."""
    if settings.draft_sample_method != "probabilistic" or not settings.adaptive:
        return None
    if not settings.version or settings.version >= (0, 33):
        return None
    return _warns(
        "exactness",
        "This version keys a draft token's noise by request and position alone: a trimmed position is drawn again with "
        "the same noise, so earlier estimates know of the coming draw, and the output is not exactly the target's.",
        "vLLM 0.33.0, or greedy drafting.",
        "docs/sampling.md, third fault",
    )


def greedy_drafting(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Greedy and probabilistic drafting have different chances of acceptance for the same feature."""
    if not settings.adaptive or settings.draft_sample_method != "greedy" or traffic.temperature == 0:
        return None
    return _warns(
        "coefficients",
        "Greedy drafting is accepted with the target's probability of the drafter's favourite, probabilistic drafting "
        "with min(1, p/q): coefficients learnt in one way are wrong in the other, the cold start's included, until "
        "some refits of 100 steps have gone by.",
        '"draft_sample_method": "probabilistic" where requests sample; else let it refit before you measure.',
        "vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py",
    )


def target_only(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Drafts know temperature and seed only; what else bends the target pollutes one set of coefficients for all."""
    used = sorted(TARGET_ONLY.intersection(traffic.sampling))
    if not used or not settings.adaptive:
        return None
    return _warns(
        "sampling",
        f"{', '.join(used)}: only the target sees them, so its refusals teach the estimator, which all requests share, "
        "something that is not true of the others.",
        "Serve such requests elsewhere, or watch acceptance by kind of request.",
        f"{PULL}/57533",
    )


def not_lossless(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Two rejection methods do not keep the target's distribution."""
    reasons = {
        "synthetic": "rejection_sample_method synthetic accepts by a schedule: for benchmarks, not for users.",
        "fly": "rejection_sample_method fly accepts more than exact sampling does: the output is not the target's.",
    }
    reason = reasons.get(settings.rejection_sample_method)
    if reason is None:
        return None
    return _warns(
        "exactness", reason, '"rejection_sample_method": "standard" or "block".', "vllm/config/speculative.py"
    )


def low_load(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Where verification is nearly free, trimming saves nothing and costs its own work."""
    if traffic.concurrency is None or traffic.concurrency >= 64 or not settings.adaptive:
        return None
    return _warns(
        "load",
        f"{traffic.concurrency} requests at a time: in one published comparison (DeepSeek-V4, ROCm) adaptive "
        "verification was 5 to 8 % slower than a fixed length at 4 to 32 requests, and faster from 64.",
        "Compare with fixed lengths at your load before you decide.",
        f"{PULL}/52362",
    )


def sunk_drafting(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """An autoregressive drafter pays for each position before trimming."""
    if settings.method not in POSITION_BY_POSITION or not settings.adaptive or (settings.K or 0) < 2:
        return None
    return _warns(
        "drafter",
        f"A drafter of the kind {settings.method} runs once a position: trimming saves verification, not the "
        f"{settings.K} draft passes, so gains are smaller than for drafters that make a block in one pass.",
        "Compare with shorter fixed lengths, one engine an arm.",
        "arXiv 2607.05147, on its limitations",
    )


def no_statistics(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Without statistics /metrics is empty."""
    if settings.log_stats:
        return None
    return _warns(
        "statistics",
        "--disable-log-stats leaves /metrics without a number: nothing can be watched.",
        "Without --disable-log-stats.",
        f"{ISSUES}/7301",
    )


def trimmed_counters(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """vLLM's acceptance counters count scheduled drafts."""
    if not settings.adaptive:
        return None
    return _warns(
        "statistics",
        "vLLM's acceptance counters count the drafts that were made, not those that were verified: under adaptive "
        "verification trimming looks like rejection, and a falling acceptance rate is no sign of a worse drafter.",
        "Judge by tokens per second and tokens per step.",
        "vllm/v1/core/sched/scheduler.py, make_spec_decoding_stats",
    )


def short_profile(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """Step costs are timed over one context length."""
    if (
        not settings.adaptive
        or settings.max_model_len is None
        or settings.max_model_len < LONG_RATIO * settings.profile_context
    ):
        return None
    return _warns(
        "costs",
        f"Step costs are profiled over a context of {settings.profile_context} tokens, and requests may have "
        f"{settings.max_model_len}: if yours are long, verification costs more than the budget believes.",
        "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN near the length you serve.",
        "https://docs.vllm.ai/en/v0.32.0/features/speculative_decoding/adaptive_verification/",
    )


def crowded_drafts(settings: Settings, checkpoint: Checkpoint, traffic: Traffic) -> Finding | None:
    """A parallel drafter computes K + 1 rows a request at once."""
    if settings.method != "dflash" or not (settings.K and settings.requests and settings.batched_tokens):
        return None
    rows = (settings.K + 1) * settings.requests
    if rows <= settings.batched_tokens:
        return None
    return _warns(
        "drafter",
        f"DFlash computes K + 1 rows a request: {rows} for {settings.requests} requests, more than "
        f"--max-num-batched-tokens {settings.batched_tokens}. Some versions fail at warm-up.",
        f"--max-num-seqs {max(1, settings.batched_tokens // (settings.K + 1))}.",
        "https://github.com/vllm-project/recipes/pull/835",
    )


def collapse_on_hopper(
    settings: Settings, checkpoint: Checkpoint, traffic: Traffic, machine: Machine
) -> Finding | None:
    """An open report: DeepSeek-V4 on eight H20, acceptance collapsed and the drain of a batch hung."""
    hopper = machine.capability is not None and machine.capability[0] == 9
    if not (settings.adaptive and hopper and checkpoint.model_type in ("deepseek_v4", "deepseek_v41")):
        return None
    return _warns(
        "Hopper",
        "An open report of this model on Hopper (8 × H20): acceptance collapsed under adaptive verification, and the "
        "server hung while a batch drained.",
        "Watch tokens per step from the first minute (`avlab attach`); compare with a fixed length.",
        f"{ISSUES}/54011",
    )


def graph_memory(
    settings: Settings, checkpoint: Checkpoint, traffic: Traffic, machine: Machine
) -> Finding | None:
    """Adaptive verification captures graphs of decode steps beside pieces, whatever mode was asked for."""
    if not settings.adaptive or settings.utilisation < 0.95:
        return None
    return _warns(
        "graph memory",
        f"--gpu-memory-utilization {settings.utilisation:g} leaves little beside the cache, and adaptive verification "
        "captures graphs of whole decode steps: one report has 7 GiB of them, and vLLM's estimate can be too small.",
        "--gpu-memory-utilization 0.9, or fewer captured sizes.",
        f"{ISSUES}/56626",
    )


def low_on_amd(
    settings: Settings, checkpoint: Checkpoint, traffic: Traffic, machine: Machine
) -> Finding | None:
    """ROCm's latent backend takes up to K + 1 tokens a request, and only without decode context parallelism."""
    latent = any(layer.kind == "latent" and not layer.sparse for layer in checkpoint.layers or ())
    if not (settings.adaptive and machine.vendor == "amd" and latent and settings.aiter_mla):
        return None
    return _warns(
        "ROCM_AITER_MLA",
        "Its graphs pad each request to K + 1 tokens: trimming saves attention, not the padded rows of a decode step.",
        "Compare with a fixed length at your load.",
        "vllm/v1/attention/backends/mla/rocm_aiter_mla.py, get_varlen_cudagraph_max_query_len",
    )


def _warns(gate: str, reason: str, remedy: str, source: str) -> Finding:
    return Finding(gate, "warns", reason, remedy, source)


ON_MACHINES: tuple[MachineCaution, ...] = (collapse_on_hopper, graph_memory, low_on_amd)
CAUTIONS: tuple[Caution, ...] = (
    random_tokens, repeated_noise, greedy_drafting, target_only, not_lossless, low_load, sunk_drafting, no_statistics,
    trimmed_counters, short_profile, crowded_drafts,
)  # fmt: skip
