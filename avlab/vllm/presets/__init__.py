"""The systems that adaptive verification was published with, one TOML file each, every setting with its source.

A file holds title, about, drafts ("in one pass" or "position by position"), published (the hardware it was measured
on), min-version, prepare (a command to run once, optional), model-type (of the checkpoint's configuration, where its
attention is the model's own), refuses (where vLLM does not start it adaptively, and why; optional); the tables
[serve] (model, and arguments by name),
[speculative] and [environment] (optional); and [[source]] entries: url, says, settings (names, "speculative.*", "*").
"""

import fnmatch
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avlab.vllm import VllmError
from avlab.vllm.serve_line import SPECULATIVE, ServeLine

FOLDER = Path(__file__).parent


class PresetError(VllmError):
    """A preset that does not exist. The message is one sentence."""


@dataclass(frozen=True)
class Source:
    """Where some of a preset's settings come from: patterns of names, and what is said there."""

    url: str
    says: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Preset:
    """A published system. line: how it is served."""

    name: str
    title: str
    about: str
    drafts: str
    published: str
    min_version: str
    line: ServeLine
    sources: tuple[Source, ...]
    prepare: str = ""
    model_type: str = ""
    refuses: str = ""

    def setting_names(self) -> list[str]:
        """Every setting that needs a source."""
        plain = [name for name in self.line.arguments if name != SPECULATIVE]
        inner = [f"speculative.{name}" for name in self.line.speculative]
        own = ["model-type"] if self.model_type else []
        return ["model", "published", "min-version", *own, *plain, *inner, *self.line.environment]

    def source_of(self, setting: str) -> Source | None:
        """The first source that covers a setting."""
        for source in self.sources:
            if any(fnmatch.fnmatchcase(setting, pattern) for pattern in source.settings):
                return source
        return None


def names() -> list[str]:
    """The presets' names, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def preset(name: str) -> Preset:
    """A preset by name. Raises PresetError with the names there are."""
    path = FOLDER / f"{name}.toml"
    if name not in names():
        raise PresetError(f"There is no preset {name!r}; the presets are {', '.join(names())}.")
    return _read(name, tomllib.loads(path.read_text(encoding="utf-8")))


def presets() -> list[Preset]:
    """All of them."""
    return [preset(name) for name in names()]


def _read(name: str, values: Mapping[str, Any]) -> Preset:
    arguments = dict(values["serve"])
    model = arguments.pop("model")
    arguments[SPECULATIVE] = dict(values["speculative"])
    return Preset(
        name=name,
        title=values["title"],
        about=values["about"],
        drafts=values["drafts"],
        published=values["published"],
        min_version=values["min-version"],
        prepare=values.get("prepare", ""),
        model_type=values.get("model-type", ""),
        refuses=values.get("refuses", ""),
        line=ServeLine(model, arguments, dict(values.get("environment", {}))),
        sources=tuple(
            Source(each["url"], each["says"], tuple(each["settings"])) for each in values["source"]
        ),
    )
