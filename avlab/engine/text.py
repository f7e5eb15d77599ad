"""Text in and out of tokens: the checkpoint's tokenizer and its chat template."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers.decoders import DecodeStream

from avlab.engine.checkpoint import CheckpointError, read_json

# For a checkpoint without a chat template: the turns' words, a turn a line, as a base model continues them.
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


class Text:
    """A checkpoint's tokenizer.json and chat template. Raises CheckpointError where they cannot be used."""

    def __init__(self, folder: Path):
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist: the checkpoint is incomplete, fetch it again.")
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{path} is damaged ({error}): fetch the checkpoint again.") from None
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        settings = folder / "tokenizer_config.json"
        self.settings = read_json(settings) if settings.exists() else {}
        source = _template_source(folder, self.settings)
        self.has_template = source is not None
        try:
            self.template = _environment().from_string(source or PLAIN_TEMPLATE)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"The chat template of {folder} cannot be read ({error}).") from None

    def prompt(self, messages: list[dict]) -> str:
        """Messages ({"role", "content"}, the last one the user's) as the text the target continues.

        Raises CheckpointError when the template refuses them, say for a role that it does not know.
        """
        try:
            return self.template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=_token(self.settings.get("bos_token")),
                eos_token=_token(self.settings.get("eos_token")),
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            raise CheckpointError(f"The checkpoint's chat template refused the messages ({error}).") from None

    def encode(self, messages: list[dict]) -> list[int]:
        """Messages to prompt tokens; the template writes the special tokens, none is added.

        Without a template the text gets the tokenizer's own special tokens (as a rule, a beginning-of-text).
        """
        text = self.prompt(messages)
        return self.tokenizer.encode(text, add_special_tokens=not self.has_template).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens to text; special tokens are left out."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def piece(self, token: int) -> str:
        """One token as shown on its own: special tokens by name, half a character as the replacement sign."""
        return self.tokenizer.decode([token], skip_special_tokens=False)

    def stream(self) -> "Stream":
        """A decoder that takes one token after another."""
        return Stream(self.tokenizer)


class Stream:
    """Incremental decoding: the text a token completes. Halves of a character wait for the other half."""

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        self._tokenizer = tokenizer
        self._decoder = DecodeStream(skip_special_tokens=True)

    def add(self, token: int) -> str:
        """The text that this token completes, perhaps none."""
        return self._decoder.step(self._tokenizer, token) or ""


def _template_source(folder: Path, settings: dict) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read ({error}): fetch the checkpoint again.") from None
    source = settings.get("chat_template")
    if isinstance(source, list):  # several named templates
        named = {each.get("name"): each.get("template") for each in source if isinstance(each, dict)}
        source = named.get("default") or next(iter(named.values()), None)
    return source if isinstance(source, str) and source else None


def _token(value) -> str:
    """A special token of tokenizer_config.json, which is a string or an object with its content."""
    return value.get("content", "") if isinstance(value, dict) else value or ""


def _environment() -> jinja2.Environment:
    """What chat templates are written for (transformers' environment), sandboxed: they are foreign code."""

    def raise_exception(message: str):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment
