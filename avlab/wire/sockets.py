"""The sockets that frames and commands travel over, and the folders, closed to other users, in which they lie."""

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import zmq

from avlab import temporary

FOLDER_PREFIX = "avlab-"
SOCKET_PATH_LIMIT = 100  # bytes; the system's own is 104 to 108


class LinkError(RuntimeError):
    """The link to a worker or lab cannot be made. The message is one sentence."""


def private_folder(prefix: str = FOLDER_PREFIX) -> Path:
    """A new folder that only this user can enter (0700), with a path short enough for a socket in it."""
    for parent in temporary.places():
        if len(parent) + len(prefix) + 24 < SOCKET_PATH_LIMIT:
            with contextlib.suppress(OSError):
                return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    raise LinkError(
        "No folder for a socket could be made: set TMPDIR to a folder that you may write to, with a short path."
    )


def is_private(folder: Path) -> bool:
    """Whether the folder belongs to this user and nobody else can enter it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def endpoint(folder: Path, name: str = "link") -> str:
    """The address of a socket in a private folder."""
    return f"ipc://{folder / name}"


def open_socket(context: zmq.Context, kind: int = zmq.DEALER) -> zmq.Socket:
    """A socket that closes without waiting and holds little: its owner keeps what is not acknowledged."""
    opened = context.socket(kind)
    opened.setsockopt(zmq.LINGER, 0)
    opened.setsockopt(zmq.SNDHWM, 256)
    opened.setsockopt(zmq.RCVHWM, 256)
    return opened


class Bell:
    """Wakes a thread that polls sockets; ringing never blocks."""

    def __init__(self) -> None:
        self._out, self._in = socket.socketpair()
        self._out.setblocking(False)
        self._in.setblocking(False)

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it is ringing already; closed: nobody is left to wake
            self._out.send(b"x")

    def drain(self) -> None:
        """Take in what rang, so that polling waits again."""
        with contextlib.suppress(BlockingIOError):
            while self._in.recv(4096):
                pass

    def fileno(self) -> int:
        return self._in.fileno()

    def close(self) -> None:
        self._out.close()
        self._in.close()
