"""The worker's end of the link: frames go out, commands come in, and the engine never waits for either.

Frames and commands travel over one zmq pair of sockets (ipc, in a folder only this user can enter). Every
frame has a number and is kept until the lab says that it is committed. The lab's end: `avlab.lab.inbox`.
"""

import contextlib
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

import psutil
import zmq

from avlab.liveness import Awake, Silence
from avlab.processes import end_children
from avlab.wire import codec, commands, frames
from avlab.wire.sockets import Bell, open_socket

CONTACT_SECONDS = 10.0  # a worker that hears nothing from its lab for so long, while both run, stops itself
STANDSTILL_SECONDS = 3.0  # of this process that a reader is told of
STUCK_SECONDS = 5.0  # and if it has not stopped so much later, because a step hangs, it ends at once
HEARTBEAT_SECONDS = 1.0
DRAFTS_BYTES = 64 << 20  # unacknowledged bytes above which raw slots are dropped; some 2 M slots, chosen here
MOST_BYTES = 512 << 20  # unacknowledged bytes at which a run is given up rather than its frames


class Outbox:
    """Sends a run's frames from a thread of its own and collects the lab's commands.

    status: called often, for the state and step that a Heartbeat carries. lab: the process that must
    stay our parent, or None. guard: end the process when it is lost and does not stop by itself.
    The first frame must be a Hello; heartbeats before it are not recorded. stop_came: set the moment a Stop arrives
    that does not let requests end first, for whoever cannot ask `commands` meanwhile.
    """

    def __init__(
        self,
        address: str,
        run: str,
        status: Callable[[], tuple[str, int]] = lambda: ("serving", 0),
        clock: Callable[[], float] = time.monotonic,
        lab: int | None = None,
        guard: bool = False,
        contact_seconds: float | None = None,
        drafts_bytes: int = DRAFTS_BYTES,
    ):
        self.run, self.lost, self.drafts_dropped, self.greeted = run, "", 0, False
        self._address, self._status, self._clock, self._lab, self._guard = address, status, clock, lab, guard
        self._contact_seconds, self._drafts_bytes = contact_seconds or CONTACT_SECONDS, drafts_bytes
        self._new: deque[frames.Frame] = deque()  # put, not yet numbered
        self._held: deque[tuple[int, bytes]] = deque()  # numbered, not yet acknowledged; numbers without gaps
        self._held_bytes = 0
        self._put_bytes = self._taken_bytes = 0  # of Drafts; each written by one thread only
        self._number = self._next = 0  # of the next frame to number; to send
        self._commands: deque[commands.Command] = deque()
        self.stop_came = threading.Event()
        self._arrived = threading.Event()
        self._beat = time.monotonic()
        self._awake, self._silence = Awake(), Silence(lab)
        self._worked = time.process_time()
        self._said = status()[0]  # the state that the last heartbeat carried
        self._lost_at: float | None = None
        self._deadline: float | None = None  # once it closes: seconds of the lab's silence
        self._patience = Silence(lab)
        self._process = psutil.Process()
        self._order, self._farewell = threading.Lock(), False
        self._bell = Bell()
        self._context = zmq.Context()
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self._thread.start()

    def put(self, frame: frames.Frame) -> None:
        """Hand over a frame; returns at once. When too much waits, Drafts are dropped and counted."""
        if isinstance(frame, frames.Drafts):
            size = len(frame.batch)
            if self._held_bytes + self._put_bytes - self._taken_bytes + size > self._drafts_bytes:
                self.drafts_dropped += frame.rows
                return
            self._put_bytes += size
        with self._order:
            self._farewell = self._farewell or isinstance(frame, frames.Bye)
            self.greeted = self.greeted or isinstance(frame, frames.Hello)
            self._new.append(frame)
        self._bell.ring()

    @property
    def held(self) -> int:
        """Bytes of numbered frames that the lab has not stored yet."""
        return self._held_bytes

    def beat(self) -> None:
        """Send a heartbeat now."""
        self._beat = 0.0
        self._bell.ring()

    def commands(self) -> list[commands.Command]:
        """What the lab asked since the last call, in order."""
        self._arrived.clear()
        taken = []
        while self._commands:
            taken.append(self._commands.popleft())
        return taken

    def wait(self, seconds: float) -> None:
        """Sleep, but not past the next command or the loss of the lab."""
        self._arrived.wait(seconds)

    def close(self, timeout: float | None = None) -> bool:
        """Send what is left, wait for up to `timeout` seconds of silence; whether all was acknowledged."""
        self._patience = Silence(self._lab)  # a lab that stands still meanwhile takes the last frames later
        self._deadline = CONTACT_SECONDS if timeout is None else timeout
        self._bell.ring()
        self._thread.join()
        self._context.term()
        self._bell.close()
        return not self._new and not self._held

    # ---- the thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._serve()
        except Exception:  # a fault of ours, a frame that cannot be encoded: the worker must not go on mute
            traceback.print_exc()
            self.lost = self.lost or "The worker's link failed: the end of its log says where."
            self._arrived.set()

    def _serve(self) -> None:
        with open_socket(self._context) as wire:
            wire.connect(self._address)
            self._exchange(wire)

    def _exchange(self, wire: zmq.Socket) -> None:
        poller = zmq.Poller()
        poller.register(self._bell.fileno(), zmq.POLLIN)
        while not self._done():
            blocked = self._next < self._number
            poller.register(wire, zmq.POLLIN | (zmq.POLLOUT if blocked else 0))
            poller.poll(100 if self._deadline else int(1000 * HEARTBEAT_SECONDS / 2))
            self._look_at_ourselves()
            self._bell.drain()
            self._receive(wire)
            self._watch(wire)
            self._take()
            self._send(wire)

    def _done(self) -> bool:
        if self._deadline is None:
            return False
        empty = not self._new and not self._held
        return empty or bool(self.lost) or self._patience.look() > self._deadline

    def _receive(self, wire: zmq.Socket) -> None:
        while True:
            try:
                command = codec.decode_command(wire.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except codec.MessageError as error:
                if self.greeted:
                    self.put(frames.Event("warning", "message", str(error), self._clock(), self._status()[1]))
                continue
            self._silence.heard()
            if isinstance(command, commands.Acknowledge):
                while self._held and self._held[0][0] <= command.sequence:
                    self._held_bytes -= len(self._held.popleft()[1])
                self._next = max(self._next, self._held[0][0] if self._held else self._number)
            elif isinstance(command, commands.Resend):
                first = self._held[0][0] if self._held else self._number
                self._next = min(self._next, max(first, command.sequence + 1))
            else:
                if isinstance(command, commands.Stop) and not command.drain:
                    self.stop_came.set()
                self._commands.append(command)
                self._arrived.set()

    def _look_at_ourselves(self) -> None:
        """Notice that this process stood still, and say so: what was measured beside it is slow for no other reason."""
        self._awake.read()
        before, self._worked = self._worked, time.process_time()
        still = self._awake.gap - (self._worked - before)
        if still > STANDSTILL_SECONDS and self.greeted and self._deadline is None:
            self.put(
                frames.Event(
                    "warning",
                    "standstill",
                    f"The worker stood still for {still:.0f} s (stopped, frozen, or its machine asleep), and went on: "
                    "what was measured then is slow.",
                    self._clock(),
                    self._status()[1],
                )
            )

    def _watch(self, wire: zmq.Socket) -> None:
        """Beat once a second and when the state changes; notice a lab that is gone, or that takes frames no more."""
        now = time.monotonic()
        state, step = self._status()
        due = state != self._said or now - self._beat >= HEARTBEAT_SECONDS
        if due and self._deadline is None:
            self._said, self._beat = state, now
            memory = self._process.memory_info().rss / 2**20
            heartbeat = frames.Heartbeat(self._clock(), state, step, memory, self.drafts_dropped)
            with self._order:  # nothing is before the greeting, and nothing follows a farewell
                greeted = self.greeted
                if greeted and not self._farewell:
                    self._new.append(heartbeat)
            if not greeted:  # there is no run yet to record it in: sent once, not kept
                with contextlib.suppress(zmq.Again):
                    wire.send(
                        codec.encode(codec.Envelope(self.run, codec.UNNUMBERED, heartbeat)), zmq.NOBLOCK
                    )
        if not self.lost:
            if self._lab is not None and os.getppid() != self._lab:
                self.lost = "The lab ended, so its worker did."
            elif self._silence.look() > self._contact_seconds:
                self.lost = f"The lab did not answer for {self._contact_seconds:g} s, so its worker stopped."
            elif self._held_bytes > MOST_BYTES:
                self.lost = "The lab stored nothing for so long that its worker stopped."
            if self.lost:
                self._lost_at = self._awake.seconds
                self._arrived.set()
        elif (
            self._guard
            and self._deadline is None
            and self._awake.seconds - (self._lost_at or 0.0) > STUCK_SECONDS
        ):
            end_children()
            os._exit(3)

    def _take(self) -> None:
        """Number what was put."""
        while self._new:
            frame = self._new.popleft()
            if isinstance(frame, frames.Drafts):
                self._taken_bytes += len(frame.batch)
            data = codec.encode(codec.Envelope(self.run, self._number, frame))
            self._held.append((self._number, data))
            self._held_bytes += len(data)
            self._number += 1

    def _send(self, wire: zmq.Socket) -> None:
        while self._next < self._number:
            try:
                wire.send(self._held[self._next - self._held[0][0]][1], zmq.NOBLOCK)
            except zmq.Again:
                return
            self._next += 1
