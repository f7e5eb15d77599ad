"""A sentence for each field of a configuration that pydantic refused: what was asked, what is allowed."""

from typing import Any

from pydantic import BaseModel, ValidationError


def _plain(bound: float) -> str:
    """A bound as people write it: 1, 0.5, 2592000."""
    return str(int(bound)) if bound == int(bound) else str(bound)


_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "yes or no",
    "string": "text",
    "finite": "a finite number",
}


def sentences(error: ValidationError, of: type[BaseModel]) -> list[str]:
    """One sentence for each field of a configuration that pydantic refused: what was asked, what is allowed."""
    return [_sentence(problem, of) for problem in error.errors(include_url=False)]


def _sentence(problem: Any, of: type[BaseModel]) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    kind, context, value = problem["type"], problem.get("ctx") or {}, problem["input"]
    if isinstance(context.get("error"), ValueError):  # a validator of ours: already a sentence
        return str(context["error"])
    if kind == "extra_forbidden":
        return f"there is no setting {name!r}; the settings are {', '.join(of.model_fields)}."
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"{name} is {value!r}; it must be {words} {_plain(context[key])}."
    if kind == "literal_error":
        return f"{name} is {value!r}; it must be {context['expected']}."
    if kind == "missing":
        return f"{name} is missing: give {of.model_fields[name].description}."
    if kind == "string_pattern_mismatch":
        expected = "auto, cpu, cuda or cuda:N" if name == "device" else of.model_fields[name].description
        return f"{name} is {value!r}; it must be {expected}."
    if kind == "string_too_short":
        return f"{name} is empty; give a value."
    expected = _KINDS.get(kind.split("_")[0], problem["msg"])
    return f"{name} is {value!r}; it must be {expected}."
