"""Which attention backends can verify drafts of a length that the GPU decides, by GPU and version.

vLLM has two conditions for the target's layers: the backend must not plan from query lengths that the CPU knows
(`supports_device_cpu_query_lens_mismatch`), and its graphs of a whole decode step must replay lengths that vary from 1
to K + 1 (`get_cudagraph_support` is ALWAYS, or `get_varlen_cudagraph_max_query_len` allows them). Draft layers need the
first only, and DSpark's own need neither. Read in the source of 0.32.0 and 0.33.0 (`vllm/v1/attention/backends/`).
"""

from dataclasses import dataclass

from avlab.vllm.doctor.findings import Machine
from avlab.vllm.settings import Settings

ALWAYS = {
    "TRITON_ATTN", "TRITON_ATTN_DIFFKV", "FLEX_ATTENTION", "ROCM_ATTN", "ROCM_SEGMENTED_ATTN",
    "ROCM_AITER_UNIFIED_ATTN",
}  # fmt: skip
DATA_CENTRE_BLACKWELL_ONLY = {"FLASHINFER_MLA", "FLASHINFER_MLA_SPARSE"}
EVEN_LENGTHS = {
    "FLASH_ATTN_MLA", "FLASHMLA", "FLASHMLA_SPARSE", "TRITON_MLA", "TOKENSPEED_MLA", "FLASH_ATTN_MLA_SPARSE",
    "FLASHINFER_MLA_SPARSE_SM90", "FLASHINFER_MLA_SPARSE_SM120", "ROCM_AITER_FA", "ROCM_AITER_MLA_SPARSE",
    "ROCM_AITER_TRITON_MLA", "TURBOQUANT", "B12X", "CUTLASS_MSA", "TRITON_MSA",
}  # fmt: skip
ONE_TOKEN = {"CUTLASS_MLA", "HPC_ATTN"}
NO_GRAPHS = {"CPU_ATTN", "CPU_MLA", "AMX_MLA", "XPU_MLA_SPARSE"}
RECURRENT = {"MAMBA1", "SHORT_CONV", "LINEAR", "GDN_ATTN"}
COMPOSITE = {"TRITON_FLASHINFER", "TRITON_FLASH_ATTN"}
BLACKWELL = 10  # major compute capability of B200, B300, GB200
HOPPER = 9
LATENT_REMEDY = "--attention-backend FLASHINFER_MLA, on compute capability 10"


@dataclass(frozen=True)
class Answer:
    """able: None where it cannot be said. reason: a clause that goes on from the backend's name."""

    able: bool | None
    reason: str
    remedy: str = ""


def flash_attention(settings: Settings, machine: Machine) -> int | None:
    """The version of FlashAttention that vLLM takes there (`get_flash_attn_version`); None where nobody knows."""
    if machine.vendor == "intel":
        return 2
    if machine.capability is None:
        return None
    major = machine.capability[0]
    chosen = settings.flash_attention or {HOPPER: 3, BLACKWELL: 4}.get(major, 2)
    return 4 if major >= BLACKWELL and chosen == 3 else chosen


def default_backend(machine: Machine, attention: str | None) -> str | None:
    """The first of vLLM's own order for a GPU (`_get_backend_priorities`); None where the order depends on more."""
    if machine.vendor != "nvidia" or machine.capability is None or attention != "standard":
        return None
    return "FLASHINFER" if machine.capability[0] == BLACKWELL else "FLASH_ATTN"


def target_answer(backend: str, settings: Settings, machine: Machine) -> Answer:
    """Whether a backend can serve the target's layers under adaptive verification."""
    planned = draft_answer(backend, settings, machine)
    if planned.able is False:
        return planned
    if backend in ("FLASH_ATTN", "FLASH_ATTN_DIFFKV"):
        return _flash(settings, machine)
    if backend in ALWAYS:
        return Answer(True, "replays decode graphs of any lengths")
    if backend == "FLASHINFER":
        reason = "takes lengths that vary where its TRT-LLM kernel does, which depends on the model's heads"
        return planned if planned.able is None else Answer(True, reason)
    if backend in DATA_CENTRE_BLACKWELL_ONLY:
        able = None if machine.capability is None else machine.capability[0] == BLACKWELL
        reason = "replays graphs of lengths that vary on compute capability 10 (B200, B300, GB200) only"
        return Answer(able, reason, LATENT_REMEDY)
    if backend in EVEN_LENGTHS:
        remedy = LATENT_REMEDY if "MLA" in backend else _other(machine)
        return Answer(False, "has decode graphs of even lengths only", remedy)
    if backend in ONE_TOKEN:
        return Answer(False, "has decode graphs of one token a request only", LATENT_REMEDY)
    if backend in NO_GRAPHS:
        return Answer(False, "has no graphs of decode steps", "another device")
    return Answer(None, "is not among the backends that this lab has read")


def hard_wired_answer(model_type: str, machine: Machine) -> Answer | None:
    """DeepSeek-V4 models choose their backends themselves (`DeepseekV32IndexerBackend`); None for other models."""
    if model_type not in ("deepseek_v4", "deepseek_v41"):
        return None
    if machine.vendor == "amd":
        if model_type == "deepseek_v4":
            return Answer(True, "has its own attention, which takes lengths that vary on ROCm")
        return Answer(
            False, "has its own attention, which takes no lengths that vary on ROCm", "an NVIDIA GPU"
        )
    if machine.capability is None:
        return Answer(None, "has its own attention: it can on Hopper and on B200, B300, GB200, with DeepGEMM")
    if machine.capability[0] in (HOPPER, BLACKWELL):
        return Answer(
            True, "has its own attention, which takes lengths that vary here, with DeepGEMM installed"
        )
    return Answer(
        False, "has its own attention, which can on compute capability 9 and 10 only", "another GPU"
    )


def draft_answer(backend: str, settings: Settings, machine: Machine) -> Answer:
    """Whether a backend can serve the drafter's layers: it need not know query lengths on the CPU."""
    if backend in RECURRENT:
        return Answer(
            False, "plans its recurrent state from lengths that the CPU knows", "a target without such layers"
        )
    if backend == "MAMBA2":
        return Answer(None, "works unless ReplaySSM is on")
    if backend in COMPOSITE:
        return Answer(False, "joins two backends and never takes lengths that vary", _other(machine))
    if backend == "FLASHINFER":
        if settings.decode_context > 1:
            return Answer(
                False, "cannot under decode context parallelism", "--decode-context-parallel-size 1"
            )
        if machine.capability is None:
            return Answer(None, "can on compute capability 10 (B200, B300, GB200) only")
        if machine.capability[0] != BLACKWELL:
            return Answer(False, "can on compute capability 10 (B200, B300, GB200) only", _other(machine))
    return Answer(True, "takes lengths that the GPU decides")


def _flash(settings: Settings, machine: Machine) -> Answer:
    if machine.vendor == "intel" and settings.version >= (0, 33):
        return Answer(True, "replays decode graphs of any lengths on XPU")
    found = flash_attention(settings, machine)
    able = {3} if settings.version < (0, 33) else {3, 4}
    names = " or ".join(f"FlashAttention {each}" for each in sorted(able))
    if found is None:
        return Answer(None, f"can with {names} (Hopper has 3, B200 has 4), not with FlashAttention 2")
    if found in able:
        return Answer(True, f"is FlashAttention {found} here, whose graphs take lengths that vary")
    return Answer(
        False, f"is FlashAttention {found} here; graphs of lengths that vary need {names}", _other(machine)
    )


def _other(machine: Machine) -> str:
    if machine.vendor == "amd":
        return "--attention-backend ROCM_ATTN"
    return "--attention-backend TRITON_ATTN"
