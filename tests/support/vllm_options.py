"""The options of `vllm serve` and the keys of its configurations, as vLLM's own parser has them. Prints JSON."""

# ruff: noqa: E402  vLLM is imported after its stand-ins are in place
import dataclasses
import json
import logging

import vllm_uninstalled

vllm_uninstalled.prepare()
vllm_uninstalled.pretend("nvidia", (9, 0))
logging.disable(logging.CRITICAL)

import vllm.envs as envs
from vllm.config import AttentionConfig, CompilationConfig, SpeculativeConfig
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.utils.argparse_utils import (
    FlexibleArgumentParser,
    human_readable_int,
    human_readable_int_or_auto,
)

parser = make_arg_parser(FlexibleArgumentParser())
found = {}
for action in parser._actions:
    names = [each for each in action.option_strings if each.startswith("--")]
    if not names or names == ["--help"]:
        continue
    kind = action.type
    inner = getattr(kind, "__closure__", None) or ()
    types = [kind, *(cell.cell_contents for cell in inner)]
    found[names[0].removeprefix("--")] = {
        "names": [each.removeprefix("--") for each in names],
        "short": [each for each in action.option_strings if not each.startswith("--")],
        "flag": action.nargs == 0,
        "many": action.nargs in ("+", "*"),
        "suffixes": human_readable_int in types or human_readable_int_or_auto in types,
        "whole": int in types or human_readable_int in types or human_readable_int_or_auto in types,
        "number": float in types,
        "choices": sorted(str(each) for each in action.choices if each is not None) if action.choices else [],
    }
keys = {
    "speculative-config": sorted(each.name for each in dataclasses.fields(SpeculativeConfig)),
    "compilation-config": sorted(each.name for each in dataclasses.fields(CompilationConfig)),
    "attention-config": sorted(each.name for each in dataclasses.fields(AttentionConfig)),
}
variables = sorted(name for name in envs.environment_variables if name.startswith("VLLM_"))
print(json.dumps({"options": found, "keys": keys, "variables": variables}))
