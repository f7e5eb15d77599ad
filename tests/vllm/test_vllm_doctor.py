"""Preflight: each gate and each caution by itself, and the gates against what vLLM refuses."""

import json
from dataclasses import replace

import pytest
from tiny_models import write_llama
from vllm_environment import ask, needs_vllm

from avlab.vllm.doctor import Checkpoint, Machine, Traffic, examine
from avlab.vllm.doctor.command import examine_line
from avlab.vllm.doctor.facts import names
from avlab.vllm.doctor.layers import Layer, layers_of
from avlab.vllm.doctor.look import LookError, checkpoint_of
from avlab.vllm.doctor.machines import KNOWN as GPUS
from avlab.vllm.doctor.machines import MachineError, default_batch, machine_for, machine_named, machine_of
from avlab.vllm.presets import names as preset_names
from avlab.vllm.presets import preset
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.settings import Settings, from_line, from_server, parse_version

HOPPER, BLACKWELL, AMPERE = machine_named("h100"), machine_named("b200"), machine_named("a100")
GOOD = Settings(
    "some/model", (0, 33, 0), method="dflash", K=7, adaptive=True, draft_sample_method="probabilistic",
    backend="FLASH_ATTN", requests=64, tensor=1,
)  # fmt: skip
PLAIN = (Layer("standard", 128, 32, 8),)
KNOWN = Checkpoint(block=8, layers=PLAIN, vocabulary=50_000, draft_vocabulary=50_000, weights_gib=20.0)
ROOMY = replace(HOPPER, memory_gib=80.0, gpus=1)


def found(gate, settings, checkpoint=KNOWN, machine=ROOMY, traffic=None):
    """The findings of one gate that are not a pass."""
    return [
        f for f in examine(settings, machine, checkpoint, traffic) if f.gate == gate and f.verdict != "passes"
    ]


def one(gate, settings, **more):
    [finding] = found(gate, settings, **more)
    assert finding.reason and finding.source and (finding.remedy or finding.verdict == "unknown"), finding
    return finding


def test_good_settings_pass_every_gate():
    verdicts = {f.gate: f.verdict for f in examine(GOOD, ROOMY, KNOWN) if f.gate != "statistics"}
    assert set(verdicts.values()) == {"passes"} and len(verdicts) == 17


@pytest.mark.parametrize(
    ("gate", "changes", "words"),
    [
        ("version", {"version": (0, 20, 0)}, "neither DSpark nor adaptive"),
        ("drafter", {"method": "medusa"}, "no Medusa"),
        ("drafter", {"method": "eagel3"}, "knows no speculative method 'eagel3'"),
        ("runner", {"runner": "true"}, "neither 0 nor 1"),
        ("runner", {"runner": "1", "method": "suffix"}, "asks for Model Runner V2"),
        ("runner", {"runner": "1", "microbatching": True}, "microbatching (DBO) with drafts"),
        ("full graphs", {"optimisation": 0}, "-O0 captures nothing"),
        ("full graphs", {"optimisation": 1}, "-O1 captures pieces only"),
        ("full graphs", {"compilation": "STOCK_TORCH_COMPILE"}, "Stock torch.compile"),
        ("parallel", {"tensor": 6}, "32 attention heads do not divide among 6"),
        ("parallel", {"tensor": 4, "data": 8}, "32 GPUs are asked for, 4 (tensor) × 8 (data)"),
        ("parallel", {"draft_tensor": 2}, "only 1 or 1 is taken"),
        ("batch", {"requests": 64, "batched_tokens": 32}, "is below --max-num-seqs 64"),
        ("draft length", {"K": 0}, "wants one at least"),
        ("draft length", {"K": None}, "has no K of its own"),
        ("attention", {"backend": "FLASH_ATN"}, "knows no attention backend FLASH_ATN"),
        ("runner", {"runner": "0"}, "Model Runner V1"),
        ("runner", {"method": "suffix"}, "speculative method suffix"),
        ("runner", {"method": "eagle3", "parallel_drafting": True}, "parallel drafting"),
        ("runner", {"method": "draft_model", "other_vocabulary": True}, "another vocabulary"),
        ("runner", {"microbatching": True}, "microbatching"),
        ("full graphs", {"eager": True}, "enforce-eager"),
        ("full graphs", {"cudagraph_mode": "PIECEWISE"}, "captures no whole decode step"),
        ("LoRA", {"lora": True}, "Adapters"),
        ("pipeline parallel", {"pipeline": 2}, "last rank"),
        ("local argmax", {"local_argmax": True}, "drawing draft tokens by chance"),
        ("local argmax", {"local_argmax": True, "draft_sample_method": "greedy"}, "acceptance is estimated"),
        ("other features", {"routed_experts": True}, "routed-experts"),
        ("other features", {"sharded_sampling": True, "version": (0, 32, 0)}, "batch-sharded-sampling"),
        ("captured sizes", {"largest_capture": 4}, "holds not one request"),
    ],
)
def test_a_gate_that_vllm_closes(gate, changes, words):
    finding = one(gate, replace(GOOD, **changes))
    assert finding.verdict == "refuses"
    assert words in finding.reason


def test_a_gate_opens_with_what_its_remedy_says():
    closed = replace(GOOD, pipeline=2, tensor=2)
    remedy = one("pipeline parallel", closed, machine=replace(ROOMY, gpus=4)).remedy
    line = ServeLine.parse(f"vllm serve m {remedy.rstrip('.')}")
    assert (from_line(line).pipeline, from_line(line).tensor) == (1, 4)
    assert not found("pipeline parallel", from_line(line))
    few = replace(GOOD, requests=200)
    remedy = one("captured sizes", few).remedy.rstrip(".")
    largest = from_line(ServeLine.parse(f"vllm serve m {remedy}")).largest_capture
    assert largest == 1600 and not found("captured sizes", replace(few, largest_capture=largest))


@pytest.mark.parametrize(
    ("machine", "backend", "version", "able"),
    [
        (HOPPER, "FLASH_ATTN", (0, 33, 0), True),
        (HOPPER, "FLASH_ATTN", (0, 32, 0), True),
        (BLACKWELL, "FLASH_ATTN", (0, 33, 0), True),
        (BLACKWELL, "FLASH_ATTN", (0, 32, 0), False),  # FlashAttention 4 came to it with 0.33
        (AMPERE, "FLASH_ATTN", (0, 33, 0), False),
        (AMPERE, "TRITON_ATTN", (0, 33, 0), True),
        (BLACKWELL, "FLASHINFER", (0, 33, 0), True),
        (HOPPER, "FLASHINFER", (0, 33, 0), False),
        (HOPPER, "FLASH_ATTN_MLA", (0, 33, 0), False),
        (BLACKWELL, "FLASHINFER_MLA", (0, 33, 0), False),  # not of plain layers
        (BLACKWELL, "TRITON_FLASHINFER", (0, 33, 0), False),
        (HOPPER, "SOMETHING_NEW", (0, 33, 0), False),
        (Machine(), "FLASH_ATTN", (0, 33, 0), None),
    ],
)
def test_attention_by_gpu_generation(machine, backend, version, able):
    settings = replace(GOOD, backend=backend, version=version)
    verdict = {True: "passes", False: "refuses", None: "unknown"}[able]
    [finding] = [f for f in examine(settings, machine, KNOWN) if f.gate == "attention"]
    assert finding.verdict == verdict and backend in finding.reason


def test_the_attention_that_nobody_named_is_vllms_own_choice():
    unnamed = replace(GOOD, backend=None)
    assert one("attention", unnamed, machine=AMPERE).remedy == "--attention-backend TRITON_ATTN."
    assert not found("attention", unnamed, machine=BLACKWELL)
    supposed = one("attention", unnamed, machine=AMPERE, checkpoint=Checkpoint(block=8))
    assert supposed.verdict == "unknown" and "If its attention is plain: FLASH_ATTN" in supposed.reason


SINKS, R1 = (Layer("standard", 64, 64, 8, sinks=True),), (Layer("latent", 576, 128, 1, 128, 64, 128),)
DSA = (replace(R1[0], heads=64, no_rotary=192, value_size=256, sparse=True, top_k=2048),)


@pytest.mark.parametrize(
    ("gpu", "layers", "changes", "verdict", "words"),
    [
        ("a100", SINKS, {}, "passes", "TRITON_ATTN"),
        ("rtx-5090", SINKS, {}, "passes", "TRITON_ATTN"),
        ("h100", SINKS, {}, "passes", "FlashAttention 3"),
        ("l40s", PLAIN, {"cache": "fp8"}, "passes", "TRITON_ATTN"),
        ("l40s", PLAIN, {}, "refuses", "FlashAttention 2"),
        ("h100", R1, {}, "refuses", "FLASH_ATTN_MLA has decode graphs of even lengths"),
        ("a100", R1, {}, "refuses", "TRITON_MLA has decode graphs of even lengths"),
        ("rtx-pro-6000", R1, {}, "refuses", "TRITON_MLA has decode graphs of even lengths"),
        ("b200", R1, {}, "passes", "FLASHINFER_MLA"),
        ("b200", R1, {"block_size": 16}, "refuses", "graphs of even lengths"),
        ("mi355x", R1, {}, "refuses", "TRITON_MLA"),
        ("mi355x", R1, {"aiter": True, "aiter_mla": True}, "passes", "up to K + 1 tokens"),
        ("b300", DSA, {"cache": "fp8", "tensor": 4}, "passes", "FLASHINFER_MLA_SPARSE"),
        ("b300", DSA, {"tensor": 2}, "refuses", "FLASHMLA_SPARSE"),
        ("h200", DSA, {}, "refuses", "FLASH_ATTN_MLA_SPARSE"),
        ("h100", (*PLAIN, Layer("gdn")), {"backend": "TRITON_ATTN"}, "refuses", "GDN_ATTN plans"),
        ("h100", (*PLAIN, Layer("mamba2")), {}, "passes", "FlashAttention 3"),
        ("h100", (*PLAIN, Layer("mamba2")), {"replay_ssm": True}, "refuses", "ReplaySSM"),
        ("mi300x", PLAIN, {}, "passes", "ROCM_ATTN"),
        ("h100", (Layer("standard", 256, 16, 8, prefix=True),), {}, "passes", "TRITON_ATTN"),
        (
            "a100",
            (Layer("standard", 256, 16, 8, prefix=True),),
            {"text_only": True},
            "refuses",
            "FlashAttention 2",
        ),
        ("h100", PLAIN, {"dtype": "float32"}, "passes", "TRITON_ATTN"),
        ("b200", PLAIN, {"batch_invariant": True}, "refuses", "FlashAttention 2"),
        (
            "a100",
            PLAIN,
            {"decode_context": 2, "backend": "TRITON_ATTN"},
            "refuses",
            "decode context parallelism",
        ),
        ("h100", PLAIN, {"prefill_context": 2}, "unknown", "were not read"),
    ],
)
def test_attention_by_kind_of_layer(gpu, layers, changes, verdict, words):
    settings = replace(GOOD, **({"backend": None} | changes))
    checkpoint = replace(KNOWN, layers=layers)
    [finding] = [f for f in examine(settings, machine_named(gpu), checkpoint) if f.gate == "attention"]
    assert finding.verdict == verdict and words in finding.reason, finding
    assert bool(finding.remedy) is (verdict != "passes")


def test_a_remedy_that_names_a_backend_opens_the_gate():
    for gpu, machine in GPUS.items():
        for layers in (PLAIN, SINKS, R1, DSA, (*PLAIN, Layer("mamba2"))):
            checkpoint = replace(KNOWN, layers=layers)
            settings = replace(GOOD, backend=None)
            [finding] = [f for f in examine(settings, machine, checkpoint) if f.gate == "attention"]
            if finding.verdict == "refuses" and finding.remedy.startswith("--attention-backend "):
                named = replace(
                    settings, backend=finding.remedy.removeprefix("--attention-backend ").rstrip(".")
                )
                assert not found("attention", named, checkpoint=checkpoint, machine=machine), (gpu, finding)


@pytest.mark.parametrize(
    ("gpu", "model_type", "verdict"),
    [
        ("b200", "deepseek_v4", "passes"),
        ("h100", "deepseek_v41", "passes"),
        ("rtx-pro-6000", "deepseek_v4", "refuses"),
        ("mi355x", "deepseek_v4", "passes"),
        ("mi355x", "deepseek_v41", "passes"),
        ("b200", "inkling_mm_model", "refuses"),
        ("b200", "kimi_k3", "passes"),
        ("h200", "kimi_k3", "refuses"),
        ("b200", "llama4", "refuses"),
    ],
)
def test_models_that_choose_their_attention_themselves(gpu, model_type, verdict):
    checkpoint = replace(KNOWN, model_type=model_type, layers=layers_of({"model_type": model_type}))
    [finding] = [
        f
        for f in examine(replace(GOOD, backend=None), machine_named(gpu), checkpoint)
        if f.gate == "attention"
    ]
    assert finding.verdict == verdict


@pytest.mark.parametrize(
    ("method", "K", "checkpoint", "verdict"),
    [
        ("dflash", 15, Checkpoint(block=16), None),
        ("dflash", 16, Checkpoint(block=16), "warns"),
        ("dflash", 7, Checkpoint(block=16), None),
        ("dspark", 5, Checkpoint(block=5), None),
        ("dspark", 7, Checkpoint(block=5), "warns"),
        ("dspark", 3, Checkpoint(block=5), "warns"),
        ("mtp", 3, Checkpoint(heads=2), "refuses"),
        ("mtp", 4, Checkpoint(heads=2), None),
        ("mtp", 1, Checkpoint(heads=2), None),
        ("dflash", 7, Checkpoint(), "unknown"),
        ("dspark", None, Checkpoint(block=8), "unknown"),
    ],
)
def test_draft_length_against_the_checkpoint(method, K, checkpoint, verdict):
    findings = found("draft length", replace(GOOD, method=method, K=K), checkpoint=checkpoint)
    assert [f.verdict for f in findings] == ([verdict] if verdict else [])


@pytest.mark.parametrize(
    ("changes", "checkpoint", "verdict", "words"),
    [
        ({}, KNOWN, "passes", "both have 50,000 tokens"),
        ({}, replace(KNOWN, draft_vocabulary=32_000), "refuses", "32,000 tokens and the target 50,000"),
        ({}, replace(KNOWN, draft_vocabulary=None), "unknown", "not on this machine"),
        ({"method": "dflash"}, replace(KNOWN, draft_vocabulary=32_000), "passes", "Only a draft model"),
        ({"other_vocabulary": True}, KNOWN, "refuses", "greedy only"),
        ({"other_vocabulary": True, "method": "eagle3"}, KNOWN, "refuses", "draft_model alone"),
        (
            {"other_vocabulary": True, "draft_sample_method": "greedy"},
            replace(KNOWN, draft_vocabulary=32_000),
            "passes",
            "may have another",
        ),
    ],
)
def test_a_draft_model_s_vocabulary(changes, checkpoint, verdict, words):
    settings = replace(GOOD, **({"method": "draft_model"} | changes))
    [finding] = [each for each in examine(settings, ROOMY, checkpoint) if each.gate == "vocabulary"]
    assert finding.verdict == verdict and words in finding.reason
    assert bool(finding.remedy) is (verdict != "passes")


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        ({"model_type": "qwen3_omni_moe"}, "refuses"),
        ({"architectures": ("Qwen3OmniMoeThinkerForConditionalGeneration",)}, "refuses"),
        ({"model_type": "qwen3_moe"}, "warns"),
    ],
)
def test_qwen3_omni_s_dspark_drafts_whole_blocks(target, verdict):
    checkpoint = replace(KNOWN, **target)
    for K in (7, 9):
        finding = one("draft length", replace(GOOD, method="dspark", K=K), checkpoint=checkpoint)
        assert finding.verdict == verdict and finding.remedy == "K = 8."
    assert not found("draft length", replace(GOOD, method="dspark", K=8), checkpoint=checkpoint)


def test_captured_sizes_follow_vllms_default_and_the_batch_limit():
    assert not found("captured sizes", replace(GOOD, requests=64))  # 512 tokens, the default elsewhere
    assert one("captured sizes", replace(GOOD, requests=65)).verdict == "warns"
    assert not found("captured sizes", replace(GOOD, requests=128), machine=BLACKWELL)  # 1,024 there
    assert one("captured sizes", replace(GOOD, batched_tokens=256)).verdict == "warns"


def test_memory_counts_weights_draft_logits_and_gpus():
    assert one("memory", GOOD, machine=replace(ROOMY, memory_gib=20.0)).verdict == "refuses"
    assert not found("memory", replace(GOOD, tensor=2), machine=replace(ROOMY, memory_gib=20.0, gpus=2))
    assert "there are 1" in one("parallel", replace(GOOD, tensor=4)).reason
    logits = replace(GOOD, requests=1024, K=16)
    assert "1.5 GiB of draft logits" in next(
        f.reason for f in examine(logits, ROOMY, KNOWN) if f.gate == "memory"
    )


@pytest.mark.parametrize(
    ("settings", "traffic", "words"),
    [
        (GOOD, Traffic(dataset="random"), "random tokens"),
        (replace(GOOD, version=(0, 32, 0)), Traffic(), "same noise"),
        (replace(GOOD, draft_sample_method="greedy"), Traffic(), "wrong in the other"),
        (
            GOOD,
            Traffic(sampling=("bad_words", "presence_penalty")),
            "bad_words, presence_penalty: only the target",
        ),
        (replace(GOOD, rejection_sample_method="synthetic"), Traffic(), "accepts by a schedule"),
        (replace(GOOD, rejection_sample_method="fly"), Traffic(), "not the target's"),
        (GOOD, Traffic(concurrency=16), "5 to 8 % slower"),
        (replace(GOOD, method="eagle3", K=3), Traffic(), "3 draft passes"),
        (replace(GOOD, log_stats=False), Traffic(), "without a number"),
        (GOOD, Traffic(), "trimming looks like rejection"),
        (replace(GOOD, max_model_len=131_072), Traffic(), "profiled over a context of 8192"),
        (replace(GOOD, batched_tokens=256), Traffic(), "512 for 64 requests"),
    ],
)
def test_a_setting_that_disappoints_is_told(settings, traffic, words):
    warned = [f for f in examine(settings, ROOMY, KNOWN, traffic) if words in f.reason]
    assert len(warned) == 1 and warned[0].verdict == "warns" and warned[0].remedy and warned[0].source


def test_cautions_are_silent_where_they_do_not_apply():
    quiet = replace(GOOD, adaptive=True)
    said = [
        f.gate
        for f in examine(quiet, ROOMY, KNOWN, Traffic("sharegpt", 1.0, ("temperature",), 64))
        if f.verdict == "warns"
    ]
    assert said == ["statistics"]
    greedy = replace(GOOD, draft_sample_method="greedy")
    assert not found("coefficients", greedy, traffic=Traffic(temperature=0.0))


def test_drafters_whose_switch_does_nothing():
    assert "ignored without a word" in one("drafter", replace(GOOD, method="ngram_gpu")).reason
    broken = replace(KNOWN, draft_architectures=("Qwen3XPressModel",))
    assert "never write their estimates" in one("drafter", GOOD, checkpoint=broken).reason
    assert "every draft token is verified" in one("drafter", replace(GOOD, adaptive=False)).reason


def test_settings_of_a_running_server_are_those_of_its_command():
    line = preset("muse-glimmer-dflash2").line
    told = {
        "model_config": {"model": line.model, "enforce_eager": False, "max_model_len": 4096},
        "parallel_config": {"tensor_parallel_size": 2},
        "scheduler_config": {"max_num_seqs": 64, "max_num_batched_tokens": 8192},
        "compilation_config": {
            "cudagraph_mode": [2, 1],
            "max_cudagraph_capture_size": 512,
        },
        "attention_config": {"backend": "FLASH_ATTN"},
        "speculative_config": {**line.speculative, "rejection_sample_method": "standard"},
        "lora_config": None,
    }
    settings = from_server(told, {"VLLM_USE_V2_MODEL_RUNNER": True}, "0.33.0")
    asked = from_line(line, "0.33.0")
    assert settings.method == asked.method and settings.K == asked.K == 7 and settings.adaptive
    assert settings.backend == settings.draft_backend == asked.backend == "FLASH_ATTN"
    assert (settings.tensor, settings.requests, settings.cudagraph_mode) == (2, 64, "FULL_AND_PIECEWISE")
    assert settings.runner == "1" and not settings.lora


def test_a_preset_says_what_its_checkpoint_would():
    found = preset("deepseek-v4-flash-dspark")
    checkpoint = checkpoint_of(found.line.model, found.line.speculative["model"], found.model_type)
    for gpu, verdict in (("b200", "passes"), ("rtx-pro-6000", "refuses")):
        findings = examine(from_line(found.line), machine_named(gpu), checkpoint)
        assert [f.verdict for f in findings if f.gate == "attention"] == [verdict]


def of(text, gpu="h100", **more):
    """Findings of a command by gate."""
    return {f.gate: f for f in examine_line(ServeLine.parse(text), machine_named(gpu), "0.33.0", **more)}


def test_a_line_without_speculation_starts_and_nothing_drafts():
    for text in ("vllm serve Qwen/Qwen3-8B", "vllm serve Qwen/Qwen3-8B --enforce-eager --enable-lora -O0"):
        findings = of(text, "a100")
        assert findings["drafter"].verdict == "warns" and "nothing drafts" in findings["drafter"].reason
        assert not [f for f in findings.values() if f.verdict == "refuses"]


def test_a_head_that_names_its_target_is_a_model():
    findings = of("vllm serve RedHatAI/Qwen3-8B-speculator.eagle3", "a100")
    assert "serves Qwen/Qwen3-8B" in findings["model"].reason
    assert "every draft token is verified" in findings["drafter"].reason
    assert not [f for f in findings.values() if f.verdict == "refuses"]
    switched = of(
        "vllm serve RedHatAI/Qwen3-8B-speculator.eagle3 -sc.enable_adaptive_verification true", "a100"
    )
    assert switched["attention"].verdict == "refuses" and "FlashAttention 2" in switched["attention"].reason


@pytest.mark.parametrize(
    ("gpu", "requests"),
    [("h100", 1024), ("a100", 256), ("gb10", 256), ("l40s", 256), ("rtx-pro-6000", 1024), ("mi300x", 1024)],
)
def test_requests_that_nobody_named_are_vllms_default(gpu, requests):
    assert default_batch(machine_named(gpu))[0] == requests
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct -sc.method eagle3 -sc.model x/y -sc.num_speculative_tokens 3"
    said = of(f"{line} -sc.enable_adaptive_verification true", gpu)["captured sizes"]
    assert said.verdict == "warns" and f"{requests} requests (vLLM's default here)" in said.reason


def test_models_that_ship_are_known_and_so_are_their_copies():
    for name in names():
        assert checkpoint_of(name, None).layers, name
    assert len(names()) > 40
    copy = checkpoint_of("nvidia/Llama-3.3-70B-Instruct-FP8", None)
    assert copy.known_as == "meta-llama/Llama-3.3-70B-Instruct" and copy.layers[0].heads == 64
    said = of(
        "vllm serve RedHatAI/DeepSeek-R1-0528-quantized.w4a16 -sc.method mtp -sc.enable_adaptive_verification 1"
    )
    assert "by its name" in said["attention"].reason and said["attention"].verdict == "refuses"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("H100", "h100"), ("NVIDIA-H100-80GB-HBM3", "h100"), ("NVIDIA A100-SXM4-80GB", "a100"),
        ("rtx 5090", "rtx-5090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("GB300", "gb300"), ("AMD Instinct MI355X", "mi355x"), ("H20", "h20"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"), ("GB200", "gb200"), ("L4", "l4"),
    ],
)  # fmt: skip
def test_gpus_as_people_and_drivers_name_them(name, gpu):
    assert machine_named(name) is GPUS[gpu]


def test_a_gpu_by_its_compute_capability():
    assert machine_for(None, None, None, "12.0").capability == (12, 0)
    assert machine_for("8xH100", None, None).gpus == machine_for("h100", 8, None).gpus == 8
    assert machine_for(None, None, None, "sm_90a").capability == (9, 0)
    with pytest.raises(MachineError, match="no compute capability"):
        machine_for(None, None, None, "nine")
    with pytest.raises(MachineError, match="give one of them"):
        machine_for("h100", None, None, "8.0")


@pytest.mark.parametrize(
    ("spec", "method"),
    [
        ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, "eagle3"),
        ({"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"}, "eagle"),
        ({"model": "incoai/Muse-Glimmer-30B-DFlash2"}, "dflash"),
        ({"model": "deepseek-ai/dspark_qwen3_8b_block7"}, "dspark"),
        ({"model": "Qwen/Qwen3-0.6B"}, "draft_model"),
        ({"model": "[ngram]"}, "ngram"),
        ({"model": "my_module.MyProposer"}, "custom_class"),
        ({"method": "qwen3_next_mtp"}, "mtp"),
        ({"num_speculative_tokens": 3}, "draft_model"),
    ],
)
def test_the_method_is_told_as_vllm_tells_it(spec, method):
    assert from_line(ServeLine("m", {"speculative-config": spec})).method == method


def test_a_checkpoint_on_disk_is_read(tmp_path):
    target = write_llama(tmp_path / "target")
    (tmp_path / "drafter").mkdir()
    draft = {"architectures": ["DFlashDraftModel"], "dflash_config": {"block_size": 16}}
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(draft))
    read = checkpoint_of(str(target), str(tmp_path / "drafter"))
    assert (read.block, read.layers[0].kind, read.vocabulary) == (16, "standard", 64)
    assert read.draft_architectures == ("DFlashDraftModel",) and read.weights_gib > 0
    assert checkpoint_of("nobody/has-this", None) == Checkpoint()
    draft |= {"vocab_size": 32, "block_size": 4, "eagle_config": {"block_size": 5}}
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(draft))
    read = checkpoint_of(str(target), str(tmp_path / "drafter"))
    assert (read.vocabulary, read.draft_vocabulary, read.block) == (64, 32, 16)  # as vLLM takes it
    del draft["dflash_config"]
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(draft))
    assert checkpoint_of(str(target), str(tmp_path / "drafter")).block == 5
    (tmp_path / "drafter" / "config.json").write_text("{")
    with pytest.raises(LookError, match="cannot be read"):
        checkpoint_of(str(target), str(tmp_path / "drafter"))


def test_the_language_model_of_qwen3_omni_is_its_thinker_s(tmp_path):
    config = {
        "model_type": "qwen3_omni_moe",
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "thinker_config": {"text_config": {"vocab_size": 77}},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = checkpoint_of(str(tmp_path), None)
    assert (read.vocabulary, read.draft_vocabulary) == (77, None)
    assert read.architectures == ("Qwen3OmniMoeForConditionalGeneration",)


def test_machines_by_name_and_by_nvidia_smi():
    assert machine_of("NVIDIA H200, 9.0, 143771\nNVIDIA H200, 9.0, 143771\n") == Machine(
        "nvidia", "NVIDIA H200", (9, 0), 143771 / 1024, 2
    )
    assert machine_of("something else") == Machine()
    assert machine_for("h200", None, None) == machine_named("h200")
    assert machine_for("h200", 4, 140.0) == replace(machine_named("h200"), gpus=4, memory_gib=140.0)
    with pytest.raises(MachineError, match=r"no GPU 'h1000' in this list: a10, a100"):
        machine_named("h1000")


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.33.0", (0, 33, 0)), ("v0.32.1rc2+cu130", (0, 32, 1)), ("0.33", (0, 33, 0)), ("unknown", ())],
)
def test_versions(text, version):
    assert parse_version(text) == version


# ---- against vLLM ------------------------------------------------------------------------------------------------

V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
DRAFT = {"method": "draft_model", "num_speculative_tokens": 3, "enable_adaptive_verification": True}
CASES = {  # name: arguments, environment, the gate that ours must close (None: vLLM takes it)
    "plain": ({}, V2, None),
    "lora": ({"enable-lora": True}, V2, "LoRA"),
    "eager": ({"enforce-eager": True}, V2, "full graphs"),
    "piecewise": ({"compilation-config": {"cudagraph_mode": "PIECEWISE"}}, V2, "full graphs"),
    "pipeline": ({"pipeline-parallel-size": 2}, V2, "pipeline parallel"),
    "runner": ({}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "runner"),
    "argmax": ({"speculative-config": DRAFT | {"use_local_argmax_reduction": True}}, V2, "local argmax"),
    "mask": ({"return-sampling-mask": True}, V2, "other features"),
    "sharded": ({"enable-batch-sharded-sampling": True, "tensor-parallel-size": 2}, V2, "other features"),
}


@needs_vllm
@pytest.mark.vllm
def test_vllm_refuses_what_the_gates_refuse_and_its_backends_are_the_tables(tmp_path):
    model = write_llama(tmp_path / "model", hidden_size=64, intermediate_size=64, max_position_embeddings=128)
    cases = {
        name: {"arguments": {"speculative-config": DRAFT, **arguments}, "environment": environment}
        for name, (arguments, environment, _) in CASES.items()
    }
    other = write_llama(
        tmp_path / "other", hidden_size=64, intermediate_size=64, max_position_embeddings=128, vocab_size=96
    )
    arguments = {"speculative-config": DRAFT | {"model": str(other)}}
    cases["vocabulary"] = {"arguments": arguments, "environment": V2}
    answer = ask("vllm_refuses.py", {"model": str(model), "cases": cases})
    for name, (_, environment, gate) in (CASES | {"vocabulary": ({}, V2, "vocabulary")}).items():
        line = ServeLine(str(model), cases[name]["arguments"], environment)
        settings = replace(from_line(line, "0.32.0"), backend="FLASH_ATTN")
        drafter = line.speculative.get("model") or str(model)
        checkpoint = replace(checkpoint_of(str(model), drafter), weights_gib=None)
        ours = [f.gate for f in examine(settings, HOPPER, checkpoint) if f.verdict == "refuses"]
        assert bool(answer["refusals"][name]) is (gate is not None), (name, answer["refusals"][name])
        assert ours == ([gate] if gate else []), name


@pytest.mark.parametrize(
    ("words", "reason", "remedy"),
    [
        ("--tensor-paralel-size 4", "no option --tensor-paralel-size", "--tensor-parallel-size."),
        ("--max-num-seqs 2k", "takes a plain number", "--max-num-seqs 2000."),
        ("--max-num-seqs many", "is no whole number", "--max-num-seqs N."),
        ("--gpu-memory-utilization high", "is no number", "--gpu-memory-utilization 0.9."),
        ("--max-model-len", "wants a value", "--max-model-len VALUE."),
        ("-sc.enable_adaptive_verificaton 1", "key 'enable_adaptive_verificaton'", '"enable_adaptive_verification".'),
        ("-sc.num_spec_tokens 3", "no key 'num_spec_tokens'", '"num_speculative_tokens".'),
        ("-sc.tensor_parallel_size 2", "no tensor_parallel_size", '"draft_tensor_parallel_size".'),
        ("-cc.cudagraphs_mode FULL", "no key 'cudagraphs_mode'", '"cudagraph_mode".'),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_named_with_the_nearest_right_one(words, reason, remedy):
    finding = of(f"vllm serve m {words}")["arguments"]
    assert finding.verdict == "refuses" and reason in finding.reason and finding.remedy == remedy
    older = {f.gate: f for f in examine_line(ServeLine.parse(f"vllm serve m {words}"), HOPPER, "0.32.0")}
    assert older["arguments"].verdict == "unknown"  # that version's names were not read


def test_right_names_pass():
    line = "vllm serve m --max-model-len 128K -tp 4 --no-enable-prefix-caching --enable-expert-parallel -sc.method mtp"
    assert of(line)["arguments"].verdict == "passes"
    for name in preset_names():
        found = examine_line(preset(name).line, HOPPER, "0.33.0")
        assert [f.verdict for f in found if f.gate == "arguments"] == ["passes"], name


def test_a_variable_that_vllm_does_not_read_is_told():
    said = of("VLLM_ATTENTION_BACKEND=FLASH_ATTN VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m")["arguments"]
    assert said.verdict == "warns" and said.remedy == "--attention-backend NAME."


@pytest.mark.parametrize(
    ("gpu", "settings", "layers", "words"),
    [
        ("h20", GOOD, {"model_type": "deepseek_v4"}, "open report of this model on Hopper"),
        ("h100", replace(GOOD, utilisation=0.97), {}, "captures graphs of whole decode steps"),
        (
            "mi355x",
            replace(GOOD, backend=None, aiter=True, aiter_mla=True),
            {"layers": R1},
            "pad each request to K + 1",
        ),
    ],
)
def test_what_happens_on_some_machines_only(gpu, settings, layers, words):
    checkpoint = replace(KNOWN, **layers)
    warned = [f for f in examine(settings, machine_named(gpu), checkpoint) if words in f.reason]
    assert len(warned) == 1 and warned[0].verdict == "warns" and warned[0].remedy and warned[0].source
    elsewhere = examine(replace(settings, utilisation=0.9), machine_named("b200"), checkpoint)
    assert not [f for f in elsewhere if words in f.reason]


@pytest.mark.parametrize(
    ("gpu", "model", "older", "now"),
    [
        ("h100", "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "refuses", "passes"),
        ("mi355x", "deepseek-ai/DeepSeek-V4.1-Flash", "refuses", "passes"),
        ("mi355x", "deepseek-ai/DeepSeek-V4-Flash", "passes", "passes"),
        ("b200", "moonshotai/Kimi-K3", "passes", "passes"),
        ("b200", "meta-llama/Llama-3.1-8B-Instruct", "passes", "passes"),
    ],
)
def test_a_verdict_is_for_a_version(gpu, model, older, now):
    line = ServeLine.parse(f"vllm serve {model} -sc.method dspark -sc.enable_adaptive_verification true")
    for version, verdict in (("0.32.0", older), ("0.33.0", now)):
        found = examine_line(line, machine_named(gpu), version)
        assert [f.verdict for f in found if f.gate == "attention"] == [verdict], version


def test_a_latent_backend_may_not_be_the_drafter_s():
    latent = replace(KNOWN, layers=R1)
    for method, verdict in (("mtp", "passes"), ("eagle3", "unknown"), ("dspark", "passes")):
        settings = replace(GOOD, method=method, backend="FLASHINFER_MLA", K=3)
        [finding] = [f for f in examine(settings, BLACKWELL, latent) if f.gate == "drafter's attention"]
        assert finding.verdict == verdict
    named = replace(GOOD, method="eagle3", backend="FLASHINFER_MLA", draft_backend="TRITON_ATTN")
    assert not found("drafter's attention", named, checkpoint=latent, machine=BLACKWELL)
