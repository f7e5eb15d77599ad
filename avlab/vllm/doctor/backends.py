"""The attention backends of vLLM 0.33: what each takes, and whether its graphs replay drafts of varying lengths.

A backend serves adaptive verification on two conditions. Its plan must not come from query lengths that the CPU knows
(`supports_device_cpu_query_lens_mismatch`, asked when the layers are built). Its graphs of a decode step must replay
requests of 1 to K + 1 tokens (`get_cudagraph_support` ALWAYS, or `get_varlen_cudagraph_max_query_len`, asked after the
weights are loaded). Draft layers need the first only, and DSpark's own neither. `make test-doctor` compares every line
of this file with vLLM's code.
"""

from collections.abc import Callable
from dataclasses import dataclass

from avlab.vllm.doctor.findings import Machine
from avlab.vllm.doctor.layers import Layer
from avlab.vllm.settings import Settings

PLAIN = {"auto", "float16", "bfloat16"}
FP8 = {"fp8", "fp8_e4m3"}
HOPPER, BLACKWELL, CONSUMER_BLACKWELL = 9, 10, 12  # major compute capabilities
Objection = Callable[[Layer, Settings, Machine], str | None]


@dataclass(frozen=True)
class Backend:
    """What a backend takes.

    majors: compute capabilities, None for any. heads: sizes of a head; least: the smallest, where any larger does;
    multiple: a head size must be a multiple. caches: types of the cache. block: block sizes are multiples of it.
    connector: it serves with a KV connector. more: what else it may object to.
    """

    majors: tuple[int, ...] | None = None
    heads: tuple[int, ...] = ()
    least: int = 0
    multiple: int = 1
    caches: frozenset[str] = frozenset(PLAIN)
    block: int = 16
    latent: bool = False
    sparse: bool = False
    sinks: bool = False
    prefix: bool = False
    vendor: str = "nvidia"
    connector: bool = True
    more: Objection | None = None


def flash_attention(settings: Settings, machine: Machine, head_size: int | None = None) -> int | None:
    """The version of FlashAttention that vLLM takes there (`get_flash_attn_version`); None where nobody knows."""
    if machine.vendor == "intel":
        return 2
    if machine.capability is None:
        return None
    major = machine.capability[0]
    chosen = settings.flash_attention or {HOPPER: 3, BLACKWELL: 4}.get(major, 2)
    if major >= BLACKWELL and chosen == 3:
        chosen = 4 if has_flash_attention_4(machine) else 2
    if chosen == 4 and settings.batch_invariant:
        return 2
    if chosen == 3 and major == HOPPER and head_size is not None and head_size > 256:
        return 4
    return chosen


def has_flash_attention_4(machine: Machine) -> bool:
    """Compute capabilities 9, 10 and 11 have it."""
    return machine.capability is not None and machine.capability[0] in (9, 10, 11)


def _flash(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    version = flash_attention(settings, machine)
    if layer.head_size > (512 if has_flash_attention_4(machine) else 256):
        return f"head size {layer.head_size} not supported"
    if layer.sinks and version not in (3, 4):
        return "attention sinks need FlashAttention 3 or 4"
    if settings.cache in FP8 and not _flash_fp8(layer, settings, machine):
        return "an fp8 cache needs FlashAttention 3 or 4"
    if layer.prefix:
        resolved = flash_attention(settings, machine, layer.head_size)
        if resolved != 4 or (layer.head_size == 256 and machine.capability and machine.capability[0] >= 10):
            return "bidirectional image tokens need FlashAttention 4"
        if settings.cache in FP8 and machine.capability == (9, 0):
            return "bidirectional image tokens with an fp8 cache need Triton"
    return None


def _flash_fp8(layer: Layer, settings: Settings, machine: Machine) -> bool:
    version, major = flash_attention(settings, machine), (machine.capability or (0, 0))[0]
    own = flash_attention(settings, machine, layer.head_size)
    if major == HOPPER:
        return version in (3, 4) and (own == 3 or (own == 4 and layer.head_size == 512))
    wide = layer.head_size > 128 and layer.head_size not in (192,)
    return version == 4 and major == BLACKWELL and not wide


def _flashinfer(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    kv_heads = max(1, layer.kv_heads // settings.tensor)
    if (layer.heads // settings.tensor) % kv_heads:
        return "its TRT-LLM kernel takes query heads in multiples of the cache's"
    if settings.trtllm is False or settings.batch_invariant:
        return "its TRT-LLM kernel is switched off"
    return None


def _flashinfer_latent(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    if layer.no_rotary not in (None, 64, 128, 192):
        return f"qk_nope_head_dim {layer.no_rotary} is not 64, 128 or 192"
    return None


def _flashinfer_sparse(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    if layer.rotary == 0:
        able = layer.no_rotary == 256 and layer.head_size == 512
        return None if able else "without a rotary part it takes qk_nope_head_dim 256 and rank 512"
    return None if layer.no_rotary in (128, 192) else f"qk_nope_head_dim {layer.no_rotary} is not 128 or 192"


def _fa4_sparse(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    if layer.top_k is None or layer.top_k % 128:
        return "index_topk must be a multiple of 128"
    if (layer.head_size, layer.rotary) != (576, 64):
        return "rank 512 and a rotary part of 64 only"
    gathered = layer.heads // settings.tensor * settings.decode_context
    counts = (8, 16, 32, 64) if settings.decode_context > 1 else (8, 16, 32, 64, 128)
    if gathered not in counts:
        return f"{gathered} heads a GPU are not among {counts}"
    return _flashinfer_sparse(layer, settings, machine)


def _flashmla_sparse(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    if layer.head_size == 512 and not (
        machine.capability and machine.capability[0] == HOPPER and not layer.rotary
    ):
        return "head size 512 on Hopper without a rotary part only"
    return None


def _tokenspeed(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    sizes = (layer.no_rotary, layer.rotary, layer.value_size)
    return None if sizes == (128, 64, 128) else "it takes the sizes of DeepSeek-R1 only"


def _sparse_120(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    return None if layer.top_k == 2048 else "index_topk must be 2048"


def _sparse_90(layer: Layer, settings: Settings, machine: Machine) -> str | None:
    able = layer.rotary in (0, 64) and layer.head_size - (layer.rotary or 0) == 512
    return None if able else "rank 512 and a rotary part of 0 or 64 only"


def _caches(*names: str) -> frozenset[str]:
    return frozenset({*PLAIN, *names})


LATENT_HEADS = (320, 512, 576)
BACKENDS: dict[str, Backend] = {
    "FLASH_ATTN": Backend(
        (8, 9, 10, 11, 12), multiple=8, caches=_caches(*FP8), sinks=True, prefix=True, more=_flash
    ),
    "FLASHINFER": Backend(
        (10,), heads=(64, 128, 256, 512), sinks=True, more=_flashinfer,
        caches=_caches(*FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
    ),
    "TRITON_ATTN": Backend(
        least=32, sinks=True, prefix=True, vendor="",
        caches=_caches(*FP8, "fp8_e5m2", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
    ),
    "FLEX_ATTENTION": Backend(prefix=True),
    "FLASHINFER_MLA": Backend(
        (10,), heads=LATENT_HEADS, caches=_caches(*FP8), block=32, latent=True, more=_flashinfer_latent
    ),
    "TOKENSPEED_MLA": Backend(
        (10,), heads=LATENT_HEADS, caches=frozenset(FP8), block=32, latent=True, more=_tokenspeed
    ),
    "CUTLASS_MLA": Backend((10,), heads=LATENT_HEADS, caches=_caches(*FP8), block=128, latent=True),
    "FLASH_ATTN_MLA": Backend((9,), heads=LATENT_HEADS, latent=True),
    "FLASHMLA": Backend((9,), heads=LATENT_HEADS, caches=_caches(*FP8), block=64, latent=True),
    "TRITON_MLA": Backend(caches=_caches(*FP8), latent=True, vendor=""),
    "FLASHINFER_MLA_SPARSE": Backend(
        (10,), heads=(512, 576), caches=_caches(*FP8), block=32, latent=True, sparse=True, more=_flashinfer_sparse
    ),
    "FLASH_ATTN_MLA_SPARSE_FA4": Backend(
        (10,), heads=(576,), caches=frozenset({"auto", "bfloat16"}), block=64, latent=True, sparse=True,
        more=_fa4_sparse,
    ),
    "FLASHMLA_SPARSE": Backend(
        (9, 10), heads=(512, 576), caches=frozenset({"auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"}),
        block=64, latent=True, sparse=True, more=_flashmla_sparse,
    ),
    "FLASH_ATTN_MLA_SPARSE": Backend((9,), block=64, latent=True, sparse=True),
    "FLASHINFER_MLA_SPARSE_SM90": Backend(
        (9,), heads=(512, 576), caches=frozenset({"auto", "bfloat16", *FP8}), block=64, latent=True, sparse=True,
        more=_sparse_90,
    ),
    "FLASHINFER_MLA_SPARSE_SM120": Backend(
        (12,), heads=(512, 576), caches=frozenset({"auto", "fp8", "fp8_e4m3", "fp8_ds_mla"}), block=64, latent=True,
        sparse=True, more=_sparse_120,
    ),
    "ROCM_ATTN": Backend(
        heads=(32, 64, 80, 96, 128, 160, 192, 224, 256), caches=_caches(*FP8, "fp8_e5m2"), connector=False, vendor="amd"
    ),
    "ROCM_AITER_UNIFIED_ATTN": Backend(least=32, caches=_caches(*FP8, "fp8_e5m2"), sinks=True, vendor="amd"),
    "ROCM_AITER_FA": Backend(
        heads=(64, 128, 256), caches=_caches(*FP8, "fp8_e5m2"), sinks=True, vendor="amd"
    ),
    "ROCM_AITER_MLA": Backend(caches=_caches(*FP8, "fp8_e5m2"), block=1, latent=True, vendor="amd"),
    "ROCM_AITER_TRITON_MLA": Backend(caches=_caches(*FP8, "fp8_e5m2"), block=1, latent=True, vendor="amd"),
    "ROCM_AITER_MLA_SPARSE": Backend(caches=_caches(*FP8), block=1, latent=True, sparse=True, vendor="amd"),
}  # fmt: skip
REPLAY_ANY = {
    "TRITON_ATTN", "TRITON_ATTN_DIFFKV", "FLEX_ATTENTION", "ROCM_ATTN", "ROCM_SEGMENTED_ATTN",
    "ROCM_AITER_UNIFIED_ATTN",
}  # fmt: skip
EVEN_LENGTHS = {
    "FLASH_ATTN_MLA", "FLASHMLA", "FLASHMLA_SPARSE", "TRITON_MLA", "TOKENSPEED_MLA", "FLASH_ATTN_MLA_SPARSE",
    "FLASHINFER_MLA_SPARSE_SM90", "FLASHINFER_MLA_SPARSE_SM120", "ROCM_AITER_FA", "ROCM_AITER_MLA_SPARSE",
    "ROCM_AITER_TRITON_MLA", "TURBOQUANT", "ULTRAQUANT", "ROCM_OCTAVE", "B12X", "CUTLASS_MSA", "TRITON_MSA",
    "MINIMAX_M3_SPARSE",
}  # fmt: skip
ONE_TOKEN = {"CUTLASS_MLA", "HPC_ATTN", "STEP5_DSA"}
NO_GRAPHS = {"CPU_ATTN", "CPU_MLA", "AMX_MLA", "XPU_MLA_SPARSE"}
COMPOSITE = {"TRITON_FLASHINFER", "TRITON_FLASH_ATTN"}
MODELS_OWN = {
    "FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4", "ROCM_FLASHMLA_SPARSE_DSV4", "FLASHMLA_SPARSE_DSV41",
    "FLASHINFER_MLA_SPARSE_DSV41", "ROCM_FLASHMLA_SPARSE_DSV41", "FLASHMLA_MEGA_ATTN_DSV41", "FLASH_ATTN_DIFFKV",
    "TRITON_ATTN_DIFFKV", "NO_ATTENTION", "CUSTOM", "TORCH_SDPA",
}  # fmt: skip
INVARIANT = {"FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN_MLA", "TRITON_MLA"}
DECODE_CONTEXT = {
    "FLASH_ATTN", "FLASHINFER", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "FLASHINFER_MLA_SPARSE",
    "FLASH_ATTN_MLA_SPARSE_FA4", "FLASHMLA", "FLASHMLA_SPARSE", "ROCM_AITER_MLA", "TOKENSPEED_MLA", "TRITON_MLA",
}  # fmt: skip
SINGLE = {"float32", "float"}  # types of the weights
TAKES_SINGLE = {"TRITON_ATTN", "FLEX_ATTENTION", "ROCM_ATTN"}
BRAIN_ONLY = {
    "FLASHMLA_SPARSE", "FLASH_ATTN_MLA_SPARSE_FA4", "FLASHINFER_MLA_SPARSE_SM90", "FLASHINFER_MLA_SPARSE_SM120",
}  # fmt: skip
NAMES = {*BACKENDS, *REPLAY_ANY, *EVEN_LENGTHS, *ONE_TOKEN, *NO_GRAPHS, *COMPOSITE, *MODELS_OWN}
