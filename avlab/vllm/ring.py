"""Reads telemetry files, as `avlab.vllm.telemetry` writes them, and believes nothing of them unchecked."""

import json
import math
import os
import stat
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avlab.vllm import VllmError
from avlab.vllm.drained import NO_STEPS
from avlab.vllm.telemetry import AROUND, BY_POSITION, HEADER, Layout, unframed

SUFFIX = ".ring"
MOST_FILES = 1024  # engines of one folder
TRIES = 3  # at a copy that is being written
SILENT = 10.0  # seconds without a word, behind which a worker is taken for gone: ten periods of its thread
FRACTIONS = ("time", "expected_accepted")  # step fields that are no whole numbers, and all in milliseconds
NEEDED = (
    "number", "time", "requests", "prompt_tokens", "target_tokens", "budget", "verify", "emitting", "tokens",
    "expected_ms", "draft_ms", "verify_ms", "sample_ms", "decide_ms", "idle_ms",
)  # fmt: skip
LARGEST = 2.0**53
CELL = 7


class RingError(VllmError):
    """A telemetry file that cannot be read. The message is one sentence."""


@dataclass(frozen=True)
class State:
    """What a worker's file says of it now. about: as `avlab_begin` answers. totals: sums since the worker started.

    age: seconds since it was written. state: "serving", or "ended".
    """

    model: str
    engine: str
    vllm: str
    state: str
    age: float
    about: Mapping[str, Any]
    totals: Mapping[str, Any]
    sources: Sequence[str]
    steps_kept: int  # that were written: the next one's number
    refits_kept: int
    offset: float  # the worker's clock less ours

    @property
    def lives(self) -> bool:
        """Whether its worker still writes."""
        return self.state == "serving" and self.age < SILENT


def ring_files(place: Path) -> list[Path]:
    """The telemetry files of a folder, or the one file that a path names. Raises RingError where there is none."""
    if place.is_file():
        return [place]
    try:
        found = sorted(each for each in place.iterdir() if each.suffix == SUFFIX)
    except OSError as error:
        raise RingError(
            f"{place} cannot be read ({error.strerror}): name the folder of the server's AVLAB_TELEMETRY."
        ) from None
    if not found:
        raise RingError(
            f"{place} holds no telemetry: start the server with AVLAB_TELEMETRY={place} and its worker extension."
        )
    if len(found) > MOST_FILES:
        raise RingError(f"{place} holds {len(found):,} telemetry files; at most {MOST_FILES:,} are read.")
    return found


class RingFile:
    """One worker's file. torn: rows that were torn, or overwritten while they were read."""

    def __init__(self, path: Path):
        self.path, self.torn = path, 0
        self._file, self.layout, self.identity = _opened(path)
        self.places = self.layout.places

    def close(self) -> None:
        os.close(self._file)

    def replaced(self) -> bool:
        """Whether another life of a worker writes the file by now, or it is gone."""
        try:
            layout, identity = Layout.of(os.pread(self._file, HEADER, 0))
            return (layout, identity) != (self.layout, self.identity) or not os.fstat(self._file).st_nlink
        except (ValueError, OSError):
            return True

    def state(self) -> State:
        """Raises RingError."""
        return _state(self._json("state"), self.path)

    def drain(self, after: int, refits_after: int) -> dict[str, Any]:
        """As `avlab_drain` answers, with what the file still has. Raises RingError."""
        state = self.state()
        found: dict[str, Any] = dict(state.about)
        fields = self._fields(state)
        found["next"] = state.steps_kept
        found["steps"], found["dropped"] = [], 0
        if after != NO_STEPS:
            rows = self._rows("steps", after + 1, state.steps_kept)
            found["steps"] = [_step(row, fields, self.layout.K) for row in rows]
            found["dropped"] = state.steps_kept - max(0, after + 1) - len(rows)
        made = [_refit(row, self.layout.K) for row in self._rows("refits", 0, state.refits_kept)]
        found["refits_made"] = [each for each in made if each[0] > refits_after]
        found["calibration"] = self.calibration(state)
        if after < 0:
            found |= self.costs()
        return found

    def costs(self) -> dict[str, Any]:
        """Cost tables and curves, as `avlab_drain` has them; {} where there are none."""
        data = self._copy("costs")
        if data is None:
            return {}
        lists, at = [], 0
        for _ in range(4):
            numbers, at = self._counted(data, at, 1)
            lists.append(numbers)
        draft, verify, *samples = lists
        curves = [list(zip(map(int, each[::2]), each[1::2], strict=False)) for each in samples]
        return {"cost_tables": [draft, verify], "cost_curves": curves}

    # ---- parts -------------------------------------------------------------------------------------------------

    def last_step(self, state: State) -> dict[str, Any]:
        """The newest step by field; {} where there is none, or it was torn."""
        fields = self._fields(state)
        rows = self._rows("steps", state.steps_kept - 1, state.steps_kept)
        return dict(zip(fields, _step(rows[-1], fields, self.layout.K), strict=True)) if rows else {}

    def last_refit(self, state: State) -> list[Any]:
        """The newest refit, in the order of its fields; [] where there is none."""
        rows = self._rows("refits", state.refits_kept - 1, state.refits_kept)
        return _refit(rows[-1], self.layout.K) if rows else []

    def _fields(self, state: State) -> Sequence[str]:
        """The names of a step's numbers. Raises RingError where its rows are of another width, or one is missing."""
        fields: Sequence[str] = state.about["step_fields"]
        wide = len(fields) + len(BY_POSITION) * (self.layout.K - 1)
        if (
            self.layout.width != wide
            or not {*NEEDED, *BY_POSITION} <= {*fields}
            or len({*fields}) < len(fields)
        ):
            raise self._wrong("its rows have other fields than it says")
        return fields

    def calibration(self, state: State) -> dict[str, list[list[float]]]:
        """Cells by source since the start: position, bin, count, positives, and three sums. Raises RingError."""
        sources = state.sources
        data, found, at = self._copy("calibration"), {}, 0
        if data is None:
            return {}
        for source in sources:
            numbers, at = self._counted(data, at, CELL)
            cells = [numbers[i : i + CELL] for i in range(0, len(numbers), CELL)]
            if any(not (0 <= cell[0] < self.layout.K and 0 <= cell[1] < 128) for cell in cells):
                raise self._wrong("its calibration has positions or bins that do not exist")
            found[source] = [[*map(int, cell[:4]), *cell[4:]] for cell in cells]
        return found

    def _counted(self, data: bytes, at: int, each: int) -> tuple[list[float], int]:
        """A list that says its own length, and where it ends."""
        if at + 4 > len(data):
            raise self._wrong("a list in it is cut off")
        (count,) = struct.unpack_from("<I", data, at)
        end = at + 4 + 8 * each * count
        if end > len(data):
            raise self._wrong("a list in it is longer than its place")
        numbers = list(struct.unpack_from(f"<{each * count}d", data, at + 4))
        if not all(map(_believable, numbers)):
            raise self._wrong("a number in it is not finite")
        return numbers, end

    def _json(self, part: str) -> Mapping[str, Any]:
        data = self._copy(part)
        if data is None:
            raise self._wrong(f"its {part} was not written yet, or is damaged")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise self._wrong(f"its {part} is damaged") from None
        if not isinstance(found, dict):
            raise self._wrong(f"its {part} is damaged")
        return found

    def _copy(self, part: str) -> bytes | None:
        """The newest whole copy of a text; None where there is none."""
        room: int = getattr(self.layout, f"{part}_room")
        for _ in range(TRIES):
            data = os.pread(self._file, 2 * (AROUND + room), self.places[part])
            half = AROUND + room
            if len(data) < 2 * half:
                raise self._wrong("it was cut short")
            copies = [unframed(data[:half]), unframed(data[half:])]
            whole = [each for each in copies if each is not None and each[0]]
            if whole:
                return max(whole)[1]
            if None not in copies:
                return None
        return None

    def _rows(self, part: str, first: int, end: int) -> list[tuple[float, ...]]:
        """The rows from number `first` to before `end` that the ring still has whole."""
        layout = self.layout
        slots, width = (
            (layout.steps, layout.width) if part == "steps" else (layout.refits, layout.refit_width)
        )
        size, place = AROUND + 8 * width, self.places[part]
        found, number = [], max(first, end - slots, 0)
        while number < end:
            slot = number % slots
            many = min(end - number, slots - slot)  # up to where the ring begins again
            data = os.pread(self._file, many * size, place + slot * size)
            if len(data) < many * size:
                raise self._wrong("it was cut short")
            for i in range(many):
                read = unframed(data[i * size : (i + 1) * size])
                if read and read[0] == number + i + 1 and len(read[1]) == 8 * width:
                    found.append(struct.unpack(f"<{width}d", read[1]))
                else:
                    self.torn += 1
            number += many
        return found

    def _wrong(self, what: str) -> RingError:
        return RingError(f"{self.path} cannot be used: {what}.")


def _opened(path: Path) -> tuple[int, Layout, bytes]:
    """A file, its layout and its identity. Raises RingError."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise RingError(f"{path} cannot be opened ({error.strerror}).") from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is no plain file")
        header = os.pread(file, HEADER, 0)
        if not header.strip(b"\0"):
            raise ValueError("is empty: its worker begins it, or has ended before it could")
        layout, identity = Layout.of(header)
        if found.st_size != layout.places["end"]:
            raise ValueError(f"has {found.st_size:,} bytes and should have {layout.places['end']:,}")
    except (ValueError, OSError) as error:
        os.close(file)
        raise RingError(f"{path} {error}.") from None
    return file, layout, identity


def _state(found: Mapping[str, Any], path: Path) -> State:
    """Raises RingError where a part is missing or of another kind."""
    now = time.time()
    try:
        about, totals = found["about"], found["totals"]
        state = State(
            model=_text(found["model"]),
            engine=str(int(found["engine"])),
            vllm=_text(found["vllm"]),
            state=_text(found["state"]),
            age=max(0.0, now - float(found["wall"])),
            about=about | {
                "missing": [_text(each) for each in about["missing"]],
                "K": int(about["K"]), "adaptive": bool(about["adaptive"]), "source": _text(about["source"]),
                "steps": bool(about["steps"]), "step_fields": [_text(each) for each in about["step_fields"]],
            },
            totals=_checked(totals),
            sources=[_text(each) for each in found["sources"]],
            steps_kept=_count(found["steps_kept"]),
            refits_kept=_count(found["refits_kept"]),
            offset=(float(found["monotonic"]) - float(found["wall"])) - (time.monotonic() - now),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise RingError(f"{path} cannot be used: what it says of its worker is damaged.") from None
    return state


def _checked(totals: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sums that are numbers. Raises ValueError or TypeError."""
    for name, value in totals.items():
        numbers = [value]
        if isinstance(value, list):
            numbers = value
        elif isinstance(value, dict):
            numbers = [n for each in value.values() for n in each]
        if not all(isinstance(n, int | float) and _believable(float(n)) for n in numbers):
            raise ValueError(name)
    return totals


def _step(row: Sequence[float], fields: Sequence[str], K: int) -> list[Any]:
    """A step's numbers as `avlab_drain` has them: whole where they count, lists of K by position."""
    values: list[Any] = []
    at = 0
    for name in fields:
        if name in BY_POSITION:
            values.append([_whole(n) for n in row[at : at + K]])
            at += K
            continue
        values.append(row[at] if name in FRACTIONS or name.endswith("_ms") else _whole(row[at]))
        at += 1
    return values


def _refit(row: Sequence[float], K: int) -> list[Any]:
    refit, step, clock, slope, *rest = row
    counts, positives = ([_whole(n) for n in rest[i : i + K]] for i in (K, 2 * K))
    return [_whole(refit), _whole(step), clock, slope, list(rest[:K]), counts, positives]


def _whole(number: float) -> int:
    return int(number) if _believable(number) else 0


def _believable(number: float) -> bool:
    return math.isfinite(number) and abs(number) <= LARGEST


def _count(value: Any) -> int:
    """A whole number that counts. Raises ValueError or TypeError for anything else."""
    number = int(value)
    if not 0 <= number <= LARGEST:
        raise ValueError(value)
    return number


def _text(value: Any) -> str:
    """A text of bounded length. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:1000]
