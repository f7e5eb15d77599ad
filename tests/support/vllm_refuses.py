"""Run by vLLM's interpreter: what vLLM itself refuses. Input {"cases": {name: {"arguments", "environment"}}, "model"}.

Answers {"refusals": {name: the refusal, "" if there is none}, "backends": {name: [mismatch, graphs, bounded]}}. Two
stand-ins let the checks of a GPU run on a CPU: Triton counts as present, and the CPU's platform says that it has
graphs and leaves those that were asked for, "FULL_AND_PIECEWISE" where none were. Every check is vLLM's own.
"""

import json
import os
import sys

import vllm.config.vllm as configuration
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum

configuration.HAS_TRITON = True
adjust = type(current_platform).check_and_update_config.__func__


@classmethod
def keep_graphs(cls, config) -> None:
    asked = config.compilation_config.cudagraph_mode
    adjust(cls, config)
    config.compilation_config.cudagraph_mode = asked


type(current_platform).check_and_update_config = keep_graphs
type(current_platform).support_static_graph_mode = classmethod(lambda cls: True)


def refusal(model: str, case: dict) -> str:
    for name, value in case["environment"].items():
        os.environ[name] = value
    arguments = {name.replace("-", "_"): value for name, value in case["arguments"].items()}
    if not arguments.get("enforce_eager"):
        arguments.setdefault("compilation_config", {"cudagraph_mode": "FULL_AND_PIECEWISE"})
    arguments["speculative_config"] = {"model": model} | arguments["speculative_config"]
    try:
        EngineArgs(model=model, **arguments).create_engine_config()
    except (ValueError, ImportError) as error:
        return str(error)
    finally:
        for name in case["environment"]:
            os.environ.pop(name)
    return ""


def backends() -> dict:
    found = {}
    for each in AttentionBackendEnum:
        try:
            backend = each.get_class()
            builder = backend.get_builder_cls()
        except Exception:  # its kernels are not in a CPU's package
            continue
        owner = next(cls for cls in builder.__mro__ if "get_varlen_cudagraph_max_query_len" in vars(cls))
        bounded = owner.__name__ != "AttentionMetadataBuilder"
        mismatch = backend.supports_device_cpu_query_lens_mismatch()
        found[each.name] = [mismatch, builder._cudagraph_support.name, bounded]
    return found


order = json.load(sys.stdin)
refusals = {name: refusal(order["model"], case) for name, case in order["cases"].items()}
print(json.dumps({"refusals": refusals, "backends": backends()}))
