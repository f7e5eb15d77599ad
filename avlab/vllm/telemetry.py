"""What the worker extension records, in a file of fixed size: telemetry of a server that is in production.

    AVLAB_TELEMETRY=/run/telemetry vllm serve MODEL ... --worker-extension-cls avlab_extension.Watch

Each engine keeps one file there, engine-0.ring, and a thread of its worker brings it up to date once a second. Nobody
is waited for: readers take no lock, and a copy that was torn is known by the numbers around it and by its checksum.
This file imports nothing of avlab; it lies beside the extension, under a name that has "telemetry" for "extension".

    header        written once: layout, an identity of this life of the worker, checksum
    state         two copies of a JSON text in turn: what was found, sums since the start, the worker's clocks
    calibration   two copies of the non-empty cells
    costs         two copies of vLLM's cost tables
    steps         a ring of the last steps, each a row of numbers
    refits        a ring of the last refits

It is written with `pwrite`, not through mapped memory: where the disk is full or somebody cuts the file short, mapped
memory would end vLLM's worker by a signal, and a write only says so.
"""

import json
import logging
import math
import os
import stat
import struct
import threading
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

try:
    import fcntl
except ImportError:  # not on this system: two writers are then not told apart
    fcntl = None  # type: ignore[assignment]

PERIOD = 1.0  # seconds between two writes; Prometheus asks every fifteen
MAGIC, VERSION = b"avlabrng", 1
STEPS = 8192  # rows in the ring: four minutes at thirty steps a second
REFITS = 512
STATE_ROOM = 64 << 10
MOST_K, MOST_WIDTH, MOST_SLOTS, MOST_ROOM = 1024, 8192, 1 << 20, 64 << 20  # of a layout that is believed
HEADER = 4096  # bytes kept for the header
AROUND = (
    24  # bytes of a copy or a row beside its own: number, length, checksum in front, the number again behind
)
ERROR_BOUNDS = (
    -32,
    -16,
    -8,
    -4,
    -2,
    -1,
    -0.5,
    0,
    0.5,
    1,
    2,
    4,
    8,
    16,
    32,
)  # tokens, of expected less accepted
BY_POSITION = ("scheduled", "admitted", "accepted", "labelled")
UNTRIMMED = -1  # no length is held, as in the extension

log = logging.getLogger("vllm.avlab")  # beneath vLLM's own, so that it is said in the server's log


@dataclass(frozen=True)
class Layout:
    """Where everything lies. K: draft positions; width: numbers in a step; rooms: bytes for one copy of a text."""

    K: int
    width: int
    steps: int
    refits: int
    state_room: int
    calibration_room: int
    costs_room: int

    FORMAT = "<8sI7I16sQ"

    @property
    def refit_width(self) -> int:
        """Numbers in a refit: refit, step, time, slope, and three of each position."""
        return 4 + 3 * self.K

    @property
    def places(self) -> dict[str, int]:
        """The offset of each part, and of the "end"."""
        found, at = {}, HEADER
        for name, size in (
            ("state", 2 * (AROUND + self.state_room)),
            ("calibration", 2 * (AROUND + self.calibration_room)),
            ("costs", 2 * (AROUND + self.costs_room)),
            ("steps", self.steps * (AROUND + 8 * self.width)),
            ("refits", self.refits * (AROUND + 8 * self.refit_width)),
        ):
            found[name] = at
            at += size
        return found | {"end": at}

    def header(self, identity: bytes) -> bytes:
        """The header of a file. identity: 16 bytes that no other life of a worker has."""
        plain = struct.pack(self.FORMAT, MAGIC, VERSION, *astuple(self), identity, self.places["end"])
        return plain + struct.pack("<I", zlib.crc32(plain))

    @classmethod
    def of(cls, header: bytes) -> tuple["Layout", bytes]:
        """A layout and an identity from a header. Raises ValueError with what is wrong."""
        size = struct.calcsize(cls.FORMAT)
        if len(header) < size + 4 or header[:8] != MAGIC:
            raise ValueError("is no telemetry of avlab")
        _, version, *values = struct.unpack(cls.FORMAT, header[:size])
        if version != VERSION:
            raise ValueError(
                f"has layout {version}, and this avlab reads {VERSION}: use the same avlab on both"
            )
        if struct.unpack("<I", header[size : size + 4]) != (zlib.crc32(header[:size]),):
            raise ValueError("has a damaged header")
        *numbers, identity, end = values
        layout = cls(*numbers)
        rooms = (layout.state_room, layout.calibration_room, layout.costs_room)
        if (
            layout.K > MOST_K
            or not 0 < layout.width <= MOST_WIDTH
            or not 0 < layout.steps <= MOST_SLOTS
            or not 0 < layout.refits <= MOST_SLOTS
            or max(rooms) > MOST_ROOM
            or layout.places["end"] != end
        ):
            raise ValueError("has a header of impossible sizes")
        return layout, identity


def framed(number: int, payload: bytes) -> tuple[bytes, bytes]:
    """What stands in front of a payload and behind it. number: from 1."""
    crc = zlib.crc32(payload, number & 0xFFFFFFFF)
    return struct.pack("<QII", number, len(payload), crc), struct.pack("<Q", number)


def unframed(data: bytes) -> tuple[int, bytes] | None:
    """A number and its payload from the bytes of a place; None where they are torn. Number 0: never written."""
    number, length, crc = struct.unpack_from("<QII", data)
    if not number:
        return 0, b""
    if length > len(data) - AROUND:
        return None
    payload = data[16 : 16 + length]
    whole = struct.unpack_from("<Q", data, 16 + length) == (number,)
    return (number, payload) if whole and zlib.crc32(payload, number & 0xFFFFFFFF) == crc else None


class Ring:
    """A file that is written. Every method raises OSError."""

    def __init__(self, path: Path, layout: Layout):
        self.path, self.layout, self.places = path, layout, layout.places
        self._file = _open(path)
        self._turn = dict.fromkeys(("state", "calibration", "costs"), 0)
        os.ftruncate(self._file, 0)
        _reserve(self._file, self.places["end"])
        os.pwrite(self._file, layout.header(os.urandom(16)), 0)

    def copy(self, part: str, payload: bytes) -> None:
        """The next copy of a text. Raises ValueError where it has no room."""
        room: int = getattr(self.layout, f"{part}_room")
        if len(payload) > room:
            raise ValueError(f"{part} needs {len(payload):,} bytes and has {room:,}")
        self._turn[part] += 1
        turn = self._turn[part]
        self._put(self.places[part] + (turn % 2) * (AROUND + room), turn, payload)

    def rows(self, part: str, rows: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Rows of a ring, with their numbers from 0."""
        slots, width = (
            (self.layout.steps, self.layout.width)
            if part == "steps"
            else (self.layout.refits, self.layout.refit_width)
        )
        for number, values in rows:
            place = self.places[part] + (number % slots) * (AROUND + 8 * width)
            self._put(place, number + 1, struct.pack(f"<{width}d", *values))

    def look(self) -> None:
        """Raises OSError where somebody has cut the file short or taken it away."""
        found = os.fstat(self._file)
        if found.st_size != self.places["end"] or not found.st_nlink:
            raise OSError(f"{self.path} was cut short or removed")

    def close(self) -> None:
        os.close(self._file)

    def _put(self, place: int, number: int, payload: bytes) -> None:
        front, behind = framed(number, payload)
        os.pwrite(self._file, front + payload + behind, place)


def _open(path: Path) -> int:
    """The file, this process's alone to write. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
            raise OSError(f"{path} is not a plain file of this user")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OSError(f"{path} is written by another server: name another folder") from None
    except OSError:
        os.close(file)
        raise
    return file


def _reserve(file: int, size: int) -> None:
    """Room on the disk, so that no later write finds it full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)


@dataclass
class Totals:
    """Sums over steps since the worker started: Prometheus's counters. by position: lists of K.

    predicted_ms and measured_ms are of the steps that have a prediction, predicted_steps of them; expected_accepted and
    errors, of expected less accepted tokens, of those that had an estimate. errors: counts between ERROR_BOUNDS.
    """

    K: int
    steps: int = 0
    requests: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    drafting_steps: int = 0
    empty_steps: int = 0  # that scheduled drafts and verified none
    held_steps: int = 0
    explored: int = 0  # drafts verified while somebody held the length
    predicted_steps: int = 0
    predicted_ms: float = 0.0
    measured_ms: float = 0.0
    expected_accepted: float = 0.0
    expected_steps: int = 0
    error_sum: float = 0.0

    def __post_init__(self) -> None:
        self.by_position = {name: [0] * self.K for name in BY_POSITION}
        self.errors = [0] * (len(ERROR_BOUNDS) + 1)

    def add(self, step: Mapping[str, Any]) -> None:
        """One step, by the names of the extension's fields."""
        self.steps += 1
        self.requests += step["requests"]
        self.tokens += step["tokens"]
        self.prompt_tokens += step["prompt_tokens"]
        for name, sums in self.by_position.items():
            for k, n in enumerate(step[name]):
                sums[k] += n
        admitted = sum(step["admitted"])
        if any(step["scheduled"]):
            self.drafting_steps += 1
            self.empty_steps += not admitted
        if step["verify"] != UNTRIMMED:
            self.held_steps += 1
            self.explored += admitted
        if not math.isnan(step["expected_ms"]):
            self.predicted_steps += 1
            self.predicted_ms += step["expected_ms"]
            self.measured_ms += step["draft_ms"] + step["verify_ms"]
        if admitted and not math.isnan(step["expected_accepted"]):
            error = step["expected_accepted"] - sum(step["accepted"])
            self.expected_steps += 1
            self.expected_accepted += step["expected_accepted"]
            self.error_sum += error
            self.errors[bisect_left(ERROR_BOUNDS, error)] += 1

    def plain(self) -> dict[str, Any]:
        """All sums, in JSON's types."""
        sums = {each.name: getattr(self, each.name) for each in fields(self)}
        return sums | {"by_position": self.by_position, "errors": self.errors}


class Recorded(Protocol):
    """What is published: the extension's `Record`."""

    K: int
    totals: Totals | None

    def about(self) -> dict[str, Any]: ...
    def drain(self, after: int, refits_after: int) -> dict[str, Any]: ...
    @property
    def tables(self) -> Any: ...
    def costs(self) -> dict[str, Any]: ...
    def ready(self) -> bool: ...
    def rooms(self) -> tuple[int, int]: ...


class Publisher:
    """The thread that writes a record to its file. What goes wrong is said once, and ends the file alone."""

    def __init__(self, record: Recorded, folder: str, identity: Mapping[str, Any]):
        self._record, self.identity = record, dict(identity)
        self.path = Path(folder) / f"engine-{identity['engine']}.ring"
        self.failure = ""
        self._ring: Ring | None = None
        self._after = self._refits_after = -1
        self._tables: Any = None
        self._cells: Any = None
        self._refits = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="avlab-telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and end."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(5 * PERIOD)

    def _run(self) -> None:
        try:
            while not self._end.wait(PERIOD):
                self._write("serving")
            self._write("ended")
        except Exception as error:
            self.failure = f"Telemetry is not written to {self.path} ({error or type(error).__name__})."
            log.warning("avlab: %s vLLM serves on.", self.failure)
        finally:
            if self._ring is not None:
                self._ring.close()

    def _write(self, state: str) -> None:
        if self._ring is None and not self._record.ready():
            return
        found = self._record.drain(self._after, self._refits_after)
        if self._ring is None:
            self._ring = Ring(self.path, self._layout(found))
        ring = self._ring
        ring.look()
        if found["steps"]:
            self._after = found["steps"][-1][0]
            ring.rows("steps", ((row[0], flat(row)) for row in found["steps"][-STEPS:]))
        for refit in found["refits_made"]:
            self._refits_after = refit[0]
            ring.rows("refits", [(self._refits, flat(refit))])
            self._refits += 1
        if found["calibration"] != self._cells:
            self._cells = found["calibration"]
            ring.copy("calibration", _packed(self._cells))
        tables = self._record.tables
        if tables is not None and tables is not self._tables:
            self._tables = tables
            ring.copy("costs", _costs(self._record.costs()))
        about = self._record.about() | {name: found[name] for name in ("step_fields", "refit_fields")}
        totals = self._record.totals
        ring.copy("state", json.dumps({
            "state": state, "wall": time.time(), "monotonic": time.monotonic(), "period": PERIOD, "pid": os.getpid(),
            "steps_kept": self._after + 1, "refits_kept": self._refits, "sources": list(found["calibration"]),
            "about": about, "totals": totals.plain() if totals else {}, **self.identity,
        }).encode())  # fmt: skip

    def _layout(self, found: Mapping[str, Any]) -> Layout:
        K = self._record.K
        calibration, costs = self._record.rooms()
        width = len(found["step_fields"]) + len(BY_POSITION) * (K - 1)
        return Layout(K, width, STEPS, REFITS, STATE_ROOM, calibration, costs)


def flat(row: Sequence[Any]) -> list[float]:
    """A step's or a refit's row with its lists written out."""
    return [float(v) for each in row for v in (each if isinstance(each, list) else (each,))]


def _packed(calibration: Mapping[str, Sequence[Sequence[float]]]) -> bytes:
    """Cells of seven numbers, source by source: how many, then they."""
    parts = []
    for cells in calibration.values():
        numbers = [float(n) for cell in cells for n in cell]
        parts.append(struct.pack(f"<I{len(numbers)}d", len(cells), *numbers))
    return b"".join(parts)


def _costs(told: Mapping[str, Any]) -> bytes:
    """Cost tables and curves as four counted lists of numbers: draft, verify, and their samples as pairs."""
    curves: Sequence[Sequence[Sequence[float]]] = told["cost_curves"] or ([], [])
    lists = [*told["cost_tables"], *([n for pair in curve for n in pair] for curve in curves)]
    return b"".join(struct.pack(f"<I{len(each)}d", len(each), *each) for each in lists)
