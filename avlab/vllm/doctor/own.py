"""Models that name their attention backends themselves, so that vLLM's selection is not asked (`vllm/models/`)."""

from dataclasses import replace

from avlab.vllm.doctor.backends import BLACKWELL, HOPPER, flash_attention
from avlab.vllm.doctor.findings import Machine
from avlab.vllm.doctor.layers import Layer
from avlab.vllm.doctor.selection import NOWHERE, Choice, choose
from avlab.vllm.settings import Settings

PULL = "https://github.com/vllm-project/vllm/pull"
EVEN = {
    "inkling_mm_model": ("its convolution's graphs take even lengths only", f"{PULL}/52992 is to change it"),
    "inkling_model": ("its convolution's graphs take even lengths only", f"{PULL}/52992 is to change it"),
    "minimax_m3": ("its sparse attention's graphs take even lengths only", f"{PULL}/56451 is to change it on MI325"),
    "minimax_m3_vl": ("its sparse attention's graphs take even lengths only", f"{PULL}/56451 is to change it on MI325"),
    "qwen4_exp": ("GDN_ATTN plans its recurrent state from lengths that the CPU knows", NOWHERE),
    "step5": ("its sparse attention's graphs take one token a request only", NOWHERE),
    "dots3_note": ("TRITON_MLA and its windows have graphs of even lengths only", NOWHERE),
    "kimi_linear": ("GDN_ATTN plans its recurrent state from lengths that the CPU knows", NOWHERE),
    "llama4": ("chunked local attention has no graphs of decode steps", NOWHERE),
    "llama4_text": ("chunked local attention has no graphs of decode steps", NOWHERE),
}  # fmt: skip


def own_choice(model_type: str, layer: Layer, settings: Settings, machine: Machine) -> Choice:
    """What such a model does on a machine."""
    if model_type in EVEN:
        reason, remedy = EVEN[model_type]
        later = f"enable_adaptive_verification false; {remedy}" if remedy.startswith(PULL) else remedy
        return Choice(False, "", f"{model_type}: {reason}", later)
    if model_type in ("deepseek_v4", "deepseek_v41"):
        return _deepseek_v4(model_type, settings, machine)
    if model_type == "kimi_k3":
        return _kimi_k3(layer, settings, machine)
    if model_type in ("mimo_v2", "mimo_v2_flash"):
        return _mimo(layer, settings, machine)
    return Choice(None, "", f"{model_type} has attention of its own, which was not read")


def _deepseek_v4(model_type: str, settings: Settings, machine: Machine) -> Choice:
    own = f"{model_type} has its own attention"
    if machine.vendor == "amd" and model_type == "deepseek_v41" and settings.before_0_33:
        return Choice(
            False, "", f"{own}, whose graphs on ROCm take even lengths only before 0.33", "vLLM 0.33.0"
        )
    if machine.vendor == "amd":
        return Choice(True, "", f"{own}, which takes lengths that vary on ROCm")
    if machine.vendor not in ("nvidia", "") or (machine.vendor and machine.capability is None):
        return Choice(None, "", f"{own}, which was not read for {machine.described}")
    if machine.capability is None:
        return Choice(
            None, "", f"{own}: it can on ROCm, on Hopper and on B200, B300, GB200, there with DeepGEMM"
        )
    if machine.capability[0] in (HOPPER, BLACKWELL):
        return Choice(True, "", f"{own}, which takes lengths that vary here, with DeepGEMM installed")
    return Choice(False, "", f"{own}, which can on compute capability 9 and 10 only", "another GPU")


def _kimi_k3(layer: Layer, settings: Settings, machine: Machine) -> Choice:
    """Its recurrent layers (KDA) can; its latent layers go through the selection."""
    if machine.vendor == "amd" and settings.before_0_33:
        reason = "kimi_k3: its KDA layers plan from lengths that the CPU knows on ROCm, before 0.33"
        return Choice(False, "", reason, "vLLM 0.33.0")
    latent = replace(layer, kind="latent", head_size=layer.head_size or 576, kv_heads=1)
    found = choose(latent, settings, machine)
    return replace(found, reason=f"kimi_k3: its KDA layers can; of its latent layers: {found.reason}")


def _mimo(layer: Layer, settings: Settings, machine: Machine) -> Choice:
    """Keys and values of different sizes have backends of their own."""
    if not layer.head_size or not layer.value_size:
        return Choice(None, "", "mimo_v2: the sizes of its keys and values are not known here")
    if layer.head_size == layer.value_size:
        return choose(replace(layer, kind="standard"), settings, machine)
    if machine.vendor == "nvidia" and machine.capability is None:
        return Choice(None, "", "Which backend vLLM takes is not known without the GPU")
    able = flash_attention(settings, machine, layer.head_size) in (3, 4)
    if settings.backend == "FLASH_ATTN_DIFFKV" and not able:
        reason = "FLASH_ATTN_DIFFKV is FlashAttention 2 here; graphs of lengths that vary need FlashAttention 3 or 4"
        return Choice(False, settings.backend, reason, "--attention-backend TRITON_ATTN_DIFFKV")
    taken = "FLASH_ATTN_DIFFKV" if able and settings.backend != "TRITON_ATTN_DIFFKV" else "TRITON_ATTN_DIFFKV"
    return Choice(True, taken, f"{taken} replays decode graphs of lengths that vary")
