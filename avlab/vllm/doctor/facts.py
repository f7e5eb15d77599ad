"""What ships of common models (`models.toml`): the part of their config.json that decides their attention."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "models.toml"
COPIES = re.compile(
    r"([-_.](fp8|nvfp4|fp4|mxfp4|int[48]|awq|gptq|w4a16|w8a8|w8a16|bf16|quantized|dynamic|block|bnb|[48]-?bit|hf|unsloth"
    r"|modelopt|marlin))+$"
)


@dataclass(frozen=True)
class Known:
    """A model of the list. name: as the list has it. config: what of its config.json matters here."""

    name: str
    source: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Speculator:
    """A head that names its target, in the speculators format. K: None where the list does not say."""

    target: str
    method: str
    parallel: bool = False
    K: int | None = None


def known(model: str) -> Known | None:
    """A model of the list, by its name or as a copy of one: quantised, or under another owner."""
    exact = _models().get(model.lower())
    return exact or _last_parts().get(last_part(model))


def names() -> list[str]:
    """One name of each entry, in the list's order."""
    return [each["names"][0] for each in _read()["model"]]


def speculator(model: str) -> Speculator | None:
    """A speculators checkpoint of the list, by its name or the last part of it."""
    for each in _read()["speculator"]:
        if last_part(model) == last_part(each["name"]):
            return Speculator(each["target"], each["method"], each.get("parallel", False))
    return None


def last_part(model: str) -> str:
    """The last part of a name, small letters, without what names a quantisation."""
    return COPIES.sub("", model.rstrip("/").rsplit("/", 1)[-1].lower())


@cache
def _read() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@cache
def _models() -> dict[str, Known]:
    return {
        name.lower(): Known(name, each["source"], each["config"])
        for each in _read()["model"]
        for name in each["names"]
    }


@cache
def _last_parts() -> dict[str, Known]:
    return {last_part(found.name): found for found in reversed(_models().values())}
