"""Launch lines as people have them: what a shell, docker, compose and Kubernetes start, and what cannot be read."""

import json

import pytest
from vllm_environment import ask, needs_vllm

from avlab.vllm.launch import LaunchError, launch
from avlab.vllm.launch_files import launches, launches_in, pasted
from avlab.vllm.serve_line import ServeLine, ServeLineError
from avlab.vllm.settings import from_line

SPEC = (
    '{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3, "enable_adaptive_verification": true}'
)
DOCKER = f"""docker run --rm -it --gpus '"device=0,1"' -p 8000:8000 --ipc=host -v ~/.cache:/root/.cache \\
  --env "HF_TOKEN=secret" -e VLLM_USE_V2_MODEL_RUNNER=1 \\
  vllm/vllm-openai:v0.33.0 --model Qwen/Qwen3-8B -tp 2 --max-model-len 128K \\
  --speculative-config '{SPEC}'
"""
COMPOSE = """
services:
  web:
    image: nginx
  llm:
    image: vllm/vllm-openai:v0.32.0
    command: >
      --model ${MODEL:-Qwen/Qwen3-8B} --tensor-parallel-size 4
      --max-num-batched-tokens 16k
    environment:
      - VLLM_USE_V2_MODEL_RUNNER=0
    deploy:
      resources:
        reservations:
          devices:
            - {driver: nvidia, count: 4, capabilities: [gpu]}
"""
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: qwen}
spec:
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0
          command: ["/bin/sh", "-c"]
          args: ["vllm serve Qwen/Qwen3-8B -tp $(TP) --enable-lora"]
          env: [{name: TP, value: "2"}]
          resources: {limits: {nvidia.com/gpu: 8}}
        - name: sidecar
          image: busybox
---
apiVersion: v1
kind: Service
"""


def test_docker_run_and_what_it_gives_the_container():
    [found] = launches(DOCKER)
    assert found.line.model == "Qwen/Qwen3-8B" and found.line.speculative["method"] == "eagle3"
    assert found.line.arguments["tensor-parallel-size"] == 2
    assert found.line.arguments["max-model-len"] == 131_072
    assert found.line.environment["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert (found.version, found.gpus, found.contained) == ("0.33.0", 2, True)


def test_a_compose_file_s_service():
    [found] = launches(COMPOSE)
    assert (found.name, found.version, found.gpus) == ("llm", "0.32.0", 4)
    assert found.line.model == "Qwen/Qwen3-8B" and found.line.arguments["max-num-batched-tokens"] == 16_000
    assert found.line.environment == {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def test_a_manifest_s_container_wherever_it_stands():
    [found] = launches(MANIFEST)
    assert (found.name, found.version, found.gpus) == ("qwen/vllm", "0.33.0", 8)
    assert found.gpu == "NVIDIA-H100-80GB-HBM3"
    assert found.line.arguments == {"tensor-parallel-size": 2, "enable-lora": True}


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m/n --enforce-eager",
        "CUDA_VISIBLE_DEVICES=0 vllm serve m/n --enforce-eager",
        "nohup vllm serve m/n --enforce-eager > log 2>&1 &",
        "cd /srv && source env/bin/activate && vllm serve m/n --enforce-eager; echo done",
        "python -m vllm.entrypoints.openai.api_server --model m/n --enforce-eager",
        "/opt/venv/bin/vllm serve m/n --enforce-eager | tee log",
        'bash -lc "vllm serve m/n --enforce-eager"',
        "export MODEL=m/n\nvllm serve $MODEL \\\n  --enforce-eager\necho up",
        "MODEL=m/n\nvllm serve ${MODEL} --enforce-eager",
        "vllm serve ${MODEL:-m/n} --enforce-eager",
        "uv run vllm serve m/n --enforce-eager",
        "vllm serve --enforce-eager m/n",
        "vllm serve --model m/n --enforce-eager",
        "vllm serve other --model m/n --enforce-eager",
        "docker run --gpus all vllm/vllm-openai:latest --model m/n --enforce-eager",
        "docker run -d --shm-size 16g --entrypoint vllm vllm/vllm-openai serve m/n --enforce-eager",
        "docker run --gpus=all rocm/vllm:latest bash -c 'vllm serve m/n --enforce-eager'",
    ],
)
def test_shells(text):
    [found] = launches(text)
    assert found.line.model == "m/n" and found.line.arguments == {"enforce-eager": True}


def test_a_config_file_stands_behind_the_command_line(tmp_path):
    (tmp_path / "serve.yaml").write_text(
        "model: a/b\ntensor-parallel-size: 4\nenforce-eager: false\nenable-lora: true\nmax-model-len: 32k\n"
        "cudagraph-capture-sizes: [8, 16]\nspeculative-config:\n  method: mtp\n  num_speculative_tokens: 2\n"
    )
    found = launch(["vllm", "serve", "--config", "serve.yaml", "-tp", "2"], tmp_path).line
    assert found.model == "a/b" and found.arguments["tensor-parallel-size"] == 2
    assert found.arguments["cudagraph-capture-sizes"] == [8, 16] and found.arguments["enforce-eager"] is False
    assert found.arguments["max-model-len"] == 32_000 and found.speculative["method"] == "mtp"
    assert launch(["vllm", "serve", "c/d", "--config", "serve.yaml"], tmp_path).line.model == "c/d"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vllm serve m -tp $TP", r"uses \$TP, whose value is not known here"),
        ("vllm serve m -tp $(nproc)", "asks the shell for a value"),
        ("vllm serve 'm", "a quote is open"),
        ("echo hello", "No `vllm serve` is in there"),
        ("services:\n  - [", "YAML cannot be read"),
        ("vllm serve m --config nowhere.yaml", "nowhere.yaml cannot be read"),
        ("vllm serve m --config serve.json", "no .yaml or .yml file"),
        ("docker run --gpus all", "No `vllm serve`"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text, sentence, tmp_path):
    with pytest.raises(LaunchError, match=sentence):
        launches(text, tmp_path)


def test_files_are_read_by_what_they_are(tmp_path):
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\nset -e\nexport VLLM_USE_V2_MODEL_RUNNER=1\n{DOCKER}")
    (tmp_path / "deploy.yaml").write_text(MANIFEST)
    assert launches_in(tmp_path / "run.sh")[0].line.model == "Qwen/Qwen3-8B"
    assert launches_in(tmp_path / "deploy.yaml")[0].name == "qwen/vllm"
    (tmp_path / "large").write_bytes(b"#" * 2**21)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("large", "binary", "missing"):
        with pytest.raises(LaunchError):
            launches_in(tmp_path / name)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("--max-model-len 128K", {"max-model-len": 131_072}),
        ("--max-model-len 2k", {"max-model-len": 2_000}),
        ("--max-model-len auto", {"max-model-len": "auto"}),
        ("--max-num-seqs 2k", {"max-num-seqs": "2k"}),  # which vLLM refuses
        ("-O3", {"optimization-level": 3}),
        ("-O 0", {"optimization-level": 0}),
        ("-O=1", {"optimization-level": 1}),
        ("--disable-prefix-caching", {"enable-prefix-caching": False}),
        ("--max-num-se 8", {"max-num-seqs": 8}),  # argparse takes a name's beginning
        ("-dpl 4 -pcp 2", {"data-parallel-size-local": 4, "prefill-context-parallel-size": 2}),
        ("--seed -1", {"seed": -1}),
        ("-cc.cudagraph_mode=FULL", {"compilation-config": {"cudagraph_mode": "FULL"}}),
        (
            "--spec-tokens 3 --spec-method mtp",
            {"speculative-config": {"num_speculative_tokens": 3, "method": "mtp"}},
        ),
    ],
)
def test_arguments_as_vllm_reads_them(words, arguments):
    assert dict(ServeLine.parse(f"vllm serve m {words}").arguments) == arguments


def test_a_pasted_json_survives_the_shell():
    [found] = launches(f"vllm serve m --speculative-config '{SPEC}' # adaptive")
    assert found.line.speculative == json.loads(SPEC)


def test_what_somebody_pastes():
    assert pasted("m/n --enforce-eager \\\n -tp 2")[0].line.arguments == {
        "enforce-eager": True,
        "tensor-parallel-size": 2,
    }
    assert pasted(MANIFEST)[0].name == "qwen/vllm"
    with pytest.raises(LaunchError, match="check its quotes"):
        pasted("m/n 'open")


CONFIGURATIONS = {
    "as usual": SPEC,
    "behind a space and a row": f" \n{SPEC}",
    "none": "none",
    "None": "None",
    "null": "null",
    "empty": "",
    "a text": "eagle3",
    "a number": "3",
    "a list": "[1]",
    "a switch": "true",
    "quotes of a text processor": f"‘{SPEC}’",
    "quotes that the shell left": f"'{SPEC}'",
    "a dictionary of Python": SPEC.replace('"', "'"),
}


def refusal(words):
    try:
        ServeLine.parse(words)
    except ServeLineError as error:
        return str(error)
    return ""


def commands():
    given = {name: ["m", "--speculative-config", text] for name, text in CONFIGURATIONS.items()}
    more = {"no value": ["m", "--speculative-config"], "a dash": ["m", "—enforce-eager"]}
    return given | more


def test_a_configuration_that_is_none_is_one_sentence_of_what_to_write():
    found = {name: refusal(words) for name, words in commands().items()}
    taken = {"as usual", "behind a space and a row", "None", "null", "empty"}
    assert {name for name, said in found.items() if not said} == taken
    assert "a text processor's" in found["quotes of a text processor"]
    assert "JSON wants double quotes" in found["a dictionary of Python"]
    assert "has no value" in found["no value"] and "write --enforce-eager" in found["a dash"]


@needs_vllm
@pytest.mark.vllm
def test_vllms_parser_takes_and_refuses_the_same():
    theirs = ask("vllm_parses.py", {"commands": commands()})
    ours = {name: refusal(words) for name, words in commands().items()}
    assert {name: bool(said) for name, said in ours.items()} == {
        name: bool(said) for name, said in theirs.items()
    }


@pytest.mark.parametrize(
    ("value", "adaptive"), [("true", True), ("false", False), ("off", False), ("1", True)]
)
def test_a_switch_within_the_configuration_may_be_a_text(value, adaptive):
    spec = json.loads(SPEC) | {"enable_adaptive_verification": value, "num_speculative_tokens": "3"}
    settings = from_line(ServeLine.parse(["m", "--speculative-config", json.dumps(spec)]))
    assert settings.adaptive is adaptive and settings.K == 3


def test_arguments_in_an_array():
    [found] = launches(
        f"""#!/usr/bin/env bash
ARGS=(
  --tensor-parallel-size 2  # both GPUs
  --speculative-config '{SPEC}'
)
ARGS+=(--max-num-seqs 64)
exec vllm serve m "${{ARGS[@]}}" "$@"
"""
    )
    assert found.line.arguments["tensor-parallel-size"] == 2 and found.line.arguments["max-num-seqs"] == 64
    assert found.line.speculative == json.loads(SPEC)
    with pytest.raises(LaunchError, match="ARGS gets arguments under a condition"):
        launches(
            'ARGS=(-tp 2)\nif [ -n "$X" ]; then\n  ARGS+=(--enforce-eager)\nfi\nvllm serve m "${ARGS[@]}"'
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vllm serve m \\ \n  --enforce-eager", "Row 1 has a space behind its backslash"),
        (
            "vllm serve m \\\n  # --max-num-seqs 8 \\\n  --enforce-eager",
            "Row 2 is a comment within a command",
        ),
        ("vllm serve m --port 8000\n  --enforce-eager", "a row without a backslash"),
    ],
)
def test_a_command_that_the_shell_ends_early_is_said(text, sentence):
    with pytest.raises(LaunchError, match=sentence):
        launches(text)


UNIT = f"""[Service]
Environment="VLLM_USE_V2_MODEL_RUNNER=0" OTHER=x
ExecStart=-/opt/vllm/bin/vllm serve m \\
  --speculative-config '{SPEC}'
Restart=always
"""
DOCKERFILE = f"""FROM python:3.12 AS build
CMD ["python"]
FROM vllm/vllm-openai:v0.32.0
ENV VLLM_USE_V2_MODEL_RUNNER=0 A=b
ENV OLDER form
CMD ["--model", "m", "--speculative-config", {json.dumps(SPEC)}]
"""


def test_a_systemd_unit():
    [found] = launches(UNIT)
    assert found.line.model == "m" and found.line.speculative == json.loads(SPEC)
    assert dict(found.line.environment) == {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def test_a_dockerfile():
    [found] = launches(DOCKERFILE)
    assert (found.line.model, found.version, found.contained) == ("m", "0.32.0", True)
    assert found.line.speculative == json.loads(SPEC)
    assert (
        found.line.environment["VLLM_USE_V2_MODEL_RUNNER"] == "0"
        and found.line.environment["OLDER"] == "form"
    )
    [shell] = launches(
        f"FROM vllm/vllm-openai:v0.33.0\nENTRYPOINT vllm serve m --speculative-config '{SPEC}'"
    )
    assert shell.line.speculative == json.loads(SPEC)
    for text in ("FROM vllm/vllm-openai:v0.33.0\nRUN true\n", 'FROM redis\nCMD ["redis-server"]'):
        with pytest.raises(LaunchError, match="No `vllm serve`"):
            launches(text)
    with pytest.raises(LaunchError, match="The Dockerfile cannot be read"):
        launches('FROM vllm/vllm-openai:v0.33.0\nCMD ["--model", "m"')
