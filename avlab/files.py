"""Files that a command writes: new ones only, and whole or not at all."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from avlab.errors import not_written


class FileError(Exception):
    """A file could not be written. The message is one sentence."""


def write_new(path: Path, make: Callable[[], str]) -> None:
    """Write the text that `make` gives to a file that is not there yet; where that fails, nothing is left.

    Raises FileError.
    """
    if path.exists():
        raise FileError(f"{path} is there already: give another name.")
    text = make()
    part = path.with_name(f"{path.name}.part")  # so that nothing half written has the file's name
    try:
        part.write_text(text, encoding="utf-8")
        part.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise FileError(not_written(path, error)) from None
