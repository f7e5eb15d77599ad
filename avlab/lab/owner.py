"""The owner of a database answers other processes of the same user on a local socket; this is both ends of it.

Questions and answers are JSON. The socket's name follows from the database's real path; its folder is closed to
other users. Whoever finds the file held asks; nobody has to configure anything.
"""

import contextlib
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zmq

from avlab import temporary
from avlab.errors import is_ours
from avlab.wire.sockets import SOCKET_PATH_LIMIT, Bell, is_private, open_socket

VERSION = 1
ANSWER_SECONDS = 5.0  # for a first sign of life
WORK_SECONDS = 600.0  # for the answer itself: an export can take a while
CLOSE_SECONDS = 5.0  # that an owner which closes gives the answer it is at
LINGER_MS = 500  # for the last words to leave
MOST_BYTES = 4 << 20  # of a question; the longest is a configuration with an experiment
CLOSED = "The lab closed before it could answer: ask again, and whoever has the database then will."
LOOK_SECONDS = 2.0  # between two looks at whether an owner that has not answered is there still
Handlers = Mapping[str, Callable[..., Any]]


class OwnerError(RuntimeError):
    """The owner of a database cannot be asked, or refused. The message is one sentence."""


class OwnerSilent(OwnerError):
    """Nobody answers for the database: its holder is no lab, or one that is only starting or ending."""


class OwnerClosed(OwnerError):
    """The owner of a database ended before it answered."""


def _folders() -> list[Path]:
    """Where sockets may be, best first. The environment may differ between owner and asker, so there are several."""
    name = f"avlab-{os.getuid()}"
    found = [Path(parent) / name for parent in temporary.places()]
    return [folder for folder in found if len(str(folder)) + 22 < SOCKET_PATH_LIMIT]


def _socket_name(database: str | os.PathLike) -> str:
    return hashlib.sha256(os.path.realpath(database).encode()).hexdigest()[:16] + ".sock"


class Owner:
    """Answers questions about one database until `close`.

    handlers: by question; called with the question's arguments in a thread of the owner's, one at a time. What
    they return must be JSON; errors of ours become the asker's sentence.
    """

    def __init__(self, database: str | os.PathLike, handlers: Handlers):
        self._handlers = handlers
        self._context = zmq.Context()
        self._wire = open_socket(self._context, zmq.ROUTER)
        self.path = self._bind(_socket_name(database))
        self._questions: list[tuple[bytes, bytes]] = []
        self._answers: list[tuple[bytes, bytes]] = []
        self._unanswered: list[bytes] = []  # askers
        self._asked = threading.Event()
        self._closing = self._closed = False
        self._bell = Bell()
        self._listening = threading.Thread(target=self._listen, name="owner", daemon=True)
        self._answering = threading.Thread(target=self._work, name="answers", daemon=True)
        self._listening.start()
        self._answering.start()

    def close(self) -> None:
        """Answer nobody any more. An answer that takes too long is given up, and whoever waits is told so."""
        self._closing = True
        self._asked.set()
        self._answering.join(CLOSE_SECONDS)
        self._closed = True
        self._bell.ring()
        self._listening.join()
        self._context.term()
        self._bell.close()
        self.path.unlink(missing_ok=True)

    def _bind(self, name: str) -> Path:
        for folder in _folders():
            with contextlib.suppress(OSError, zmq.ZMQError):
                folder.mkdir(mode=0o700, exist_ok=True)
                if is_private(folder):
                    self._wire.bind(f"ipc://{folder / name}")
                    return folder / name
        self._wire.close()
        self._context.term()
        raise OwnerError(
            "No folder for the owner's socket could be made: set XDG_RUNTIME_DIR to one of yours."
        )

    def _listen(self) -> None:
        """The socket's thread: says at once that a question has come, and passes answers on."""
        poller = zmq.Poller()
        poller.register(self._wire, zmq.POLLIN)
        poller.register(self._bell.fileno(), zmq.POLLIN)
        try:
            while not self._closed:
                poller.poll(1000)
                self._bell.drain()
                self._take_questions()
                self._send_answers()
            self._answers += [(asker, _refusal(CLOSED)) for asker in self._unanswered]
            self._send_answers()
        finally:
            self._wire.close(LINGER_MS)

    def _take_questions(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                parts = self._wire.recv_multipart(zmq.NOBLOCK)
                if len(parts) == 2:
                    self._wire.send_multipart([parts[0], b'{"working": true}'], zmq.NOBLOCK)
                    self._unanswered.append(parts[0])
                    self._questions.append((parts[0], parts[1]))
                    self._asked.set()

    def _send_answers(self) -> None:
        while self._answers:
            answer = self._answers.pop(0)
            if answer[0] in self._unanswered:
                self._unanswered.remove(answer[0])
            with contextlib.suppress(zmq.ZMQError):  # the asker is gone
                self._wire.send_multipart(answer, zmq.NOBLOCK)

    def _work(self) -> None:
        while not self._closing:
            self._asked.wait()
            self._asked.clear()
            while self._questions and not self._closing:
                asker, question = self._questions.pop(0)
                self._answers.append((asker, self._answer(question)))
                self._bell.ring()

    def _answer(self, question: bytes) -> bytes:
        if len(question) > MOST_BYTES:
            return _refusal(f"The question has more than {MOST_BYTES >> 20} MB.")
        try:
            asked = json.loads(question)
            what, arguments, version = str(asked["ask"]), asked["arguments"], asked["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return _refusal("The question could not be read.")
        if version != VERSION or what not in self._handlers:
            return _refusal(f"The owner of the database does not know {what!r}: run both from one install.")
        try:
            return json.dumps({"answer": self._handlers[what](**arguments)}).encode()
        except Exception as error:
            said = str(error) if is_ours(error) else f"The owner failed ({type(error).__name__}: {error})."
            return _refusal(said)


def _refusal(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()


def ask(database: str | os.PathLike, what: str, **arguments: Any) -> Any:
    """Ask whoever holds the database; the answer.

    Raises OwnerSilent when nobody answers, OwnerClosed when the owner ends before it does, OwnerError with a refusal.
    """
    name = _socket_name(database)
    sockets = [folder / name for folder in _folders() if is_private(folder) and (folder / name).exists()]
    context = zmq.Context()
    try:
        for path in sockets:
            wire = open_socket(context)
            try:
                wire.connect(f"ipc://{path}")
                question = {"version": VERSION, "ask": what, "arguments": arguments}
                wire.send(json.dumps(question).encode())
                if wire.poll(int(1000 * ANSWER_SECONDS)):
                    return _await(wire, path)
            finally:
                wire.close()
    finally:
        context.term()
    raise OwnerSilent(f"No lab answers for {database}: wait if it is starting, or take another file.")


def _await(wire: zmq.Socket, path: Path) -> Any:
    deadline = time.monotonic() + WORK_SECONDS
    while time.monotonic() < deadline:
        if not wire.poll(int(1000 * LOOK_SECONDS)):
            if _listens(path) or wire.poll(0):
                continue
            raise OwnerClosed(CLOSED)  # it was killed
        answer = json.loads(wire.recv())
        if "error" in answer:
            raise OwnerClosed(CLOSED) if answer["error"] == CLOSED else OwnerError(answer["error"])
        if "answer" in answer:
            return answer["answer"]
    raise OwnerError(f"The owner of the database did not finish in {WORK_SECONDS:g} s.")


def _listens(path: Path) -> bool:
    """Whether a process is behind a socket, be it one that is suspended and takes no more connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True
