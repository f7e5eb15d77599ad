"""The tokens that begin and end a text, from wherever a checkpoint names them. No torch here.

config.json and generation_config.json name them by number, tokenizer_config.json and special_tokens_map.json by word.
A text ends with any token that one of them names.
"""

from pathlib import Path
from typing import Any

import tokenizers

from avlab.engine.checkpoint_files import CONFIG, TOKENIZER, CheckpointError, check_whole, read_json, wrong
from avlab.formats import as_json

GENERATION = "generation_config.json"
SETTINGS = "tokenizer_config.json"
WORDS = (SETTINGS, "special_tokens_map.json")  # what names tokens by word; the first counts
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """The folder's tokenizer.json. Raises CheckpointError."""
    path = folder / TOKENIZER
    check_whole(path)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{path} is damaged ({error}): fetch the checkpoint again.") from None


def end_tokens(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """Every token that ends a text, by any of the checkpoint's files. config: what its config.json says."""
    numbers = _numbers(folder / CONFIG, "eos_token_id", config.get("eos_token_id"))
    path = folder / GENERATION
    if path.exists():
        numbers += _numbers(path, "eos_token_id", read_json(path).get("eos_token_id"))
    words = {each["eos_token"] for each in _named(folder) if "eos_token" in each}
    if words and (folder / TOKENIZER).is_file():
        tokenizer = read_tokenizer(folder)
        numbers += [number for word in sorted(words) if (number := tokenizer.token_to_id(word)) is not None]
    return tuple(dict.fromkeys(numbers))


def special_tokens(folder: Path, tokenizer: tokenizers.Tokenizer) -> dict[str, str]:
    """The special tokens by role, as words: what templates know them by. A role that no file names is absent."""
    found: dict[str, str] = {}
    for each in _named(folder):
        found = each | found
    for name in (CONFIG, GENERATION):
        path = folder / name
        values = read_json(path) if path.is_file() else {}
        for role in ("bos_token", "eos_token", "pad_token"):
            for number in _numbers(path, f"{role}_id", values.get(f"{role}_id")):
                if role not in found and (word := tokenizer.id_to_token(number)) is not None:
                    found[role] = word
    return found


def _named(folder: Path) -> list[dict[str, str]]:
    """What each file that names tokens by word says, by role."""
    found = []
    for name in WORDS:
        path = folder / name
        if path.is_file():
            values = read_json(path)
            words = {role: _word(path, role, values.get(role)) for role in ROLES}
            found.append({role: word for role, word in words.items() if word})
    return found


def _word(path: Path, role: str, value: Any) -> str:
    """A token, which is a string or an object with its content; "" for none."""
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise wrong(path, role, value, "a token's text")
    return value or ""


def _numbers(path: Path, name: str, value: Any) -> list[int]:
    """Tokens by number: one, a list of them, or none. A negative number is an old way to say none."""
    given = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(each, bool) or not isinstance(each, int) for each in given):
        raise CheckpointError(
            f"{path} gives {name} as {as_json(value)}, which is not a number, nor a list of numbers of tokens."
        )
    return [each for each in given if each >= 0]
