"""Faults of our own: the reader is told one sentence, and what a developer needs goes to a file.

The last door of the command line and of every page, behind those that know what went wrong.
"""

import contextlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import platformdirs

KEPT = 20  # files


def sentence(error: BaseException) -> str:
    """What to say of an error that nobody expected; its traceback is kept in a file."""
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
    if isinstance(error, MemoryError):
        return "This machine has no memory left for that: close something, or ask for less."
    path = _kept(error)
    where = f"Its details are in {path}; please report it with them." if path else "Please report it."
    return f"avlab failed here ({what}). This is a fault of avlab's, not yours. {where}"


def _kept(error: BaseException) -> Path | None:
    """The file that now holds the traceback; None where none can be written."""
    text = "".join(traceback.format_exception(error))
    for parent in (platformdirs.user_cache_dir("avlab", appauthor=False), tempfile.gettempdir()):
        folder = Path(parent) / "faults"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
            path.write_text(f"{' '.join(sys.argv)}\n\n{text}", encoding="utf-8", errors="backslashreplace")
            for old in sorted(folder.glob("*.txt"))[:-KEPT]:
                old.unlink(missing_ok=True)
            return path
    return None
