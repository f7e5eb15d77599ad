"""The database's write-ahead log, looked at before DuckDB reads it.

DuckDB takes a log that it cannot read for one whose last write was cut off: it goes on as if the rest had never been,
and writes over it. A write that was cut off at the end is what a crash leaves, and nothing in it was acknowledged.
Anything else is damage, and is said.

The format (DuckDB's `write_ahead_log.cpp`): a description, then entries of size, checksum and bytes, 8 bytes each for
the first two, little-endian.
"""

import os
import struct
import time
from pathlib import Path
from typing import BinaryIO

import numpy as np

from avlab.store.errors import DamagedLog

_LONGEST_DESCRIPTION = 256  # bytes; some 40 in DuckDB 2.0
_ENTRY = struct.Struct("<QQ")
_MASK = (1 << 64) - 1
_CHUNK = 1 << 20
_LARGEST_ENTRY = 1 << 31


def path_of(database: Path) -> Path:
    """Where the log of a database file stands."""
    return database.with_name(f"{database.name}.wal")


def damage(log: Path) -> int | None:
    """The byte at which a log is damaged; None for one that is whole, or ends in a write that was cut off.

    log: may be missing. DuckDB keeps it below 16 MB or so.
    """
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            head = file.read(_LONGEST_DESCRIPTION + _ENTRY.size)
            if size <= _ENTRY.size:
                return None
            at = _first_entry(head)
            if at is None:
                return 0 if size > _LONGEST_DESCRIPTION else None
            while (end := _end_of_entry(file, at, size)) is not None:
                at = end
            return at if at < size and _goes_on(file, at, size) else None
    except OSError:
        return None  # opening it will tell


def set_aside(log: Path, at: int) -> str:
    """Keep a damaged log under another name, whole; the sentence that says so. Raises DamagedLog.

    at: where it is damaged. What stands before that is still replayed; a log that is damaged at its head is moved away.
    """
    kept = log.with_name(f"{log.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        os.link(log, kept)
        log.unlink()
        if at:
            with kept.open("rb") as whole, log.open("xb") as good:
                good.write(whole.read(at))
                good.flush()
                os.fsync(good.fileno())
    except OSError as error:
        raise DamagedLog(
            f"{log} is damaged at byte {at:,} and cannot be set aside as {kept.name} ({error.strerror}): move it away."
        ) from None
    before = f"What was written before byte {at:,} of it is here; " if at else "Nothing of it could be read; "
    return f"{log} is damaged and was set aside as {kept}. {before}later rows of the runs are missing."


def refuse(log: Path, at: int) -> None:
    """For readers, who change nothing. Raises DamagedLog."""
    raise DamagedLog(unread(log, at))


def unread(log: Path, at: int = 0) -> str:
    """The sentence for readers."""
    return (
        f"{log} is damaged at byte {at:,}: rows behind that cannot be read, and runs may be missing. Start "
        "`avlab serve` or a run on this database: it sets the file aside, and reads what is left."
    )


def is_cause(error: Exception) -> bool:
    """Whether DuckDB could not open a database because its log is damaged, or is another database's."""
    text = str(error)
    elsewhere = ("No space left", "Out of Memory", "Permission denied", "Read-only file system")
    return "replaying WAL" in text and not any(word in text for word in elsewhere)


def _first_entry(head: bytes) -> int | None:
    """Where the description of a log ends; None for what is none.

    Its fields: 100 the kind (98), 101 the version, 102 the database's 16 numbers, 103 the checkpoint's number.
    """
    at = 0
    for number in (100, 101, 102, 103):
        if head[at : at + 2] != number.to_bytes(2, "little"):
            return None
        at += 2
        for _ in range(17 if number == 102 else 1):  # a list begins with its length
            while at < len(head) and head[at] & 0x80:  # numbers in 7 bits a byte
                at += 1
            at += 1
    return at + 2 if head[at : at + 2] == b"\xff\xff" else None


def _end_of_entry(file: BinaryIO, at: int, size: int) -> int | None:
    """Where the entry at a byte ends; None where no whole one stands there."""
    file.seek(at)
    head = file.read(_ENTRY.size)
    if len(head) < _ENTRY.size:
        return None
    length, checksum = _ENTRY.unpack(head)
    if not 0 < length <= min(size - at - _ENTRY.size, _LARGEST_ENTRY):
        return None
    found, left = 5381, length
    while left:
        part = file.read(min(left, _CHUNK))
        if not part:
            return None
        found ^= _words(part)
        left -= len(part)
    return at + _ENTRY.size + length if found == checksum else None


def _goes_on(file: BinaryIO, at: int, size: int) -> bool:
    """Whether whole entries follow behind one that is none: then the end was not cut off, but the middle is damaged."""
    file.seek(at)
    head = file.read(_ENTRY.size)
    if len(head) < _ENTRY.size:
        return False
    length = _ENTRY.unpack(head)[0]
    beyond = at + _ENTRY.size + length
    if length and beyond < size and _end_of_entry(file, beyond, size) is not None:
        return True
    file.seek(at)
    rest = file.read(_CHUNK)  # its size is what is damaged: look for any whole entry soon after
    places = (place for place in range(1, min(len(rest) - _ENTRY.size, 1 << 16)))
    return any(
        0 < _ENTRY.unpack_from(rest, place)[0] < len(rest)
        and _end_of_entry(file, at + place, size) is not None
        for place in places
    )


def _words(part: bytes) -> int:
    """DuckDB's checksum of bytes, but for its start."""
    whole = len(part) // 8
    words = np.frombuffer(part, dtype="<u8", count=whole)
    found = int(np.bitwise_xor.reduce(words * np.uint64(0xBF58476D1CE4E5B9), initial=np.uint64(0)))
    return found ^ _remainder(part[whole * 8 :]) if len(part) % 8 else found


def _remainder(part: bytes) -> int:
    """Of the last bytes, fewer than 8: MurmurHash64A."""
    product = 0xC6A4A7935BD1E995
    found = (0xE17A1465 ^ (len(part) * product)) & _MASK
    found = (found ^ int.from_bytes(part, "little")) * product & _MASK
    found = (found ^ (found >> 47)) * product & _MASK
    return found ^ (found >> 47)
