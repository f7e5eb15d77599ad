"""Answers as JSON: what `--json` prints and the lab's socket carries, and back again with checks."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from avlab.store.errors import StoreError
from avlab.store.plain import plain

T = TypeVar("T")


class AnswerError(StoreError):
    """An answer of another version of avlab. The message is one sentence."""


@runtime_checkable
class Brief(Protocol):
    """An answer of which JSON lacks some fields while nothing is known of them; they have defaults."""

    def unsaid(self) -> Iterable[str]: ...


def to_values(answer: object) -> Any:
    """An answer as JSON can hold it; numbers that are not finite become None."""
    if isinstance(answer, msgspec.Struct):
        return plain(msgspec.to_builtins(answer))
    if is_dataclass(answer):
        unsaid = set(answer.unsaid()) if isinstance(answer, Brief) else ()
        return {
            field.name: to_values(getattr(answer, field.name))
            for field in fields(answer)
            if field.name not in unsaid
        }
    if isinstance(answer, dict):
        return {key: to_values(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [to_values(value) for value in answer]
    return plain(answer)


def from_values(kind: type[T], values: object) -> T:
    """The answer that `to_values` made these of. Raises AnswerError for anything else."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise AnswerError(f"The answer cannot be read ({error}): run both from one install.") from None
