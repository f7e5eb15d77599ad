"""Files and folders that pass: where there is no place for them, one sentence says so."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from avlab.errors import cause


class TemporaryError(Exception):
    """There is no folder that temporary files may be written to. The message is one sentence."""


def places() -> list[str]:
    """Folders that may hold temporary files or sockets, the best first; that they can be written to is not said."""
    found = [os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"]
    with contextlib.suppress(OSError):  # no usable one among the usual
        found.append(tempfile.gettempdir())
    return [each for each in dict.fromkeys((*found, "/tmp")) if each and os.path.isdir(each)]


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that is there while the block runs. Raises TemporaryError."""
    try:
        made = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_place(error) from None
    with made as name:
        yield Path(name)


def file(prefix: str, suffix: str = ".log") -> Path:
    """A new empty file; whoever asked removes it. Raises TemporaryError."""
    try:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=suffix)
    except OSError as error:
        raise _no_place(error) from None
    os.close(handle)
    return Path(name)


def _no_place(error: OSError) -> TemporaryError:
    return TemporaryError(
        f"No temporary file can be written ({cause(error)}): set TMPDIR to a folder that you may write to."
    )
