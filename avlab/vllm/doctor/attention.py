"""The gate of attention: every kind of the target's layers must take lengths of verification that the GPU decides."""

import difflib
from dataclasses import replace

from avlab.vllm.doctor import abilities, backends
from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine, Verdict
from avlab.vllm.doctor.layers import Layer
from avlab.vllm.doctor.own import own_choice
from avlab.vllm.doctor.selection import Choice, choose, order
from avlab.vllm.doctor.sizes import MANAGER
from avlab.vllm.settings import Settings


def attention(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """The target's attention must take lengths of verification that the GPU decides, in every kind of layer."""
    name, source = (
        "attention",
        f"vllm/v1/attention/selector.py; {MANAGER}, maybe_create_adaptive_verification_manager",
    )
    if settings.backend is not None and settings.backend not in backends.NAMES:
        return _no_backend(name, settings.backend)
    if settings.backends_by_kind:
        reason = "backend_per_kind names backends by kind of layer, which is not followed here."
        return Finding(name, "unknown", reason, "Name one --attention-backend.", source)
    if settings.prefill_context > 1:
        reason = "Backends under prefill context parallelism were not read."
        return Finding(name, "unknown", reason, "--prefill-context-parallel-size 1.", source)
    if machine.vendor == "cpu":
        return Finding(name, "refuses", "A CPU's attention has no graphs of decode steps.", "A GPU.", source)
    asked = _asked(settings, checkpoint, machine)
    if checkpoint.layers is None:
        return _unread(asked, checkpoint, machine, name, source)
    layers = [replace(each, prefix=each.prefix and not asked.text_only) for each in checkpoint.layers]
    choices = [_choice(layer, checkpoint.model_type, asked, machine) for layer in layers]
    worst = min(choices, key=lambda choice: (False, None, True).index(choice.able))
    supposed = f" (taken as {checkpoint.known_as}, by its name)" if checkpoint.known_as else ""
    others = [each.backend for each in choices if each is not worst and each.backend]
    beside = f", beside {', '.join(others)}" if others and worst.able else ""
    verdicts: dict[bool | None, Verdict] = {True: "passes", False: "refuses", None: "unknown"}
    told = f"{worst.reason}{beside}{supposed}."
    remedy = f"{worst.remedy}." if worst.remedy and worst.able is not True else ""
    if worst.able is None and not remedy:
        remedy = "Say the GPU with --gpu or --capability."
    return Finding(name, verdicts[worst.able], told, remedy, source)


def _no_backend(gate: str, backend: str) -> Finding:
    near = difflib.get_close_matches(backend, backends.NAMES, 1)
    remedy = f"{near[0]}." if near else "A name from vLLM's AttentionBackendEnum."
    reason = f"vLLM knows no attention backend {backend}."
    return Finding(gate, "refuses", reason, remedy, "vllm/v1/attention/backends/registry.py")


def _choice(layer: Layer, model_type: str, settings: Settings, machine: Machine) -> Choice:
    if layer.kind == "own":
        return own_choice(model_type, layer, settings, machine)
    return choose(layer, settings, machine)


def _asked(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Settings:
    """The settings with the cache's type as vLLM resolves it for this checkpoint and machine."""
    if settings.cache != "auto":
        return settings
    blackwell = machine.capability is not None and machine.capability[0] == backends.BLACKWELL
    if checkpoint.model_type == "glm_moe_dsa" and blackwell and checkpoint.cache is None:
        return replace(settings, cache="fp8_e4m3")
    return replace(settings, cache=checkpoint.cache) if checkpoint.cache else settings


def _unread(settings: Settings, checkpoint: Checkpoint, machine: Machine, name: str, source: str) -> Finding:
    """Nothing is known of the target's layers: what would hold if they were plain, and what would tell."""
    tell = "Give the checkpoint's folder, or a model that the doctor knows: `avlab doctor --matrix`."
    what = (
        f"Models of the type {checkpoint.model_type} were not read"
        if checkpoint.model_type
        else "The checkpoint is not on this machine, and not among the models that ship with the doctor"
    )
    plain = Layer("standard", 128, 32, 8)
    if settings.backend is None and not order(plain, settings, machine):
        return Finding(name, "unknown", f"{what}.", tell, source)
    supposed = choose(plain, settings, machine)
    remedy = f"{supposed.remedy}; {tell[0].lower()}{tell[1:]}" if supposed.remedy else tell
    return Finding(name, "unknown", f"{what}. If its attention is plain: {supposed.reason}.", remedy, source)


def draft_attention(settings: Settings, checkpoint: Checkpoint, machine: Machine) -> Finding:
    """Draft layers go through the same selection, but for DSpark's; their graphs are their own."""
    name, source = "drafter's attention", "vllm/v1/attention/selector.py"
    if settings.method == "dspark":
        return Finding(name, "passes", "DSpark's own layers are exempt.", source=source)
    backend = settings.draft_backend or settings.backend
    if backend is not None and backend not in backends.NAMES:
        return _no_backend(name, backend)
    if backend is None or backend not in backends.BACKENDS:
        if backend in backends.COMPOSITE:
            reason = f"{backend} joins two backends and never takes lengths that the GPU decides."
            return Finding(name, "refuses", reason, '"attention_backend": "TRITON_ATTN".', source)
        return Finding(name, "passes", "vLLM chooses among the backends that can.", source=source)
    latent = backends.BACKENDS[backend].latent
    if latent and settings.method != "mtp" and settings.draft_backend is None:
        reason = f"{backend} is for latent attention, and a drafter's layers may be plain: then vLLM refuses."
        remedy = '"attention_backend": "TRITON_ATTN" in --speculative-config, where they are plain.'
        return Finding(name, "unknown", reason, remedy, source)
    layer = (
        Layer("latent", 576, 0, 1, sparse=backends.BACKENDS[backend].sparse) if latent else Layer("standard")
    )
    against = abilities.objections(backend, layer, replace(settings, backend=backend, cache="auto"), machine)
    if against and machine.vendor:
        remedy = '"attention_backend": "TRITON_ATTN" in --speculative-config.'
        return Finding(name, "refuses", f"{backend} is named, but {against[0]}.", remedy, source)
    return Finding(name, "passes", f"{backend} takes lengths that the GPU decides.", source=source)
