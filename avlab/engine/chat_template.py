"""A checkpoint's chat template: found where checkpoints keep it, rendered as transformers renders it.

A template is foreign code. It runs in jinja's sandbox, sees plain values alone, and cannot write without end. That it
takes neither time nor memory without end is `template_child`'s.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace

from avlab.engine.checkpoint_files import CheckpointError, read_json
from avlab.formats import as_json

# For a checkpoint without a chat template: the turns' words, a turn a line, as a base model continues them.
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
FILE, OLD_FILE, MORE = "chat_template.jinja", "chat_template.json", "additional_chat_templates"
LONGEST = 16 << 20  # characters of a rendered prompt, and of anything that a template multiplies
REASONING = ("reasoning_content", "thinking", "reasoning")  # the first is the one that templates read
Message = Mapping[str, Any]


class ChatTemplate:
    """The templates of a folder: the default one, and others by name, such as `tool_use`.

    settings: the folder's tokenizer_config.json. special: its special tokens, by role. Raises CheckpointError for
    templates that cannot be read.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], special: Mapping[str, str]):
        self.folder, self._special = folder, dict(special)
        sources = _sources(folder, settings)
        self.exists = bool(sources)
        environment, texts = _environment(), sources or {"default": PLAIN_TEMPLATE}
        try:
            self._templates = {name: environment.from_string(source) for name, source in texts.items()}
            self._read = {
                variable
                for source in texts.values()
                for variable in meta.find_undeclared_variables(environment.parse(source))
            }
        except Exception as error:  # whatever foreign code makes the parser raise
            raise CheckpointError(
                f"The chat template of {folder} cannot be read ({_said(error)}): correct {FILE}."
            ) from None

    @property
    def variables(self) -> list[str]:
        """What the templates read by name."""
        return sorted(self._read)

    def render(self, messages: Sequence[Message], given: Mapping[str, Any]) -> str:
        """Messages as the text that the model continues.

        given: what the template may read beside them, such as `tools` and `documents` (lists of objects). Raises
        CheckpointError when the template refuses them, say for a role that it does not know.
        """
        tools = given.get("tools") or None
        values = {**self._special, **given, "tools": tools, "documents": given.get("documents") or None}
        values |= {"messages": [_as_read(each) for each in messages], "add_generation_prompt": True}
        try:
            template = self._named("tool_use" if tools and "tool_use" in self._templates else "default")
            return _bounded(template.generate(**values))
        except CheckpointError:
            raise
        except Exception as error:  # a template's own, of any kind
            raise CheckpointError(
                f"The checkpoint's chat template refused the messages ({_said(error)})."
            ) from None

    def _named(self, name: str) -> jinja2.Template:
        if name not in self._templates:
            raise CheckpointError(
                f"{self.folder} has several chat templates ({', '.join(sorted(self._templates))}) and none is the "
                f"default: copy the one that is meant to {FILE}."
            )
        return self._templates[name]


def _sources(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a folder's templates by name; {} where it has none. Files go before settings."""
    path = folder / FILE
    if path.is_file():
        more = sorted((folder / MORE).glob("*.jinja"))
        return {each.stem: _text(each) for each in more} | {"default": _text(path)}
    found = settings.get("chat_template")
    if found is None and (folder / OLD_FILE).is_file():
        found = read_json(folder / OLD_FILE).get("chat_template")
    if isinstance(found, list):  # several named templates
        pairs = [(each.get("name"), each.get("template")) for each in found if isinstance(each, dict)]
        return {
            name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str) and text
        }
    if isinstance(found, dict):
        return {name: text for name, text in found.items() if isinstance(text, str) and text}
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{folder} gives its chat template as {as_json(found)}: it must be a text.")
    return {"default": found} if found else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): fetch the checkpoint again.") from None


def _as_read(message: Message) -> dict[str, Any]:
    """A message as templates are given it: without nulls, and with its reasoning under the name that they read."""
    plain = {name: value for name, value in message.items() if value is not None}
    reasoning = next((plain[name] for name in REASONING if name in plain), None)
    return plain if reasoning is None else {"thinking": reasoning, **plain, REASONING[0]: reasoning}


def _bounded(parts: Any) -> str:
    """A template's output as one text. Raises TemplateError where it does not come to an end."""
    found, length = [], 0
    for part in parts:
        found.append(part)
        length += len(part)
        if length > LONGEST:
            raise jinja2.TemplateError(f"it wrote more than {LONGEST:,} characters")
    return "".join(found)


def _said(error: Exception) -> str:
    """What a template's error says, in one line."""
    if isinstance(error, RecursionError | MemoryError):
        return "it does not come to an end"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."


class _Generation(Extension):
    """`{% generation %}`, which marks what the assistant said, for training; what is inside is written as it stands."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own way to declare them

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

    def _whole(self, caller: Callable[[], str]) -> str:
        return caller()


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which nothing grows without end by being multiplied."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(each) for each in (left, right) if isinstance(each, str | list | tuple)]
        counts = [each for each in (left, right) if isinstance(each, int)]
        if operator == "*" and sizes and counts and sizes[0] * counts[0] > LONGEST:
            raise SecurityError("it makes a text without end")
        if operator == "**" and any(isinstance(each, int) and abs(each) > 1000 for each in (left, right)):
            raise SecurityError("it makes a number without end")
        return super().call_binop(context, operator, left, right)


class _Namespace(Namespace):
    """A template's namespace; Python's own attributes are out of its reach."""

    def __init__(*args: Any, **values: Any) -> None:
        self, args = args[0], args[1:]
        for name in (named := dict(*args, **values)):
            _Namespace._check(name)
        Namespace.__init__(self, named)

    def __setitem__(self, name: str, value: Any) -> None:
        _Namespace._check(name)
        Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}")


def _environment() -> jinja2.Environment:
    """What chat templates are written for: transformers' environment, sandboxed."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    environment.globals["namespace"] = _Namespace
    return environment
