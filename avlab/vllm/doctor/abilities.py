"""Whether a backend takes a layer (`validate_configuration`), and whether its graphs replay lengths that vary."""

from avlab.vllm.doctor.backends import (
    BACKENDS,
    BLACKWELL,
    BRAIN_ONLY,
    COMPOSITE,
    DECODE_CONTEXT,
    EVEN_LENGTHS,
    INVARIANT,
    NO_GRAPHS,
    ONE_TOKEN,
    REPLAY_ANY,
    SINGLE,
    TAKES_SINGLE,
    Backend,
    flash_attention,
)
from avlab.vllm.doctor.findings import Machine
from avlab.vllm.doctor.layers import Layer
from avlab.vllm.settings import Settings


def objections(name: str, layer: Layer, settings: Settings, machine: Machine) -> list[str]:
    """Why a backend cannot serve a layer (`validate_configuration`); empty where it can. Where the GPU is not known
    nothing that depends on it is said."""
    if name in COMPOSITE:
        return ["it joins two backends and never takes lengths that the GPU decides"]
    backend = BACKENDS[name]
    found = [_of_machine(name, backend, settings, machine)]
    if backend.vendor == "amd" and machine.vendor not in ("amd", ""):
        found.append("it is AMD's")
    if (layer.kind == "latent") is not backend.latent:
        found.append(
            "it is for latent attention (MLA)" if backend.latent else "it takes no latent attention (MLA)"
        )
    elif layer.sparse is not backend.sparse:
        found.append("it is for sparse attention" if backend.sparse else "it takes no sparse attention")
    if layer.head_size:
        if layer.head_size < backend.least or layer.head_size % backend.multiple:
            found.append(f"head size {layer.head_size} not supported")
        elif backend.heads and layer.head_size not in backend.heads:
            found.append(f"head size {layer.head_size} is not among {', '.join(map(str, backend.heads))}")
    if settings.dtype in SINGLE and name not in TAKES_SINGLE:
        found.append("weights of float32 not supported")
    if settings.dtype in ("half", "float16") and name in BRAIN_ONLY:
        found.append("weights of float16 not supported")
    if settings.batch_invariant and name not in INVARIANT:
        found.append("batch invariance not supported")
    if settings.decode_context > 1 and name not in DECODE_CONTEXT:
        found.append("decode context parallelism not supported")
    if settings.cache not in backend.caches:
        found.append(f"a cache of {settings.cache} not supported")
    if settings.block_size is not None and settings.block_size % backend.block:
        found.append(f"block size {settings.block_size} is no multiple of {backend.block}")
    if layer.sinks and not backend.sinks:
        found.append("attention sinks not supported")
    if layer.prefix and not backend.prefix:
        found.append("bidirectional image tokens not supported")
    if settings.connector and not backend.connector:
        found.append("KV connectors not supported")
    if not any(found) and backend.more is not None and machine.capability is not None:
        found.append(backend.more(layer, settings, machine))
    return [each for each in found if each]


def _of_machine(name: str, backend: Backend, settings: Settings, machine: Machine) -> str | None:
    """FlashInfer is a backend of compute capability 10 here: elsewhere it plans from the CPU's lengths."""
    if name == "FLASHINFER" and settings.decode_context > 1:
        return "under decode context parallelism it plans from lengths that the CPU knows"
    if machine.vendor == "amd":
        return None if backend.vendor in ("amd", "") else "it is NVIDIA's"
    if machine.capability is None or backend.majors is None or machine.capability[0] in backend.majors:
        return None
    if name == "FLASHINFER":
        return "off compute capability 10 (B200, B300, GB200) it plans from lengths that the CPU knows"
    return f"compute capability {machine.capability[0]}.{machine.capability[1]} not supported"


def _varying(settings: Settings) -> set[int]:
    """FlashAttention 4's graphs take lengths that vary from 0.33 on."""
    return {3} if settings.before_0_33 else {3, 4}


def replays(name: str, settings: Settings, machine: Machine) -> bool | None:
    """Whether its decode graphs take requests of 1 to K + 1 tokens; None where the GPU would have to be known."""
    if name in ("FLASH_ATTN", "FLASH_ATTN_DIFFKV"):
        version = flash_attention(settings, machine)
        return None if version is None else version in _varying(settings) or machine.vendor == "intel"
    if name in ("FLASHINFER", "FLASHINFER_MLA", "FLASHINFER_MLA_SPARSE", "FLASH_ATTN_MLA_SPARSE_FA4"):
        return None if machine.capability is None else machine.capability[0] == BLACKWELL
    if name == "ROCM_AITER_MLA":
        return settings.decode_context == 1 and not settings.before_0_33
    return name in REPLAY_ANY


def why(name: str, settings: Settings, machine: Machine) -> str:
    """The clause behind a backend's name that says how its graphs stand to varying lengths."""
    if name in ("FLASH_ATTN", "FLASH_ATTN_DIFFKV"):
        version = flash_attention(settings, machine)
        if version is None:
            return "can with FlashAttention 3 or 4 (Hopper has 3, B200 has 4), not with FlashAttention 2"
        if version in _varying(settings):
            return f"is FlashAttention {version} here, whose graphs take lengths that vary"
        needed = " or ".join(map(str, sorted(_varying(settings))))
        return f"is FlashAttention {version} here; graphs of lengths that vary need FlashAttention {needed}"
    if name == "ROCM_AITER_MLA":
        return "takes up to K + 1 tokens a request, without decode context parallelism, from 0.33 on"
    if replays(name, settings, machine):
        return "replays decode graphs of lengths that vary"
    if name in ONE_TOKEN:
        return "has decode graphs of one token a request only"
    if name in NO_GRAPHS:
        return "has no graphs of decode steps"
    if name in EVEN_LENGTHS:
        return "has decode graphs of even lengths only"
    return "replays graphs of lengths that vary on compute capability 10 (B200, B300, GB200) only"
