"""The doctor's verdicts on flags against vLLM's own parser, validators and EngineArgs, from its unpacked wheel.

Each flag alone and every two of them together, with a draft model of random sizes: what vLLM refuses before it loads
anything, the doctor refuses; what it takes, the doctor takes; and defaults come out the same.
"""

import itertools
import json
import shlex
import sys
from dataclasses import replace

import pytest
from test_doctor_matrix import ask, needs_wheel
from tiny_models import write_llama

from avlab.vllm.doctor.command import examine_line
from avlab.vllm.doctor.gates import graph_mode
from avlab.vllm.doctor.machines import KNOWN
from avlab.vllm.doctor.sizes import requests_of, tokens_of
from avlab.vllm.options import FILE
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.settings import from_line

pytestmark = [pytest.mark.vllm, needs_wheel]
LATER = {
    "attention",
    "drafter's attention",
    "memory",
    "captured sizes",
}  # asked when layers are built, or later
ALONE = [
    "", "--max-num-seqs 2k", "--max-model-len 4k", "--max-model-len 4K", "--max-num-batched-tokens 2k",
    "--max-num-se 8", "--tensor-paralel-size 2", "-tp 3", "-tp 6", "-dcp 2 -tp 2", "-tp 3 -dcp 2", "--enforce-eager",
    "-O0", "-O1", "-O2", "-O3", "-O 0", "--optimization-level 1", "-cc.mode 0", "-cc.mode 1", "-cc.mode 3",
    "-cc.cudagraph_mode NONE", "-cc.cudagraph_mode PIECEWISE", "-cc.cudagraph_mode FULL",
    "-cc.cudagraph_mode FULL_DECODE_ONLY", "-cc.cudagraph_mode full_and_piecewise", "-cc.cudagraphs_mode FULL",
    "-O0 -cc.cudagraph_mode FULL_DECODE_ONLY", "-O1 -cc.cudagraph_mode FULL", "-cc.max_cudagraph_capture_size 2",
    "--max-cudagraph-capture-size 2048", "--cudagraph-capture-sizes 4 8 16",
    "--cudagraph-capture-sizes 4 8 --max-cudagraph-capture-size 16", "--performance-mode throughput",
    "--max-num-seqs 64 --max-num-batched-tokens 32", "--max-num-seqs 2 --max-num-batched-tokens 3",
    "-sc.rejection_sample_method fly", "-sc.rejection_sample_method synthetic", "-sc.draft_tensor_parallel_size 3",
    "-sc.num_speculative_tokens 0", "-sc.unknown 1", "-sc.attention_backend FLASHATTN", "--attention-backend auto",
    "--attention-backend flash_attn", "--attention-backend NOTHING", "-sc.method medusa", "-sc.tensor_parallel_size 1",
    "-sc.rejection_sample_method synthetic -sc.synthetic_acceptance_length 2.5", "-sc.synthetic_acceptance_length 2.5",
    "-sc.rejection_sample_method fly -sc.num_speculative_tokens 1", "-sc.rejection_sample_method stanard",
    "--kv-cache-dtype fp8", "--block-size 16", "--no-enable-prefix-caching", "--disable-prefix-caching",
]  # fmt: skip
TOGETHER = [
    "--enable-lora", "-pp 2", "--enforce-eager", "-O1", "-cc.mode 1", "-cc.cudagraph_mode PIECEWISE", "--enable-dbo",
    "-sc.use_local_argmax_reduction true", "-sc.parallel_drafting true", "-sc.use_heterogeneous_vocab true",
    "-sc.draft_sample_method probabilistic", "--return-sampling-mask", "-tp 2", "--max-num-seqs 16", "-dp 2",
    "-sc.enable_adaptive_verification false",
]  # fmt: skip
RUNNERS = [{}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, {"VLLM_USE_V2_MODEL_RUNNER": "1"}]


def commands() -> list[tuple[str, dict[str, str]]]:
    """Flags, and what the server is started with."""
    pairs = [" ".join(pair) for pair in itertools.combinations(TOGETHER, 2)]
    one = [(flags, environment) for flags in (*ALONE, *TOGETHER) for environment in RUNNERS]
    return [*one, *((flags, environment) for flags in pairs for environment in (RUNNERS[0], RUNNERS[2]))]


@pytest.mark.parametrize("gpu", ["h100", "b200", "a100"])
def test_what_vllm_refuses_before_loading_the_doctor_refuses(gpu, tmp_path):
    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 64,
        "max_position_embeddings": 4096,
        "num_attention_heads": 8,
    }
    target = write_llama(tmp_path / "target", **sizes, num_key_value_heads=8)
    drafter = write_llama(tmp_path / "drafter", **sizes, num_key_value_heads=8)
    spec = {"method": "draft_model", "model": str(drafter), "num_speculative_tokens": 3}
    spec["enable_adaptive_verification"] = True
    machine, asked = KNOWN[gpu], commands()
    front = [
        str(target),
        *(word for key, value in spec.items() for word in (f"-sc.{key}", json.dumps(value))),
    ]
    front = [word.strip('"') for word in front]
    cells = [
        {"words": [*front, *shlex.split(flags)], "environment": environment} for flags, environment in asked
    ]
    order = {"vendor": "nvidia", "capability": machine.capability, "memory_gib": machine.memory_gib}
    answers = ask("vllm_configures.py", order | {"name": machine.name, "cells": cells}, HF_HUB_OFFLINE="1")
    wrong = []
    for cell, answer in zip(cells, answers, strict=True):
        line = replace(ServeLine.parse(cell["words"]), environment=cell["environment"])
        told = [f for f in examine_line(line, machine, "0.33.0") if f.verdict == "refuses"]
        found = [f for f in told if f.gate not in LATER or "knows no" in f.reason]
        name = f"{shlex.join(cell['words'][len(front) :])} {cell['environment']}"
        if bool(found) is not bool(answer["why"]):
            wrong.append(f"{name}: ours {[f.reason for f in found]}, vLLM {answer['why'][:200]!r}")
        elif not answer["why"]:
            settings = from_line(line, "0.33.0")
            ours = {"method": settings.method, "K": settings.K, "requests": requests_of(settings, machine),
                    "tokens": tokens_of(settings, machine), "mode": graph_mode(settings)}  # fmt: skip
            differing = {key: (value, answer[key]) for key, value in ours.items() if value != answer[key]}
            if differing:
                wrong.append(f"{name}: ours and vLLM's {differing}")
    print(f"{gpu}: {len(cells)} commands, {len(wrong)} wrong", file=sys.stderr)
    assert not wrong, "\n".join(wrong[:60])
    assert len(cells) >= 200


def test_the_shipped_names_are_vllms():
    theirs = ask("vllm_options.py", {})
    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    assert shipped["keys"] == theirs["keys"] and shipped["variables"] == theirs["variables"]
    assert shipped["options"].keys() == theirs["options"].keys()
    for name, told in theirs["options"].items():
        kind = (
            "flag" if told["flag"] else "size" if told["suffixes"] else "whole" if told["whole"] else
            "number" if told["number"] else "text"
        )  # fmt: skip
        assert (shipped["options"][name]["kind"], shipped["options"][name].get("many", False)) == (
            kind,
            told["many"],
        )
