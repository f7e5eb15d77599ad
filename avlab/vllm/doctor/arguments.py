"""Names and values that vLLM's parser or its configurations refuse, each with the nearest right one."""

import difflib
from collections.abc import Mapping
from typing import Any

from avlab.vllm.doctor.findings import Finding
from avlab.vllm.options import keys, nearest, option, size, variables
from avlab.vllm.serve_line import SPECULATIVE, ServeLine

PARSER = "vllm/entrypoints/common/cli_args.py"
NOT_GIVEN = {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}
READ = (0, 33)
INSTEAD = {
    "VLLM_ATTENTION_BACKEND": "--attention-backend NAME.",
    "VLLM_FLASH_ATTN_VERSION": "--attention-config.flash_attn_version N.",
    "VLLM_USE_TRTLLM_ATTENTION": "--attention-config.use_trtllm_attention true or false.",
    "VLLM_USE_V1": "Take it away: V1 is the only engine.",
}


def arguments(line: ServeLine, version: tuple[int, ...]) -> list[Finding]:
    """What is wrong with a command's names and values; one pass where nothing is."""
    found = [each for name, value in line.arguments.items() for each in _argument(name, value)]
    found += [_variable(name) for name in line.environment if _is_unread(name)]
    if version[:2] != READ and version:
        found = [_not_sure(each, version) for each in found]
    if not found:
        found = [Finding("arguments", "passes", "Every name is one that vllm serve has.", source=PARSER)]
    return found


def _is_unread(name: str) -> bool:
    return name.startswith("VLLM_") and name not in variables()


def _variable(name: str) -> Finding:
    """A variable that vLLM does not read: it starts, with a line in its log."""
    near = difflib.get_close_matches(name, variables(), 1, 0.8)
    remedy = INSTEAD.get(name) or (f"{near[0]}." if near else "Take it away.")
    return Finding(
        "arguments", "warns", f"{name} is a variable that vLLM does not read.", remedy, "vllm/envs.py"
    )


def _argument(name: str, value: Any) -> list[Finding]:
    whole, _, inner = name.partition(".")
    if inner:
        return _key(whole, inner.partition(".")[0])
    known = option(name)
    if known is None:
        near = nearest(name)
        remedy = f"--{near}." if near else "vllm serve --help=all lists them."
        return [Finding("arguments", "refuses", f"vllm serve has no option --{name}.", remedy, PARSER)]
    if isinstance(value, Mapping):
        return [finding for key in value for finding in _key(name, str(key))]
    several = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not known.many:
        reason = f"--{name} takes one value, and {len(value)} are given."
        return [Finding("arguments", "refuses", reason, f"--{name} {value[0]}.", PARSER)]
    return [finding for each in several for finding in _value(name, known.kind, known.choices, each)]


def _value(name: str, kind: str, choices: tuple[str, ...], value: Any) -> list[Finding]:
    if value is True and kind != "flag":
        return [Finding("arguments", "refuses", f"--{name} wants a value.", f"--{name} VALUE.", PARSER)]
    if (
        kind in ("whole", "size")
        and not isinstance(value, int)
        and str(value).lower() not in ("auto", "none")
    ):
        plain = size(str(value))
        if plain is not None:
            reason = (
                f"--{name} {value}: this option takes a plain number; vLLM reads k and K for few of them."
            )
            return [Finding("arguments", "refuses", reason, f"--{name} {plain}.", PARSER)]
        reason = f"--{name} {value} is no whole number."
        return [Finding("arguments", "refuses", reason, f"--{name} N.", PARSER)]
    if kind == "number" and not _is_number(value):
        return [Finding("arguments", "refuses", f"--{name} {value} is no number.", f"--{name} 0.9.", PARSER)]
    if choices and str(value) not in choices:
        near = difflib.get_close_matches(str(value), choices, 1)
        remedy = f"--{name} {near[0]}." if near else f"One of {', '.join(choices)}."
        return [Finding("arguments", "refuses", f"--{name} does not take {value}.", remedy, PARSER)]
    return []


def _key(name: str, key: str) -> list[Finding]:
    """One key of a configuration that is given as JSON or by its parts."""
    known = keys(name)
    written = key.replace("-", "_") if name == SPECULATIVE else key
    source = "vllm/config"
    if name == SPECULATIVE and written == "tensor_parallel_size":
        reason = "--speculative-config takes no tensor_parallel_size."
        return [Finding("arguments", "refuses", reason, '"draft_tensor_parallel_size".', source)]
    if not known or (written in known and written not in NOT_GIVEN):
        return []
    near = difflib.get_close_matches(written, [each for each in known if each not in NOT_GIVEN], 1, 0.5)
    remedy = f'"{near[0]}".' if near else "Take it away."
    return [Finding("arguments", "refuses", f"--{name} has no key {key!r}.", remedy, source)]


def _not_sure(finding: Finding, version: tuple[int, ...]) -> Finding:
    told = ".".join(map(str, version))
    reason = f"{finding.reason[:-1]} in 0.33.0; the names of {told} were not read."
    return Finding(finding.gate, "unknown", reason, finding.remedy, finding.source)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
