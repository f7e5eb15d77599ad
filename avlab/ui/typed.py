"""Numbers that a reader types into a form, taken as they stand there: where one is wrong, nothing is started.

Streamlit's own number field tells the server nothing of a number outside its bounds, and the form would start something
else than it shows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, overload

import streamlit as st

from avlab.config import ConfigError
from avlab.escaping import in_markdown
from avlab.policies.arm import Arm, PolicyError

Number = TypeVar("Number", int, float)
Parse = Callable[[str, str, Number, Number], Number]


class Place(Protocol):
    """Where a field is drawn: `st` itself, or a column of it."""

    def text_input(
        self,
        label: str,
        value: str = "",
        *,
        key: str,
        help: str | None = None,
        placeholder: str | None = None,
    ) -> str | None: ...

    def markdown(self, body: str) -> object: ...


def whole(text: str, name: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`. Raises ConfigError."""
    try:
        value = int(_plain(text))
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ConfigError([f"{_said(name, text)} give a whole number from {least:,} to {most:,}."])
    return value


def number(text: str, name: str, least: float, most: float) -> float:
    """A number from `least` to `most`. Raises ConfigError."""
    try:
        value = float(_plain(text))
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise ConfigError([f"{_said(name, text)} give a number from {least:,g} to {most:,g}."])
    return value


def _plain(text: str) -> str:
    """The text, unless it is what Python alone takes for a number, such as 1_0. Raises ValueError."""
    if "_" in text:
        raise ValueError(text)
    return text


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _said(name: str, text: str) -> str:
    return f"{name} is {text.strip()!r}:" if text.strip() else f"{name} is empty:"


class Fields:
    """The number fields of one form. What is wrong is said under its field, and again by `check`, before a start."""

    def __init__(self) -> None:
        self._wrong: list[str] = []

    @overload
    def whole(
        self, place: Place, name: str, least: int, most: int, default: int, *,
        key: str, help: str | None = None, placeholder: str | None = None,
    ) -> int: ...  # fmt: skip

    @overload
    def whole(
        self, place: Place, name: str, least: int, most: int, default: None, *,
        key: str, help: str | None = None, placeholder: str | None = None,
    ) -> int | None: ...  # fmt: skip

    def whole(
        self, place: Place, name: str, least: int, most: int, default: int | None, *,
        key: str, help: str | None = None, placeholder: str | None = None,
    ) -> int | None:  # fmt: skip
        """A field for a whole number; its default while that is wrong. default: None where it may be empty.

        place: where to draw it. key, help, placeholder: for `st.text_input`.
        """
        text = place.text_input(name, _text(default), key=key, help=help, placeholder=placeholder)
        return self._parsed(whole, place, text or "", name, least, most, default)

    @overload
    def number(
        self, place: Place, name: str, least: float, most: float, default: float, *,
        key: str, help: str | None = None, placeholder: str | None = None,
    ) -> float: ...  # fmt: skip

    @overload
    def number(
        self, place: Place, name: str, least: float, most: float, default: None, *,
        key: str, help: str | None = None, placeholder: str | None = None,
    ) -> float | None: ...  # fmt: skip

    def number(
        self, place: Place, name: str, least: float, most: float, default: float | None, *,
        key: str, help: str | None = None, placeholder: str | None = None,
    ) -> float | None:  # fmt: skip
        """The same for any number."""
        text = place.text_input(name, _text(default), key=key, help=help, placeholder=placeholder)
        return self._parsed(number, place, text or "", name, least, most, default)

    def wholes(self, place: Place, texts: Sequence[str], name: str, least: int, most: int) -> list[int]:
        """Those of several texts that are whole numbers in bounds, ascending, each once."""
        found: set[int] = set()
        for text in texts:
            try:
                found.add(whole(text, name, least, most))
            except ConfigError as error:
                self._say(place, error.sentences)
        return sorted(found)

    def arms(self, place: Place, arms: Sequence[str], K: int | None) -> None:
        """Say at once what is wrong with one of these policies. K: draft positions, where known."""
        for arm in dict.fromkeys(arms):
            try:
                Arm.parse(arm, K)
            except PolicyError as error:
                self._say(place, [str(error)])

    @property
    def wrong(self) -> bool:
        """Whether a field is wrong."""
        return bool(self._wrong)

    def check(self) -> None:
        """Raises ConfigError with a sentence for each field that is wrong."""
        if self._wrong:
            raise ConfigError(self._wrong)

    def _parsed(
        self,
        parse: Parse[Number],
        place: Place,
        text: str,
        name: str,
        least: Number,
        most: Number,
        default: Number | None,
    ) -> Number | None:
        """What was typed, or the default: of an empty field that may be empty, and of a wrong one."""
        if default is None and not text.strip():
            return None
        try:
            return parse(text, name, least, most)
        except ConfigError as error:
            self._say(place, error.sentences)
            return default

    def _say(self, place: Place, sentences: list[str]) -> None:
        self._wrong += sentences
        for sentence in sentences:
            place.markdown(f":red[:material/error: {in_markdown(sentence)}]")


def text_of(key: str) -> str:
    """What stands in a field, for a form that reads its fields when it is submitted."""
    return str(st.session_state.get(key) or "")
