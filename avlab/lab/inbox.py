"""The lab's end of the link: takes a worker's frames, has them recorded in batches, acknowledges commits."""

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Protocol

import zmq

from avlab.errors import cause
from avlab.wire import codec, commands, frames
from avlab.wire.sockets import Bell, LinkError, open_socket

BATCH_SECONDS = 1.0  # chosen here: pages look once a second, and a commit may hold the worker up for ten ms
PING_SECONDS = 1.0
WAITING_FRAMES = 2_000  # frames in memory beyond which the worker keeps the rest
RESEND_SECONDS = 0.5


class Recorder(Protocol):
    """What records frames: `avlab.store.recorder.Recorder` does. Errors it raises are sentences."""

    def record(self, envelope: codec.Envelope) -> None: ...
    def flush(self) -> dict[str, int]: ...
    def end(self, run: str, reason: str) -> None: ...


class Inbox:
    """Receives one run's frames at `address` (bound here) until `close`.

    on_frame: called with every frame in order, in the receiving thread; it must be quick. What it raises ends the
    receiving, and is a failure.
    on_failure: called once with the sentence of the first error that kept frames from being recorded.
    received: the number of the last frame that came without a gap, -1 before the first.
    """

    def __init__(
        self,
        address: str,
        run: str,
        recorder: Recorder,
        on_frame: Callable[[frames.Frame], None] = lambda frame: None,
        on_failure: Callable[[str], None] = lambda sentence: None,
        received: int = -1,
    ):
        self.run, self.received, self.committed = run, received, received
        self.heard: float | None = None  # monotonic, of the last frame
        self.failure = ""
        self._recorder, self._on_frame, self._on_failure = recorder, on_frame, on_failure
        self._commands: deque[commands.Command] = deque()
        self._waiting: deque[codec.Envelope] = deque()
        self._closing = threading.Event()
        self._received_all = threading.Event()
        self._asked = 0.0
        self._bell = Bell()
        self._context = zmq.Context()
        self._wire = open_socket(self._context)
        try:
            self._wire.bind(address)
        except zmq.ZMQError as error:
            self._wire.close()
            raise LinkError(f"The socket {address} cannot be opened ({error}).") from None
        self._recording = threading.Thread(target=self._record, name="recording", daemon=True)
        self._receiving = threading.Thread(target=self._receive, name="inbox", daemon=True)
        self._recording.start()  # the receiving thread ends with it
        self._receiving.start()

    def send(self, command: commands.Command) -> None:
        """Pass a command to the worker; returns at once."""
        self._commands.append(command)
        self._bell.ring()

    @property
    def silent_seconds(self) -> float:
        """Seconds since the worker was last heard; 0 before its first frame."""
        return 0.0 if self.heard is None else time.monotonic() - self.heard

    def close(self) -> None:
        """Take what has arrived, have it recorded, close. What cannot be recorded stays with the worker."""
        self._closing.set()
        self._bell.ring()
        self._receiving.join()
        self._recording.join()
        self._context.term()
        self._bell.close()

    # ---- the receiving thread ------------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            try:
                self._serve()
            except Exception as error:  # a fault of ours: the worker must not be left unheard
                traceback.print_exc()
                self._fail(f"The lab's end of the link failed ({type(error).__name__}: {cause(error)}).")
            finally:
                self._received_all.set()
                self._recording.join()
            self._send()
        finally:
            self._wire.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._bell.fileno(), zmq.POLLIN)
        pinged = 0.0
        while True:
            room = len(self._waiting) < WAITING_FRAMES
            poller.register(self._wire, zmq.POLLIN if room else 0)
            closing = self._closing.is_set()
            poller.poll(100 if closing else int(1000 * PING_SECONDS / 4))
            self._bell.drain()
            came = room and self._take()
            if time.monotonic() - pinged >= PING_SECONDS:
                pinged = time.monotonic()
                if not self._commands:  # what cannot be sent waits once, not once a second
                    self._commands.append(commands.Acknowledge(self.committed))
            self._send()
            if closing and not came and (room or self.failure):
                return

    def _take(self) -> bool:
        """Everything that has arrived, as far as there is room; whether anything came."""
        came = False
        while len(self._waiting) < WAITING_FRAMES:
            try:
                envelope = codec.decode_frame(self._wire.recv(zmq.NOBLOCK))
            except zmq.Again:
                break
            except codec.MessageError as error:
                self._fail(str(error))
                continue
            came = True
            self.heard = time.monotonic()
            if envelope.run == self.run and envelope.sequence == codec.UNNUMBERED:
                self._on_frame(envelope.frame)
                continue
            if envelope.run != self.run or envelope.sequence <= self.received:
                continue  # another run's, or sent twice
            if envelope.sequence > self.received + 1:
                if self.heard - self._asked > RESEND_SECONDS:
                    self._asked = self.heard
                    self._commands.append(commands.Resend(self.received))
                continue
            self.received = envelope.sequence
            self._waiting.append(envelope)
            self._on_frame(envelope.frame)
        return came

    def _send(self) -> None:
        with contextlib.suppress(zmq.Again):  # no worker yet, or it is slow: the next round tries again
            while self._commands:
                self._wire.send(codec.encode(self._commands[0]), zmq.NOBLOCK)
                self._commands.popleft()

    # ---- the recording thread ------------------------------------------------------------------------------

    def _record(self) -> None:
        while True:
            last = self._received_all.wait(BATCH_SECONDS)
            try:
                while self._waiting:
                    self._recorder.record(self._waiting[0])
                    self._waiting.popleft()
                committed = self._recorder.flush().get(self.run, -1)
            except Exception as error:
                self._fail(str(error))
                if last:
                    return
                self._received_all.wait(
                    1.0
                )  # the frames stay, here or with the worker; the disk may get room
                continue
            if committed > self.committed:
                self.committed = committed
                self._commands.append(commands.Acknowledge(committed))
                self._bell.ring()
            if last and not self._waiting:
                return

    def _fail(self, sentence: str) -> None:
        if not self.failure:
            self.failure = sentence
            self._on_failure(sentence)
