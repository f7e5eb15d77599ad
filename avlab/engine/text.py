"""Text in and out of tokens: the checkpoint's tokenizer and its chat template."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream

from avlab.engine.chat_template import Message
from avlab.engine.checkpoint_files import TOKENIZER, read_json, without_tokenizer
from avlab.engine.special_tokens import SETTINGS, read_tokenizer, special_tokens
from avlab.engine.template_child import GuardedTemplate

NOTHING: Mapping[str, Any] = {}


class Text:
    """A checkpoint's tokenizer.json and chat template. Raises CheckpointError where they cannot be used."""

    def __init__(self, folder: Path):
        if not (folder / TOKENIZER).is_file():
            raise without_tokenizer(folder)
        self.tokenizer = read_tokenizer(folder)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        path = folder / SETTINGS
        self.settings = read_json(path) if path.exists() else {}
        self._special = special_tokens(folder, self.tokenizer)
        self.template = GuardedTemplate(folder, self.settings, self._special)
        self.has_template = self.template.exists
        self._before = _anchor(self.tokenizer)

    def prompt(self, messages: Sequence[Message], given: Mapping[str, Any] = NOTHING) -> str:
        """Messages ({"role", "content"}, the last one the user's) as the text the target continues.

        given: what the template may read beside them, such as `tools`. Raises CheckpointError when it refuses them.
        """
        return self.template.render(messages, given)

    def encode(self, messages: Sequence[Message], given: Mapping[str, Any] = NOTHING) -> list[int]:
        """Messages to prompt tokens; the template writes the special tokens, none is added.

        Without a template the text gets the tokenizer's own special tokens, and the beginning-of-text where
        tokenizer_config.json asks for one.
        """
        text = self.prompt(messages, given)
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=not self.has_template).ids
        if not self.has_template and self.settings.get("add_bos_token") is True:
            begin = self.tokenizer.token_to_id(self._special.get("bos_token", ""))
            if begin is not None and tokens[:1] != [begin]:
                return [begin, *tokens]
        return tokens

    def reads(self, name: str) -> bool:
        """Whether the chat template reads what is given by this name."""
        return self.template.reads(name)

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens to text; special tokens are left out."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def piece(self, token: int) -> str:
        """One token as it is behind others: with its space, special tokens by name, half a character as U+FFFD."""
        if self._before is None:
            return self.tokenizer.decode([token], skip_special_tokens=False)
        anchor, before = self._before
        return self.tokenizer.decode([anchor, token], skip_special_tokens=False).removeprefix(before)

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


def _anchor(tokenizer: tokenizers.Tokenizer) -> tuple[int, str] | None:
    """A token to stand before another that is shown alone, and its text; None where a token needs none.

    A decoder that strips the space before a text's first token, as Llama 2's does, would strip it from every token.
    """
    if tokenizer.decoder is None:
        return None
    for word in ("a", "e", "i", "0", "."):
        token = tokenizer.token_to_id(word)
        if token is not None and (text := tokenizer.decode([token], skip_special_tokens=False)) == word:
            return token, text
    return None
