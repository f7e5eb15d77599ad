"""An answer that is had within so many seconds as a whole: a socket's own limit begins anew with every byte."""

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.request
from typing import Any


class Deadline:
    """A context for one question: its sockets are shut down when `seconds` are over. passed: whether that happened."""

    def __init__(self, seconds: float):
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self.end)
        self._timer.daemon = True

    def __enter__(self) -> "Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def hold(self, connected: socket.socket) -> None:
        """A connection of this question."""
        with self._lock:
            self._sockets.append(connected)
            late = self.passed
        if late:
            self._shut(connected)

    def end(self) -> None:
        """Shut the connections now."""
        with self._lock:
            self.passed = True
            held = list(self._sockets)
        for each in held:
            self._shut(each)

    @staticmethod
    def _shut(held: socket.socket) -> None:
        # The plain socket's own method: that of a TLS socket takes away the state which a reader is using.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(held, socket.SHUT_RDWR)


class HTTPHandler(urllib.request.HTTPHandler):
    """Opens connections that a deadline ends."""

    def __init__(self, deadline: Deadline):
        super().__init__()
        self.deadline = deadline

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """As urllib does."""
        deadline = self.deadline

        class Held(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                deadline.hold(self.sock)

        return self.do_open(Held, request)


class HTTPSHandler(urllib.request.HTTPSHandler):
    """The same with TLS."""

    def __init__(self, deadline: Deadline, context: ssl.SSLContext):
        super().__init__(context=context)
        self.deadline, self.context = deadline, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """As urllib does."""
        deadline = self.deadline

        class Held(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                deadline.hold(self.sock)

        more: dict[str, Any] = {"context": self.context}
        return self.do_open(Held, request, **more)
