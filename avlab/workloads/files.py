"""The reader's own prompts: a file with one JSON object a line, or one array of such objects.

`entries.py` says what an object may be. One that cannot be served is passed over and counted; the run's record and the
command line say how many there were and where the first is.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from avlab.formats import counted

from .arrivals import Moment
from .base import Prompt, WorkloadError
from .entries import Entry, entry

DEFAULT_MAX_NEW_TOKENS = 256
LONGEST_ENTRY = 8 << 20  # bytes: twice the text of a context of a million tokens
LARGEST_ARRAY = 2 << 30  # bytes of a file that is one array, which is in memory as a whole


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


@dataclass(slots=True)
class PromptFile:
    """What a file holds: entries in its order, and what of it is not served, counted, with the first place of each."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    passed_over: int = 0
    first: str = ""  # why the first entry was passed over
    unserved: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Sentences for the run's record and the command line."""
        found = []
        if self.passed_over:
            served = counted(len(self.entries), "prompt")
            found.append(
                f"{self.name}: {served} to serve, passed over {self.passed_over:,}; first: {self.first.rstrip('.')} "
                "(--strict ends the run instead)."
            )
        cut = self.unserved.get("", 0)
        if cut:
            found.append(
                f"{self.name}: of {cut:,} prompts the turns from an odd one on were left out; first: {self.places['']}."
            )
        if asked := [name for name in self.unserved if name]:
            named = ", ".join(
                f"{name} ({self.unserved[name]:,}, first {self.places[name]})" for name in asked
            )
            found.append(
                f"{self.name}: entries ask for what is not done here, and are served without it: {named}."
            )
        return found

    def pass_over(self, why: str) -> None:
        self.passed_over += 1
        self.first = self.first or why

    def take(self, found: Entry, place: str) -> None:
        self.entries.append(found)
        for name in (*found.unserved, *([""] if found.cut else [])):
            self.unserved[name] += 1
            self.places.setdefault(name, place)


def read_prompts(
    path: str | Path, max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS, strict: bool = False
) -> PromptFile:
    """The entries of a file, in its order. A file that is one JSON array, as ShareGPT's is, will do too.

    `max_new_tokens` is the limit of an entry that has none. strict: raise where an entry would be passed over, cut, or
    served without something that it asks for. Raises WorkloadError: for a file that cannot be read, and for one of
    which nothing can be served, with the line (in an array, the number) of its first entry, from 1.
    """
    if not str(path).strip():
        raise WorkloadError("file: needs a path, such as file:prompts.jsonl.")
    path = Path(path).expanduser()
    found = PromptFile(path.name)
    try:
        for place, text in _entries(path):
            try:
                if isinstance(text, WorkloadError):
                    raise text
                taken = entry(_json(text, place), place, path.name, path.stem, max_new_tokens)
            except WorkloadError as error:
                if strict:
                    raise
                found.pass_over(str(error))
            else:
                found.take(taken, place)
                if strict and (
                    asked := [*taken.unserved, *(["turns behind an odd one"] if taken.cut else [])]
                ):
                    raise WorkloadError(
                        f"{place} asks for what is not done here: {', '.join(asked)}; without --strict it is served "
                        "without it."
                    )
    except OSError as error:
        raise WorkloadError(f"the prompt file {str(path)!r} cannot be read: {error.strerror}.") from None
    if not found.entries and found.first:
        others = f" None of its {found.passed_over:,} entries can be served." if found.passed_over > 1 else ""
        raise WorkloadError(found.first + others)
    if not found.entries:
        raise WorkloadError(f"the prompt file {str(path)!r} holds no prompt; write one JSON object a line.")
    _settle_times(found, strict)
    return found


def _settle_times(found: PromptFile, strict: bool) -> None:
    """Where some entries have an arrival time and some have none, those of the lesser part are passed over."""
    timed = [each.arrival is not None for each in found.entries]
    if all(timed) or not any(timed):
        return
    keep = sum(timed) * 2 >= len(timed)
    odd = timed.index(not keep)
    said = "has no arrival time while others have one" if keep else "has an arrival time while most have none"
    why = f"prompt {odd + 1} of {found.name} {said}; give every entry one, or none."
    if strict:
        raise WorkloadError(why)
    found.passed_over += len(timed) - timed.count(keep)
    found.first = found.first or why
    found.entries = [each for each, has in zip(found.entries, timed, strict=True) if has == keep]


def _entries(path: Path) -> Iterator[tuple[str, bytes | WorkloadError]]:
    """Each entry's place and JSON, or why it is none. Raises OSError, and WorkloadError for an array that is none."""
    with path.open("rb") as file:
        start = b""
        while not start and (line := file.readline(LONGEST_ENTRY)):
            start = line.removeprefix(b"\xef\xbb\xbf").lstrip()
        file.seek(0)
        if start.startswith(b"["):
            if path.stat().st_size > LARGEST_ARRAY:
                raise WorkloadError(
                    f"the prompt file {path.name} is one array of {path.stat().st_size >> 20:,} MB: write one JSON "
                    "object a line instead."
                )
            yield from _of_array(file.read().removeprefix(b"\xef\xbb\xbf"), path.name)
            return
        number = 0
        while line := file.readline(LONGEST_ENTRY + 1):
            number, place = number + 1, f"line {number + 1} of {path.name}"
            if len(line) > LONGEST_ENTRY and not line.endswith(b"\n"):
                while (more := file.readline(LONGEST_ENTRY)) and not more.endswith(b"\n"):
                    pass
                yield place, WorkloadError(f"{place} has more than {LONGEST_ENTRY >> 20} MB.")
                continue
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield place, line.rstrip(b"\r\n")


def _of_array(content: bytes, name: str) -> Iterator[tuple[str, bytes | WorkloadError]]:
    """The entries of a file that is one array, each still as JSON."""
    try:
        parts: Sequence[bytes | bytearray | memoryview] = msgspec.json.decode(content, type=list[msgspec.Raw])
    except (
        msgspec.DecodeError,
        RecursionError,
    ):  # Python's own reader says better what is wrong, and takes NaN
        parts = [json.dumps(each).encode() for each in _json(content, f"the prompt file {name}")]
    for number, part in enumerate(parts, 1):
        place = f"entry {number} of {name}"
        if len(part) > LONGEST_ENTRY:
            yield place, WorkloadError(f"{place} has more than {LONGEST_ENTRY >> 20} MB.")
        else:
            yield place, bytes(part)


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
