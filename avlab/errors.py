"""Errors at the edge: which ones are sentences for the user, which are faults, and what to do about a disk's."""

import contextlib
import errno
import json

FULL = (errno.ENOSPC, errno.EDQUOT)
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)


def is_ours(error: BaseException) -> bool:
    """Whether an error is one of this project's own classes, whose message is a sentence for the user."""
    return type(error).__module__.partition(".")[0] == "avlab"


def cause(error: Exception) -> str:
    """What the system or a library says went wrong, in one line, to be put in brackets behind our own sentence."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip()
    if text.startswith("{"):  # DuckDB gives some of its errors as JSON
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = str(json.loads(text)["exception_message"])
    return text.split("\n", 1)[0]


def remedy(error: Exception) -> str:
    """What to do where a file could not be written for this error (of the system's or DuckDB's)."""
    number, text = getattr(error, "errno", None), str(error)
    if number in FULL or "No space left" in text or "quota exceeded" in text:
        return "free disk space, or choose a place on another disk"
    if number in CLOSED or "Read-only file system" in text or "Permission denied" in text:
        return "choose a folder that you may write to"
    return "choose another place"


def not_written(what: object, error: Exception) -> str:
    """The sentence for a file, folder or whatever else that could not be written."""
    return f"{what} cannot be written ({cause(error)}): {remedy(error)}."
