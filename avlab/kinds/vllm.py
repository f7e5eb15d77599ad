"""vLLM, in this environment or in another one, whose interpreter a variable names."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from avlab.kinds.base import Kind
from avlab.vllm.serving_config import VllmConfig

VLLM_PYTHON = "AVLAB_VLLM_PYTHON"  # the interpreter of an environment that has vLLM, where it is another one
POLICIES = ("adaptive", "verify:1", "verify:2", "verify:3")
WITHIN = (
    "One vLLM engine that switches between its own rule (adaptive) and a fixed length (verify:k) while it serves. "
    "Drafting stays at K, so this compares verification only: an autoregressive drafter pays for K either way. "
    "`avlab vllm ab ... --engines` starts one engine per arm, each with its own draft length."
)
ENGINES = (
    "One engine per arm, restarted for each block with the arm's own draft length: each arm pays for what it drafts "
    "and verifies. Estimators start anew in each block, and learn within its wash-out."
)


def other_python() -> str:
    """The interpreter of another environment, which has vLLM; "" where none is named."""
    return os.environ.get(VLLM_PYTHON, "")


def _python() -> str:
    return other_python() or sys.executable


def _ab_notes(values: Mapping[str, Any]) -> str:
    return ENGINES if values["engines"] else WITHIN


KIND = Kind(VllmConfig, python=_python, playground=True, policies=POLICIES, ab_notes=_ab_notes)
