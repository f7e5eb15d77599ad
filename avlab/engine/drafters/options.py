"""Options of a kind of drafter without weights, written behind its name: `ngram:prompt_lookup_max=4`."""

from dataclasses import fields
from typing import Any, TypeVar

from avlab.engine.checkpoint_files import CheckpointError

Options = TypeVar("Options")
NUMBERS: dict[Any, type[int] | type[float]] = {int: int, float: float}


def read_options(kind: str, text: str, options: type[Options]) -> Options:
    """The options of a text NAME=VALUE,NAME=VALUE as the dataclass `options`, whose fields are int or float.

    Its own checks raise ValueError with what is wrong. Raises CheckpointError.
    """
    known = {field.name: NUMBERS[field.type] for field in fields(options)}  # type: ignore[arg-type]
    values: dict[str, int | float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in known:
            raise CheckpointError(
                f"The drafter {kind} has no option {name!r}; write {kind}:NAME=VALUE with {', '.join(known)}."
            )
        try:
            values[name] = known[name](value)
        except ValueError:
            wanted = "a whole number" if known[name] is int else "a number"
            raise CheckpointError(f"{name} of the drafter {kind} is {value!r}; give {wanted}.") from None
    try:
        return options(**values)
    except ValueError as error:
        raise CheckpointError(f"The drafter {kind} cannot work so: {error}.") from None
