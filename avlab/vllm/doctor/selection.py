"""Which backend vLLM takes for each kind of a target's layers, and whether adaptive verification starts with it.

The order is `_get_backend_priorities` of `vllm/platforms/cuda.py` and `rocm.py`; the first backend without an objection
is taken, or the one that was named, or none.
"""

from dataclasses import dataclass

from avlab.vllm.doctor.abilities import objections, replays, why
from avlab.vllm.doctor.backends import (
    BACKENDS,
    BLACKWELL,
    COMPOSITE,
    CONSUMER_BLACKWELL,
    EVEN_LENGTHS,
    FP8,
    HOPPER,
    NO_GRAPHS,
    ONE_TOKEN,
    REPLAY_ANY,
)
from avlab.vllm.doctor.findings import Machine
from avlab.vllm.doctor.layers import Layer
from avlab.vllm.settings import Settings

STATES = {
    "mamba1": "MAMBA1 plans its recurrent state from lengths that the CPU knows",
    "gdn": "GDN_ATTN plans its recurrent state from lengths that the CPU knows",
    "linear": "LINEAR plans its recurrent state from lengths that the CPU knows",
    "short convolution": "SHORT_CONV plans its state from lengths that the CPU knows",
}
NOWHERE = '"enable_adaptive_verification": false, or another target; no backend of 0.33 serves it adaptively'


@dataclass(frozen=True)
class Choice:
    """able: whether adaptive verification starts with this layer, None where it cannot be said. backend: what vLLM
    takes, "" where it takes none or nobody knows. reason: a sentence without its full stop.
    """

    able: bool | None
    backend: str
    reason: str
    remedy: str = ""


def order(layer: Layer, settings: Settings, machine: Machine) -> list[str]:
    """vLLM's order of preference for a layer on a machine; empty where it is not known."""
    if machine.vendor == "amd":
        return _order_amd(layer, settings)
    if machine.vendor != "nvidia" or machine.capability is None:
        return []
    major = machine.capability[0]
    if layer.kind == "latent":
        return _order_latent(layer, settings, major)
    tail = ["TRITON_ATTN", "FLEX_ATTENTION"]
    if major == BLACKWELL:
        return [*(["TRITON_FLASHINFER"] if layer.prefix else []), "FLASHINFER", "FLASH_ATTN", *tail]
    joined = ["TRITON_FLASH_ATTN"] if layer.prefix and major == HOPPER else []
    return [*joined, "FLASH_ATTN", "FLASHINFER", *tail]


def _order_latent(layer: Layer, settings: Settings, major: int) -> list[str]:
    if major == BLACKWELL:
        dense = [
            "FLASHINFER_MLA",
            "TOKENSPEED_MLA",
            "CUTLASS_MLA",
            "FLASH_ATTN_MLA",
            "FLASHMLA",
            "TRITON_MLA",
        ]
        quantised = settings.cache not in ("auto", "float16", "bfloat16")
        if quantised:
            return [*dense, "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        if layer.heads // settings.tensor <= 16:
            return [*dense, "FLASH_ATTN_MLA_SPARSE_FA4", "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        return [*dense, "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"]
    if major == CONSUMER_BLACKWELL:
        return ["TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"]
    tail = ["FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"]
    own = "FLASHINFER_MLA_SPARSE_SM90"
    tail = [own, *tail] if layer.head_size == 512 else [*tail, own]
    return ["FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", *tail]


def _order_amd(layer: Layer, settings: Settings) -> list[str]:
    if layer.sparse:
        return ["ROCM_AITER_MLA_SPARSE"]
    if layer.kind == "latent":
        aiter = ["ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA"]
        return aiter if settings.aiter_mla else ["TRITON_MLA"]
    found = [] if settings.connector else ["ROCM_ATTN"]
    if settings.aiter_mha:
        found.append("ROCM_AITER_FA")
    return [*found, "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN"]  # the first of the two where AITER is installed


def choose(layer: Layer, settings: Settings, machine: Machine) -> Choice:
    """What vLLM takes for a kind of layer, and whether adaptive verification starts with it."""
    if layer.kind in STATES:
        return Choice(False, "", STATES[layer.kind], NOWHERE)
    if layer.kind == "mamba2":
        if settings.before_0_33:
            reason = "MAMBA2 plans its recurrent state from lengths that the CPU knows, before 0.33"
            return Choice(False, "MAMBA2", reason, "vLLM 0.33.0")
        if settings.replay_ssm:
            return Choice(False, "MAMBA2", "MAMBA2 plans from the CPU's counts under ReplaySSM", "Without it")
        return Choice(True, "MAMBA2", "MAMBA2 takes lengths that the GPU decides")
    if settings.backend is not None:
        return _named(settings.backend, layer, settings, machine)
    names = order(layer, settings, machine)
    if not names:
        return Choice(None, "", f"Which backend vLLM takes on {machine.described} is not known here")
    taken = next((name for name in names if not objections(name, layer, settings, machine)), None)
    if taken is None:
        told = "; ".join(
            f"{name}: {objections(name, layer, settings, machine)[0]}"
            for name in names
            if BACKENDS.get(name, BACKENDS["FLASH_ATTN"]).sparse is layer.sparse
        )
        return Choice(
            False,
            "",
            f"No backend takes this on {machine.described} ({told})",
            remedy(layer, settings, machine),
        )
    return _judged(taken, layer, settings, machine)


def _named(name: str, layer: Layer, settings: Settings, machine: Machine) -> Choice:
    """A backend that the command names: vLLM takes it or nothing."""
    if name in BACKENDS or name in COMPOSITE:
        against = objections(name, layer, settings, machine)
        if against:
            advice = remedy(layer, settings, machine)
            return Choice(False, "", f"{name} is named and does not serve: {'; '.join(against)}", advice)
        return _judged(name, layer, settings, machine)
    if name in EVEN_LENGTHS | ONE_TOKEN | NO_GRAPHS:
        return Choice(False, name, f"{name} {why(name, settings, machine)}", remedy(layer, settings, machine))
    if name in REPLAY_ANY:
        return Choice(
            None, name, f"{name} replays graphs of any lengths; whether it takes this layer was not read"
        )
    return Choice(None, name, f"{name} is not among the backends that were read")


def _judged(name: str, layer: Layer, settings: Settings, machine: Machine) -> Choice:
    able = replays(name, settings, machine)
    if machine.capability is None and machine.vendor in ("", "nvidia") and BACKENDS[name].majors is not None:
        able = None if able is not False else able
    advice = "" if able else remedy(layer, settings, machine)
    return Choice(able, name, f"{name} {why(name, settings, machine)}", advice)


def remedy(layer: Layer, settings: Settings, machine: Machine) -> str:
    """What makes it start: another backend on this machine, an fp8 cache, else another GPU."""
    named = next((name for name in BACKENDS if _serves(name, layer, settings, machine)), None)
    if named is not None:
        return f"--attention-backend {named}"
    if layer.kind == "latent":
        aiter = "VLLM_ROCM_USE_AITER=1 in its environment, which takes ROCM_AITER_MLA"
        if machine.vendor == "amd" and not layer.sparse and settings.decode_context == 1:
            return f"vLLM 0.33.0, and {aiter}" if settings.before_0_33 else aiter
        return "a GPU of compute capability 10 (B200, B300, GB200, GB300), where FlashInfer's kernel does"
    if settings.cache not in {"auto", *FP8}:
        return "--kv-cache-dtype auto"
    return NOWHERE


def _serves(name: str, layer: Layer, settings: Settings, machine: Machine) -> bool:
    if machine.capability is None and machine.vendor != "amd":
        return name == "TRITON_ATTN" and not objections(name, layer, settings, machine)
    if BACKENDS[name].vendor == "amd" and machine.vendor != "amd":
        return False
    if name == "ROCM_AITER_MLA" and not settings.aiter_mla:
        return False
    return not objections(name, layer, settings, machine) and bool(replays(name, settings, machine))
