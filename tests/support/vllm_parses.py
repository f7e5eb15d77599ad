"""Run by vLLM's interpreter: which commands its argument parser takes. Input {"commands": {name: [words]}}.

Answers {name: what is wrong, "" if nothing}. The speculative configuration is a dictionary to the parser, so its names
are compared with the fields of vLLM's class.
"""

import contextlib
import dataclasses
import importlib
import io
import json
import sys

from vllm.config.speculative import SpeculativeConfig
from vllm.utils.argparse_utils import FlexibleArgumentParser

PLACES = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args")  # 0.33, 0.32


def make_parser():
    for place in PLACES:
        with contextlib.suppress(ImportError):
            return importlib.import_module(place).make_arg_parser(FlexibleArgumentParser())
    raise SystemExit("this vLLM keeps its argument parser somewhere else")


def problem(parser, words: list[str]) -> str:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = parser.parse_args(words)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    given = arguments.speculative_config
    if given is not None and not isinstance(
        given, dict
    ):  # the parser takes any JSON, and the configuration does not
        return f"the speculative configuration is {given!r}"
    known = {field.name for field in dataclasses.fields(SpeculativeConfig) if field.init}
    unknown = set(given or {}) - known
    return f"no such speculative settings: {sorted(unknown)}" if unknown else ""


parser = make_parser()
commands = json.load(sys.stdin)["commands"]
print(json.dumps({name: problem(parser, words) for name, words in commands.items()}))
