"""The doctor's verdicts against vLLM's own code: its selector, builders and adaptive manager, from its unpacked wheel.

`make test-doctor` fetches the wheel and runs this. Every kind of layer of every model that ships, on every generation
of GPU, under flags; and each verdict equals vLLM's, or says that it does not know.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from avlab.installation import PROJECT
from avlab.vllm.doctor.facts import known, names
from avlab.vllm.doctor.layers import Layer, layers_of
from avlab.vllm.doctor.machines import KNOWN
from avlab.vllm.doctor.own import own_choice
from avlab.vllm.doctor.selection import choose
from avlab.vllm.settings import Settings

FOLDER = PROJECT / ".venv-doctor"
WHEEL = Path(os.environ.get("AVLAB_VLLM_WHEEL", FOLDER / "wheel"))
OLDER = Path(os.environ.get("AVLAB_VLLM_OLDER_WHEEL", FOLDER / "wheel-0.32.0"))
PYTHON = os.environ.get("AVLAB_DOCTOR_PYTHON", str(FOLDER / "bin" / "python"))
SCRIPTS = PROJECT / "tests" / "support"
needs_wheel = pytest.mark.skipif(
    not (WHEEL / "vllm").exists(), reason="make test-doctor unpacks vLLM's wheel, and runs this"
)
pytestmark = [pytest.mark.vllm, needs_wheel]
PLAIN = Settings("m", (0, 33, 0), method="eagle3", K=7, adaptive=True)
VARIANTS = {
    "plain": {},
    "fp8 cache": {"cache": "fp8"},
    "tensor 2": {"tensor": 2},
    "tensor 8": {"tensor": 8},
    "blocks of 16": {"block_size": 16},
    "blocks of 64": {"block_size": 64},
    "blocks of 128, fp8": {"block_size": 128, "cache": "fp8"},
    "FLASH_ATTN": {"backend": "FLASH_ATTN"},
    "TRITON_ATTN": {"backend": "TRITON_ATTN"},
    "FLASHINFER": {"backend": "FLASHINFER"},
    "FLEX_ATTENTION": {"backend": "FLEX_ATTENTION"},
    "FLASHINFER_MLA": {"backend": "FLASHINFER_MLA"},
    "TRITON_MLA": {"backend": "TRITON_MLA"},
    "CUTLASS_MLA": {"backend": "CUTLASS_MLA"},
    "FLASHMLA": {"backend": "FLASHMLA"},
    "FLASHINFER_MLA_SPARSE": {"backend": "FLASHINFER_MLA_SPARSE"},
    "FLASHMLA_SPARSE": {"backend": "FLASHMLA_SPARSE"},
    "FlashAttention 2": {"flash_attention": 2},
    "without TRT-LLM": {"trtllm": False},
    "ReplaySSM": {"replay_ssm": True},
    "KV connector": {"connector": True},
    "float32": {"dtype": "float32"},
    "float16": {"dtype": "float16"},
    "decode context": {"decode_context": 2, "tensor": 2},
    "decode context, TRITON_ATTN": {"decode_context": 2, "tensor": 2, "backend": "TRITON_ATTN"},
    "batch invariance": {"batch_invariant": True},
    "batch invariance, FLASHINFER": {"batch_invariant": True, "backend": "FLASHINFER"},
}
ASKED = ("tensor", "K", "backend", "flash_attention", "trtllm", "block_size", "cache", "replay_ssm", "connector",
         "decode_context", "dtype")  # fmt: skip
AMD = {"mi300x": (9, 4), "mi355x": (9, 5)}
OWN = "vllm.models"
NVIDIA_V4 = [
    "vllm.v1.attention.backends.mla.indexer:DeepseekV4IndexerBackend",
    f"{OWN}.deepseek_v4.compressor:CompressorBackend", f"{OWN}.deepseek_v4.sparse_mla:DeepseekV4FlashMLABackend",
    f"{OWN}.deepseek_v4.nvidia.flashmla:DeepseekSparseSWAFlashMLABackend",
]  # fmt: skip
NVIDIA_V41 = [
    "vllm.v1.attention.backends.mla.indexer:DeepseekV41IndexerBackend",
    f"{OWN}.deepseek_v41.sparse_mla:DeepseekV4FlashMLABackend",
    f"{OWN}.deepseek_v41.nvidia.flashmla:DeepseekSparseSWAFlashMLABackend",
]
BACKENDS_OF = {  # what a model names itself, by vendor
    "nvidia": {
        "deepseek_v4": NVIDIA_V4,
        "deepseek_v41": NVIDIA_V41,
        "inkling_mm_model": [f"{OWN}.inkling.nvidia.sconv_swa_attn:InklingSconvBackend"],
        "minimax_m3": [f"{OWN}.minimax_m3.common.sparse_attention:MiniMaxM3SparseBackend"],
        "kimi_linear": ["vllm.v1.attention.backends.gdn_attn:GDNAttentionBackend"],
    },
    "amd": {
        "deepseek_v4": [
            "vllm.v1.attention.backends.mla.indexer:DeepseekV4IndexerBackend",
            f"{OWN}.deepseek_v4.amd.rocm:DeepseekV4ROCMAiterMLASparseBackend",
        ],
        "deepseek_v41": [
            "vllm.v1.attention.backends.mla.indexer:DeepseekV41IndexerBackend",
            f"{OWN}.deepseek_v41.amd.rocm:DeepseekV41ROCMAiterMLASparseBackend",
            f"{OWN}.deepseek_v41.amd.rocm:DeepseekV41ROCMAiterSparseSWABackend",
        ],
    },
}
GPUS = ("a100", "l40s", "h100", "b200", "b300", "rtx-5090", "gb10")


def layers() -> dict[str, Layer]:
    """Each kind of layer once, by the first model that has it."""
    found: dict[Layer, str] = {}
    for name in names():
        for layer in layers_of(known(name).config) or ():
            if layer.kind != "own":
                found.setdefault(layer, name)
    return {f"{name} {layer.kind} {layer.head_size}": layer for layer, name in found.items()}


def cells() -> list[tuple[str, Layer, Settings]]:
    """What is asked of every GPU: layers under the variants that can concern them."""
    made = []
    for name, layer in layers().items():
        for variant, changes in VARIANTS.items():
            settings = replace(PLAIN, **changes)
            if layer.kind not in ("standard", "latent") and variant not in ("plain", "ReplaySSM"):
                continue
            if layer.heads and layer.heads % settings.tensor:
                continue
            made.append((f"{name}, {variant}", layer, settings))
    return made


def ask(script: str, order: dict, wheel: Path = WHEEL, **more: str) -> list:
    """What a script beside this answers in the doctor's environment."""
    done = subprocess.run(
        [PYTHON, str(SCRIPTS / script)], input=json.dumps(order), capture_output=True, text=True, timeout=900,
        env=os.environ | {"AVLAB_VLLM_WHEEL": str(wheel), "OMP_NUM_THREADS": "1"} | more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def in_process(settings: Settings, flash: int | None = None, invariant: bool = False) -> bool:
    return settings.flash_attention == flash and settings.batch_invariant is invariant


def same(ours: str, theirs: str) -> bool:
    """MAMBA2's class calls itself MAMBA2_ATTN; FlashAttention 4's sparse backend falls to its parent without CuTe."""
    parent = ours == "FLASH_ATTN_MLA_SPARSE_FA4" and theirs == "FLASHINFER_MLA_SPARSE"
    return parent or theirs.removesuffix("_ATTN") == ours.removesuffix("_ATTN")


# vLLM decides its graphs when the module is loaded: a process each
@pytest.mark.parametrize(("flash", "invariant"), [(None, False), (2, False), (None, True)])
@pytest.mark.parametrize("gpu", GPUS)
def test_every_verdict_on_attention_is_vllms(gpu, flash, invariant):
    machine, asked = KNOWN[gpu], [each for each in cells() if in_process(each[2], flash, invariant)]
    order = [
        {"layer": asdict(layer), "settings": {key: asdict(settings)[key] for key in ASKED}}
        for _, layer, settings in asked
    ]
    request = {"vendor": "nvidia", "capability": machine.capability, "cells": order}
    theirs = ask("vllm_selects.py", request, VLLM_BATCH_INVARIANT=str(int(invariant)))
    wrong, unknown = [], 0
    for (name, layer, settings), answer in zip(asked, theirs, strict=True):
        ours = choose(layer, settings, machine)
        unknown += ours.able is None
        if ours.able is not None and ours.able is not answer["able"]:
            wrong.append(f"{name}: ours {ours}, vLLM's {answer}")
        elif ours.backend and answer["backend"] and not same(ours.backend, answer["backend"]):
            wrong.append(f"{name}: ours takes {ours.backend}, vLLM {answer['backend']}")
    print(f"{gpu}: {len(asked)} cells, {unknown} not known, {len(wrong)} wrong", file=sys.stderr)
    assert not wrong, "\n".join(wrong[:40])
    assert len(asked) >= (200 if flash is None and not invariant else 20) and unknown == 0


@pytest.mark.parametrize("aiter", [False, True])
@pytest.mark.parametrize("gpu", AMD)
def test_every_verdict_on_amd_is_vllms(gpu, aiter):
    """With AMD's library, as its images have it; switched on or not."""
    named = ("TRITON_ATTN", "TRITON_MLA")
    asked = [each for each in cells() if in_process(each[2]) and each[2].trtllm is None]
    asked = [each for each in asked if each[2].backend in (None, *named)]
    switched = {"aiter": aiter, "aiter_mla": aiter, "aiter_mha": aiter}
    order = [
        {"layer": asdict(layer), "settings": {key: asdict(settings)[key] for key in ASKED}}
        for _, layer, settings in asked
    ]
    request = {"vendor": "amd", "capability": AMD[gpu], "cells": order}
    more = {"AVLAB_AITER": "1", "VLLM_ROCM_USE_AITER": str(int(aiter))}
    theirs, wrong = ask("vllm_selects.py", request, **more), []
    for (name, layer, settings), answer in zip(asked, theirs, strict=True):
        ours = choose(layer, replace(settings, **switched), KNOWN[gpu])
        if ours.able is not answer["able"]:
            wrong.append(f"{name}: ours {ours}, vLLM's {answer}")
    print(f"{gpu}, AITER {aiter}: {len(asked)} cells, {len(wrong)} wrong", file=sys.stderr)
    assert not wrong, "\n".join(wrong[:30])


@pytest.mark.parametrize(
    ("vendor", "gpu", "capability"),
    [("nvidia", "h100", (9, 0)), ("nvidia", "b200", (10, 0)), ("nvidia", "rtx-5090", (12, 0)),
     ("nvidia", "a100", (8, 0)), ("amd", "mi355x", (9, 5)), ("amd", "mi300x", (9, 4))],
)  # fmt: skip
def test_models_with_backends_of_their_own(vendor, gpu, capability):
    models = BACKENDS_OF[vendor]
    theirs = ask(
        "vllm_own.py", {"vendor": vendor, "capability": capability, "models": models}, AVLAB_AITER="1"
    )
    for model, against in zip(models, theirs, strict=True):
        [layer] = layers_of({"model_type": model})
        ours = own_choice(model, layer, PLAIN, KNOWN[gpu])
        assert ours.able is not bool(against), (model, gpu, ours, against)


@pytest.mark.skipif(not (OLDER / "vllm").exists(), reason="vLLM 0.32.0's wheel is not unpacked")
@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_verdicts_for_0_32_are_those_of_0_32(gpu):
    machine = KNOWN[gpu]
    asked = [(name, layer, replace(settings, version=(0, 32, 0))) for name, layer, settings in cells()]
    asked = [each for each in asked if in_process(each[2])]
    order = [
        {"layer": asdict(layer), "settings": {key: asdict(settings)[key] for key in ASKED}}
        for _, layer, settings in asked
    ]
    request = {"vendor": "nvidia", "capability": machine.capability, "cells": order}
    theirs = ask("vllm_selects.py", request, OLDER)
    answers = zip(asked, theirs, strict=True)
    wrong = [
        f"{name}: {answer}"
        for (name, layer, settings), answer in answers
        if choose(layer, settings, machine).able is not answer["able"]
    ]
    assert not wrong, "\n".join(wrong[:20])
