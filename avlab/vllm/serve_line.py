"""A `vllm serve` command as data. Which names exist is vLLM's to say; here they are only read and written."""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from avlab.vllm import VllmError
from avlab.vllm.options import full_name, option, size

SPECULATIVE = "speculative-config"
DASHES = "‐‑‒–—―−"  # what a text processor makes of a hyphen
NOTHING = ("None", "null", "")  # values for which vLLM takes no configuration
SHORTHANDS = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}


class ServeLineError(VllmError, ValueError):
    """A command that cannot be read. The message is one sentence."""


@dataclass(frozen=True)
class ServeLine:
    """A server's command.

    arguments: by name without dashes, "max-num-seqs"; True and False are flags ("no-" in front for False), a mapping is
    a JSON argument. environment: variables that it is started with.
    """

    model: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def speculative(self) -> dict[str, Any]:
        """The speculative configuration; empty without speculation."""
        return dict(self.arguments.get(SPECULATIVE) or {})

    def words(self) -> list[str]:
        """The command's words, as `exec` takes them; the environment is apart."""
        found = ["vllm", "serve", self.model]
        for name, value in self.arguments.items():
            if isinstance(value, bool):
                found.append(f"--{name}" if value else f"--no-{name}")
            elif isinstance(value, Mapping):
                found += [f"--{name}", json.dumps(value)]
            elif isinstance(value, list):
                found += [f"--{name}", *map(str, value)]
            else:
                found += [f"--{name}", str(value)]
        return found

    def shell(self) -> str:
        """The command for a shell, one argument a line, its environment in front."""
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in self.environment.items())
        words = self.words()
        lines, at = [" ".join(shlex.quote(word) for word in words[:3])], 3
        while at < len(words):
            end = at + 1
            while end < len(words) and not words[end].startswith("--"):
                end += 1
            lines.append(" ".join(shlex.quote(word) for word in words[at:end]))
            at = end
        return variables + " \\\n  ".join(lines)

    @classmethod
    def parse(cls, text: str | Iterable[str]) -> "ServeLine":
        """A command from a line or its words, with or without "vllm serve" and variables in front.

        Raises ServeLineError where a word has no place.
        """
        try:
            words = shlex.split(text, comments=True) if isinstance(text, str) else list(text)
        except ValueError as error:
            raise ServeLineError(f"The command cannot be read ({error}): check its quotes.") from None
        environment: dict[str, str] = {}
        while words and _is_variable(words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if words[:2] == ["vllm", "serve"]:
            words = words[2:]
        model, last = "", ""
        arguments: dict[str, Any] = {}
        while words:
            word = words.pop(0)
            if word and word[0] in DASHES:
                raise ServeLineError(
                    f"{word!r} begins with a dash that is no hyphen: write --{word.lstrip(DASHES)}."
                )
            if not word.startswith("-"):
                if model:
                    _append(arguments, last, word)
                model = model or word
                continue
            name, equals, value = _split(word)
            follows = bool(words) and _is_value(words[0]) and not _is_flag(name)
            given: Any = value if equals else words.pop(0) if follows else True
            last = _put(arguments, name, given)
            while follows and words and _is_value(words[0]) and _takes_several(name):
                _append(arguments, last, words.pop(0))
        model = str(arguments.pop("model", model))
        if not model:
            raise ServeLineError(
                "The command names no model: give it as `vllm serve MODEL --name value ...`."
            )
        return cls(model, arguments, environment)


def _split(word: str) -> tuple[str, str, str]:
    """Name, sign and value of a word that begins with a dash: "-O3" and "-O=3" are a name and a value too."""
    if word.startswith("-O") and word != "-O":
        return "-O", "=", word[3:] if word[2] == "=" else word[2:]
    return word.partition("=")


def _is_value(word: str) -> bool:
    """Whether a word can be a value: a negative number can."""
    return not word.startswith("-") or word[1:].isdigit()


def _is_flag(name: str) -> bool:
    known = option(full_name(name)[0]) if "." not in name else None
    return known is not None and known.kind == "flag"


def _takes_several(name: str) -> bool:
    known = option(full_name(name)[0]) if "." not in name else None
    return known is not None and known.many


def _is_variable(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _append(arguments: dict[str, Any], name: str, word: str) -> None:
    """One more value of an argument that takes several."""
    before = arguments.get(name)
    if before is None or isinstance(before, (bool, dict)):
        raise ServeLineError(
            f"{word!r} stands where an argument was expected: one model, then --names and their values."
        )
    arguments[name] = [*(before if isinstance(before, list) else [before]), _value(name, word)]


def _put(arguments: dict[str, Any], name: str, value: Any) -> str:
    """One argument, and its full name. Dotted names, and shorthands of the speculative configuration, become parts of
    a mapping."""
    written, *inner = name.split(".")
    head, on = ("optimization-level", True) if written == "-O" else full_name(written)
    if head in SHORTHANDS:
        head, inner = SPECULATIVE, [SHORTHANDS[head]]
    if not on and value is True:
        value = False
    value = _value(head, value, bool(inner))
    if head == SPECULATIVE and not inner and not isinstance(value, dict):
        if value in NOTHING:
            return head
        raise ServeLineError(_no_mapping(head, value))
    if not inner:
        arguments[head] = value
        return head
    place = arguments.setdefault(head, {})
    for key in inner[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else {}
    if not isinstance(place, dict):
        raise ServeLineError(f"--{head} is given both as a value and by its parts: give it once.")
    place[inner[-1]] = value
    return head


def _no_mapping(name: str, value: Any) -> str:
    """Why a value is no configuration, and what people most often meant."""
    if value is True:
        return f'--{name} has no value: write --{name} \'{{"method": ..., "num_speculative_tokens": 3}}\'.'
    text = str(value)
    curly = any(mark in text for mark in "‘’“”")
    why = " Its quotes are a text processor's: write ' and \"." if curly else ""
    return f"--{name} holds {text[:60]!r}, which is no JSON object, and vLLM refuses it.{why}"


def _value(name: str, text: Any, nested: bool = False) -> Any:
    """A mapping where the text is a JSON object, whole numbers and yes or no as such, 128K where vLLM takes it, else
    the text."""
    if not isinstance(text, str):
        return text
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except RecursionError:
            raise ServeLineError(f"--{name} holds JSON that is nested too deeply.") from None
        except ValueError as error:
            single = " JSON wants double quotes." if text.lstrip("{ ").startswith("'") else ""
            raise ServeLineError(f"--{name} holds JSON that cannot be read ({error}).{single}") from None
    kind = option(name)
    if (nested or (kind is not None and kind.kind == "size")) and (number := size(text)) is not None:
        return number
    known = {"true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    return int(text) if text.lstrip("-").isdigit() else text
