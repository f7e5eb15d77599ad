"""The options of `vllm serve` in 0.33.0, as vLLM's own parser has them: their names, and how a value is written.

`options.json` was printed by `tests/support/vllm_options.py` from vLLM's wheel; `make test-doctor` compares it.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).parent / "options.json"
Kind = Literal["flag", "size", "whole", "number", "text"]
DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")


@dataclass(frozen=True)
class Option:
    """kind: a size takes 2k and 128K, a whole number does not. many: it takes several values. choices: () for any."""

    name: str
    kind: Kind
    many: bool = False
    choices: tuple[str, ...] = ()


def option(name: str) -> Option | None:
    """An option by its name without dashes; None for a name that `vllm serve` does not have."""
    return _options().get(name)


def full_name(written: str) -> tuple[str, bool]:
    """An option's name, and False where what was written switches it off: "-tp", "--disable-prefix-caching",
    "--max-num-se", which the parser takes as the only name that begins so. Unknown names stay as they are.
    """
    if found := _written().get(written):
        return found
    name = written.lstrip("-").replace("_", "-")
    if found := _written().get(f"--{name}"):
        return found
    begin = {found for each, found in _written().items() if each.startswith(f"--{name}")}
    if len(begin) == 1 and len(name) > 3 and written.startswith("--"):
        return begin.pop()
    return (name.removeprefix("no-"), False) if name.startswith("no-") else (name, True)


def nearest(name: str) -> str:
    """The option's name that resembles a misspelt one most; "" where none does."""
    near = difflib.get_close_matches(name, _options(), 1, 0.7)
    return near[0] if near else ""


def keys(name: str) -> tuple[str, ...]:
    """The keys that a configuration takes, such as speculative-config; () where it was not read."""
    return tuple(_read()["keys"].get(name, ()))


def variables() -> frozenset[str]:
    """The environment variables that vLLM reads."""
    return frozenset(_read()["variables"])


def size(text: str) -> int | None:
    """2k is 2,000 and 2K 2,048, as vLLM reads them (`human_readable_int`); None where it is none."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number, suffix = match.groups()
    if suffix in DECIMAL:
        return int(float(number) * DECIMAL[suffix])
    return int(number) * BINARY[suffix] if number.isdigit() else None


@cache
def _read() -> Mapping[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def _options() -> dict[str, Option]:
    return {
        name: Option(name, each["kind"], each.get("many", False), tuple(each.get("choices", ())))
        for name, each in _read()["options"].items()
    }


@cache
def _written() -> dict[str, tuple[str, bool]]:
    found = {}
    for name, each in _read()["options"].items():
        found[f"--{name}"] = (name, True)
        for also in each.get("also", ()):
            off = (
                each["kind"] == "flag"
                and also.startswith(("no-", "disable-"))
                and not name.startswith("disable-")
            )
            found[f"--{also}"] = (
                name,
                not (off or (name.startswith("disable-") and also.startswith("enable-"))),
            )
        for short in each.get("short", ()):
            found[short] = (name, True)
    return found
