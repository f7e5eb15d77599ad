"""Between worker and lab no frame is lost, raw slots give way first, and nobody waits for the other."""

import os
import threading
import time

import pytest

from avlab.lab.inbox import Inbox
from avlab.wire import commands as cm
from avlab.wire import frames as fr
from avlab.wire.sockets import SOCKET_PATH_LIMIT, LinkError, endpoint, is_private, private_folder
from avlab.workers import outbox as module
from avlab.workers.outbox import Outbox

RUN = "018f0000-0000-7000-8000-000000000000"
HELLO = fr.Hello("reference", 1, 0.0, {}, "t", "", None, None, 7, "unknown", {})


def event(text):
    return fr.Event("info", "test", text, 0.0, 0)


def drafts(rows):
    return fr.Drafts(rows, bytes(31 * rows))


class Memory:
    """A recorder that keeps frames in a list, or refuses them."""

    def __init__(self):
        self.frames, self.last, self.error = [], {}, None

    def record(self, envelope):
        if self.error:
            raise OSError(self.error)
        assert envelope.sequence == self.last.get(envelope.run, -1) + 1
        self.frames.append(envelope.frame)
        self.last[envelope.run] = envelope.sequence

    def flush(self):
        if self.error:
            raise OSError(self.error)
        return dict(self.last)

    def end(self, run, reason):
        self.frames.append(reason)

    @property
    def texts(self):
        return [frame.text for frame in self.frames if isinstance(frame, fr.Event)]


@pytest.fixture
def address():
    folder = private_folder()
    yield endpoint(folder)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_frames_arrive_in_order_and_are_acknowledged(address):
    memory = Memory()
    inbox = Inbox(address, RUN, memory)
    outbox = Outbox(address, RUN)
    outbox.put(HELLO)
    for number in range(500):
        outbox.put(event(str(number)))
    outbox.put(fr.Bye("done", True, 1.0))
    assert outbox.close(timeout=60)
    inbox.close()
    assert memory.texts == [str(number) for number in range(500)]
    assert isinstance(memory.frames[0], fr.Hello) and isinstance(memory.frames[-1], fr.Bye)


def test_commands_come_in_order_and_wake_the_worker(address):
    inbox = Inbox(address, RUN, Memory())
    outbox = Outbox(address, RUN)
    inbox.send(cm.Pause())
    inbox.send(cm.SetPolicy("fixed:3"))
    begin = time.monotonic()
    commands = []
    while len(commands) < 2:
        outbox.wait(5)
        commands += outbox.commands()
    assert commands == [cm.Pause(), cm.SetPolicy("fixed:3")]
    assert time.monotonic() - begin < 4
    outbox.close(0)
    inbox.close()


def test_a_stop_is_told_at_once_to_whoever_cannot_ask_for_commands(address):
    inbox = Inbox(address, RUN, Memory())
    outbox = Outbox(address, RUN)
    inbox.send(cm.Stop(drain=True))
    inbox.send(cm.Pause())
    until(lambda: len(outbox._commands) == 2)
    assert not outbox.stop_came.is_set()
    inbox.send(cm.Stop())
    assert outbox.stop_came.wait(60)
    until(lambda: len(outbox._commands) == 3)
    assert outbox.commands() == [cm.Stop(drain=True), cm.Pause(), cm.Stop()]
    outbox.close(0)
    inbox.close()


def test_a_fault_in_the_receiving_thread_is_a_failure_and_closing_ends(address, capsys):
    def fault(frame):
        raise RuntimeError("a fault of ours")

    memory, failures = Memory(), []
    inbox = Inbox(address, RUN, memory, on_frame=fault, on_failure=failures.append)
    outbox = Outbox(address, RUN)
    outbox.put(HELLO)
    until(lambda: failures)
    closing = threading.Thread(target=inbox.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    assert "a fault of ours" in failures[0] and "Traceback" in capsys.readouterr().err
    outbox.close(0)


def test_a_new_lab_end_is_sent_what_the_old_one_did_not_commit(address):
    first, second = Memory(), Memory()
    inbox = Inbox(address, RUN, first)
    outbox = Outbox(address, RUN)
    outbox.put(HELLO)
    outbox.put(event("a"))
    until(lambda: first.texts == ["a"] and inbox.committed >= 1)
    first.error = "the disk is full"
    outbox.put(event("b"))
    until(lambda: inbox.failure)
    inbox.close()
    outbox.put(event("c"))
    second.last = dict(first.last)
    inbox = Inbox(address, RUN, second, received=first.last[RUN])
    until(lambda: second.texts == ["b", "c"])
    assert outbox.close(60)
    inbox.close()


def test_a_recorder_that_recovers_gets_everything(address):
    memory, failures = Memory(), []
    inbox = Inbox(address, RUN, memory, on_failure=failures.append)
    outbox = Outbox(address, RUN)
    memory.error = "the disk is full"
    outbox.put(HELLO)
    outbox.put(event("a"))
    until(lambda: failures)
    assert failures == ["the disk is full"]
    memory.error = None
    assert outbox.close(60)
    inbox.close()
    assert memory.texts == ["a"] and len(failures) == 1


def test_raw_slots_give_way_and_are_counted_while_steps_are_kept(address):
    outbox = Outbox(address, RUN, drafts_bytes=10 * 31 * 1000)
    outbox.put(HELLO)
    begin = time.monotonic()
    for number in range(100):  # no lab is there
        outbox.put(drafts(1000))
        outbox.put(event(str(number)))
    assert time.monotonic() - begin < 10
    assert 85_000 <= outbox.drafts_dropped <= 95_000
    memory = Memory()
    inbox = Inbox(address, RUN, memory)
    assert outbox.close(60)
    inbox.close()
    assert memory.texts == [str(number) for number in range(100)]
    kept = sum(frame.rows for frame in memory.frames if isinstance(frame, fr.Drafts))
    assert kept + outbox.drafts_dropped == 100_000


def test_a_changed_state_is_told_with_the_next_frame_and_not_a_beat_later(address, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 1000.0)
    memory, state = Memory(), ["timing steps 3/40"]
    inbox = Inbox(address, RUN, memory)
    outbox = Outbox(address, RUN, status=lambda: (state[0], 9))
    outbox.put(HELLO)
    state[0] = "serving"
    outbox.put(event("first step"))
    until(lambda: any(isinstance(frame, fr.Heartbeat) for frame in memory.frames))
    outbox.put(event("second step"))
    outbox.close(timeout=60)
    inbox.close()
    assert [frame.state for frame in memory.frames if isinstance(frame, fr.Heartbeat)] == ["serving"]


def test_the_worker_beats_and_the_lab_hears(address, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)
    memory = Memory()
    inbox = Inbox(address, RUN, memory)
    outbox = Outbox(address, RUN, status=lambda: ("profiling", 12))
    seen = []
    inbox._on_frame = seen.append
    until(lambda: seen)
    assert inbox.received == -1 and not memory.frames  # nothing is recorded before the greeting
    outbox.put(HELLO)
    until(lambda: any(isinstance(frame, fr.Heartbeat) for frame in memory.frames))
    beat = next(frame for frame in memory.frames if isinstance(frame, fr.Heartbeat))
    assert (beat.state, beat.step) == ("profiling", 12) and beat.rss_mb > 1
    until(lambda: inbox.silent_seconds < 1)
    outbox.close(5)
    time.sleep(0.4)
    assert inbox.silent_seconds > 0.3
    inbox.close()


class Late:
    """A lock that this thread gets some beats later than others."""

    def __init__(self):
        self._lock, self._late = threading.Lock(), threading.get_ident()

    def __enter__(self):
        if threading.get_ident() == self._late:
            time.sleep(0.3)
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_nothing_goes_before_the_greeting(address, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.02)
    memory = Memory()
    inbox = Inbox(address, RUN, memory)
    outbox = Outbox(address, RUN)
    outbox._order = Late()
    outbox.put(HELLO)
    until(lambda: len(memory.frames) > 1)
    outbox.close(5)
    inbox.close()
    assert isinstance(memory.frames[0], fr.Hello) and isinstance(memory.frames[1], fr.Heartbeat)


def test_nothing_follows_a_farewell(address, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.02)
    memory = Memory()
    inbox = Inbox(address, RUN, memory)
    outbox = Outbox(address, RUN)
    outbox.put(HELLO)
    until(lambda: any(isinstance(frame, fr.Heartbeat) for frame in memory.frames))
    outbox.put(fr.Bye("done", True, 1.0))
    time.sleep(0.3)  # a dozen beats' time
    outbox.close(5)
    inbox.close()
    assert isinstance(memory.frames[-1], fr.Bye)


def test_a_worker_without_its_lab_knows(address):
    outbox = Outbox(address, RUN, contact_seconds=0.3)
    until(lambda: outbox.lost)
    assert "did not answer" in outbox.lost
    begin = time.monotonic()
    assert not outbox.put(HELLO) and not outbox.close(60)
    assert time.monotonic() - begin < 30
    outbox = Outbox(address, RUN, lab=os.getpid())  # not our parent
    until(lambda: outbox.lost)
    assert "lab ended" in outbox.lost
    outbox.close(0)


@pytest.mark.slow
def test_pings_alone_keep_a_worker_going(address):
    inbox = Inbox(address, RUN, Memory())
    outbox = Outbox(address, RUN, contact_seconds=4.0)
    time.sleep(6)
    assert not outbox.lost
    outbox.close(0)
    inbox.close()


def test_damaged_bytes_are_noticed_not_guessed_at(address):
    failures = []
    inbox = Inbox(address, RUN, Memory(), on_failure=failures.append)
    outbox = Outbox(address, RUN)
    outbox._held.append((0, b"nonsense"))
    outbox._number = 1
    outbox._bell.ring()
    until(lambda: failures)
    assert "could not be read" in failures[0]
    outbox.close(0)
    inbox.close()


def test_the_socket_folder_is_this_users_alone():
    folder = private_folder()
    assert is_private(folder) and len(str(folder)) < SOCKET_PATH_LIMIT
    folder.chmod(0o755)
    assert not is_private(folder)
    folder.rmdir()
    assert not is_private(folder)


def test_an_address_that_cannot_be_bound_is_one_sentence():
    with pytest.raises(LinkError, match="cannot be opened"):
        Inbox("ipc:///nowhere/at/all", RUN, Memory())


def test_a_frame_that_cannot_be_sent_ends_the_worker_rather_than_its_link_alone(address, capsys):
    outbox = Outbox(address, RUN)
    outbox.put(HELLO)
    outbox.put(fr.Event("info", "test", object(), 0.0, 0))
    end = time.monotonic() + 10
    while not outbox.lost:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert "link failed" in outbox.lost and "TypeError" in capsys.readouterr().err
    assert not outbox.close(timeout=0.1)
