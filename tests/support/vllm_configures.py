"""Asked by the doctor's test: which `vllm serve` commands vLLM's parser, validators and EngineArgs take.

In: {"vendor", "capability", "memory_gib", "name", "cells": [{"words": [..], "environment": {..}}]}; out, as the last
line: for each, "" where a configuration came of it, else why not; and what it came to.
"""

# ruff: noqa: E402  vLLM is imported after its stand-ins are in place
import json
import logging
import os
import sys

import vllm_uninstalled

ORDER = json.load(sys.stdin)
vllm_uninstalled.prepare()
vllm_uninstalled.pretend(ORDER["vendor"], ORDER["capability"], ORDER["name"], ORDER["memory_gib"])
logging.disable(logging.CRITICAL)

import vllm.envs as envs
import vllm.model_executor.models.registry as registry
import vllm.utils.flashinfer as flashinfer
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

flashinfer.has_flashinfer = lambda: False  # a fusion of collectives, whose size is asked of CUDA
registry._run_in_subprocess = lambda work: work()


class Refused(Exception):
    pass


class Parser(FlexibleArgumentParser):
    def error(self, message):
        raise Refused(message)


def answer(cell):
    for name in [name for name in os.environ if name.startswith("VLLM_") and name not in KEPT]:
        del os.environ[name]
    os.environ.update(cell["environment"])
    envs.disable_envs_cache() if hasattr(envs, "disable_envs_cache") else None
    try:
        parsed = PARSER.parse_args(cell["words"])
        parsed.model = parsed.model_tag or parsed.model
        made = AsyncEngineArgs.from_cli_args(parsed).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except Exception as error:
        return {"why": f"{type(error).__name__}: {error}"[:500]}
    spec = made.speculative_config
    return {
        "why": "",
        "mode": made.compilation_config.cudagraph_mode.name,
        "largest": made.compilation_config.max_cudagraph_capture_size,
        "requests": made.scheduler_config.max_num_seqs,
        "tokens": made.scheduler_config.max_num_batched_tokens,
        "method": spec.method if spec else None,
        "K": spec.num_speculative_tokens if spec else None,
        "v2": made.use_v2_model_runner,
    }


KEPT = set(os.environ)
PARSER = make_arg_parser(Parser())
print(json.dumps([answer(cell) for cell in ORDER["cells"]]))
