"""Folders for sockets, which no other user can enter."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

FOLDER_PREFIX = "avlab-"
SOCKET_PATH_LIMIT = 100  # bytes; the system's own is 104 to 108


class LinkError(RuntimeError):
    """The link to a worker or lab cannot be made. The message is one sentence."""


def private_folder(prefix: str = FOLDER_PREFIX) -> Path:
    """A new folder that only this user can enter (0700), with a path short enough for a socket in it."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if parent and os.path.isdir(parent) and len(parent) + len(prefix) + 24 < SOCKET_PATH_LIMIT:
            with contextlib.suppress(OSError):
                return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    raise LinkError("No folder for a socket could be made: set TMPDIR to a folder with a short path.")


def is_private(folder: Path) -> bool:
    """Whether the folder belongs to this user and nobody else can enter it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
