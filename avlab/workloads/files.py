"""The reader's own prompts: a file with one JSON object a line.

What an object may look like (other fields are passed over):

    {"prompt": "..."}                                     plain, and HumanEval
    {"messages": [{"role": "user", "content": "..."}]}    chat, also inside the "body" of a batch request
    {"conversations": [{"from": "human", "value": "..."}]}    ShareGPT; up to the first human turn
    {"question": "...", "answer": "..."}                  GSM8K
    {"turns": ["...", "..."], "category": "..."}          SPEED-Bench and MT-Bench; the first turn

and with any of them `arrival` (seconds), `max_new_tokens` or `max_tokens`, `kind` or `category`, and how this request
is to be sampled where the run's settings are not meant: `temperature`, `top_k`, `top_p`, `seed`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .arrivals import Moment
from .base import Prompt, Sampling, Turns, WorkloadError

DEFAULT_MAX_NEW_TOKENS = 256
LATEST, MOST_TOKENS = 1e11, 1_000_000  # beyond any clock, even one since 1970, and beyond any context
LICENCE = "as the file's owner says"
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
}
# of one request: whether it is a whole number, what it may be (as a run's settings), and that in words
SAMPLING: dict[str, tuple[bool, Callable[[Any], bool], str]] = {
    "temperature": (False, lambda value: 0 <= value <= 10, "a number from 0 to 10"),
    "top_k": (True, lambda value: -1 <= value <= 10_000_000, "a whole number, 0 (or -1) for all"),
    "top_p": (False, lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "seed": (True, lambda value: 0 <= value < 2**63, "a whole number from 0, below 2^63"),
}
SHAPES = ("prompt", "messages", "conversations", "question", "turns")
SPEED_BENCH_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"


class Entry(NamedTuple):
    """A prompt of a file, and the second at which it arrives; None when the file does not say."""

    prompt: Prompt
    arrival: float | None


class FileStream:
    """The prompts of a file, once in the file's order; with `repeat` again and again."""

    def __init__(self, prompts: Sequence[Prompt], repeat: bool = False) -> None:
        self.prompts, self.repeat = prompts, repeat
        self._taken = 0

    @property
    def exhausted(self) -> bool:
        return not self.repeat and self._taken >= len(self.prompts)

    def take(self, moment: Moment) -> Prompt:
        self._taken += 1
        return self.prompts[(self._taken - 1) % len(self.prompts)]


def read_prompts(path: str | Path, max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS) -> list[Entry]:
    """The entries of a file, in its order. A file that is one JSON array, as ShareGPT's is, will do too.

    `max_new_tokens` is the limit of an entry that has none. Raises WorkloadError: for a file that cannot be
    read or holds no prompt, and for a malformed entry, with its line (in an array, its number) from 1.
    """
    if not str(path).strip():
        raise WorkloadError("file: needs a path, such as file:prompts.jsonl.")
    path = Path(path).expanduser()
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise WorkloadError(f"the prompt file {str(path)!r} cannot be read: {error.strerror}.") from None
    start = next((line.lstrip() for line in lines if line.strip()), b"")
    if start.startswith(b"["):
        found = _json(b"\n".join(lines), f"the prompt file {path.name}")
        numbered = [(f"entry {number} of {path.name}", each) for number, each in enumerate(found, 1)]
    else:
        places = (
            (f"line {number} of {path.name}", line) for number, line in enumerate(lines, 1) if line.strip()
        )
        numbered = [(place, _json(line, place)) for place, line in places]
    if not numbered:
        raise WorkloadError(f"the prompt file {str(path)!r} holds no prompt; write one JSON object a line.")
    entries = [_entry(value, place, path, max_new_tokens) for place, value in numbered]
    timed = [entry.arrival is not None for entry in entries]
    if any(timed) and not all(timed):
        place = numbered[timed.index(False)][0]
        raise WorkloadError(
            f"{place} has no arrival time while others have one; give every entry one, or none."
        )
    return entries


def _json(text: bytes, place: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{place} is not UTF-8 text (byte {error.start + 1}).") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if b"\n" in text else f"column {error.colno}"
        raise WorkloadError(f"{place} is not JSON: {error.msg} at {where}.") from None
    except (RecursionError, ValueError) as error:
        raise WorkloadError(f"{place} is not usable JSON: {error}.") from None


def _entry(value: Any, place: str, path: Path, max_new_tokens: int) -> Entry:
    if not isinstance(value, dict):
        raise WorkloadError(f'{place} is {_named(value)}, not a JSON object such as {{"prompt": "..."}}.')
    body = value["body"] if isinstance(value.get("body"), dict) else {}
    fields = {**value, **body}
    turns = _turns(fields, place)
    kind = next((fields[key] for key in ("kind", "category") if isinstance(fields.get(key), str)), path.stem)
    limit = next(
        (fields[key] for key in ("max_new_tokens", "max_tokens") if fields.get(key) is not None), None
    )
    if limit is None:
        limit = max_new_tokens
    elif isinstance(limit, bool) or not isinstance(limit, int) or not (1 <= limit <= MOST_TOKENS):
        raise WorkloadError(
            f"{place} has a token limit of {_named(limit)}; it must be a whole number, 1 to {MOST_TOKENS}."
        )
    arrival = next((fields[key] for key in ("arrival", "arrival_time") if fields.get(key) is not None), None)
    if arrival is not None:
        number = isinstance(arrival, int | float) and not isinstance(arrival, bool)
        if not number or not (0 <= arrival < LATEST):
            raise WorkloadError(
                f"{place} arrives at {_named(arrival)}; it must be a number of seconds, 0 or more."
            )
    prompt = Prompt(kind, turns, path.name, LICENCE, limit, _sampling(fields, place))
    return Entry(prompt, None if arrival is None else float(arrival))


def _sampling(fields: dict[str, Any], place: str) -> Sampling:
    """What an entry says of its sampling; null is as good as nothing, and vLLM's top_k of -1 means all."""
    found: dict[str, Any] = {}
    for name, (whole, allowed, words) in SAMPLING.items():
        value = fields.get(name)
        if value is None:
            continue
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not allowed(value):
            raise WorkloadError(f"{place} has a {name} of {_named(value)}; it must be {words}.")
        found[name] = value
    if found.get("top_k") == -1:
        found["top_k"] = 0
    return Sampling(**found)


def _turns(fields: dict[str, Any], place: str) -> Turns:
    """The conversation up to the user's turn that is to be answered."""
    shape = next((name for name in SHAPES if fields.get(name) is not None), None)
    if shape is None:
        raise WorkloadError(f"{place} has none of the fields {', '.join(SHAPES)}.")
    value = fields[shape]
    if shape in ("prompt", "question"):
        return (("user", _text(value, f"the {shape} of {place}")),)
    if not isinstance(value, list) or not value:
        raise WorkloadError(f"the {shape} of {place} are {_named(value)}, not a list with at least one turn.")
    if shape == "turns":
        return (("user", _text(value[0], f"the first turn of {place}")),)
    role_key, text_key = ("role", "content") if shape == "messages" else ("from", "value")
    turns = []
    for number, turn in enumerate(value, 1):
        if not isinstance(turn, dict) or not isinstance(turn.get(role_key), str):
            raise WorkloadError(
                f"turn {number} of {place} is not an object with {role_key!r} and {text_key!r}."
            )
        role = ROLES.get(turn[role_key], turn[role_key])
        if role not in ("system", "user", "assistant", "tool"):
            raise WorkloadError(f"turn {number} of {place} has the unknown role {turn[role_key]!r}.")
        turns.append((role, _text(turn.get(text_key), f"turn {number} of {place}")))
    asked = [number for number, (role, _) in enumerate(turns) if role == "user"]
    if not asked:
        raise WorkloadError(
            f"the {shape} of {place} hold no turn of the user, so there is nothing to answer."
        )
    if shape == "messages":
        last = max(number for number, (role, _) in enumerate(turns) if role != "assistant")
        return tuple(turns[: last + 1])
    system = [turn for turn in turns[: asked[0]] if turn[0] == "system"]
    return (*system, turns[asked[0]])


def _text(value: Any, place: str) -> str:
    if isinstance(value, list):  # a message in parts, as the OpenAI interface has them
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        value = "".join(texts) if len(texts) == len(value) else value
    if not isinstance(value, str) or not value.strip():
        raise WorkloadError(f"{place} is {_named(value)}, where a text that is not empty is needed.")
    if SPEED_BENCH_PLACEHOLDER in value:
        raise WorkloadError(
            f"{place} is a placeholder; fill SPEED-Bench in with its own preparation script first."
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise WorkloadError(f"{place} holds half of a surrogate pair, which no tokenizer takes.") from None
    return value


def _named(value: Any) -> str:
    """A value as an error message can show it: short, in JSON's spelling."""
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
