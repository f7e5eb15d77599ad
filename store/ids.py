"""Run ids: UUID version 7, so that ids sort by the time the run began."""

import os
import time
import uuid


def new_run_id(wall: float | None = None) -> str:
    """A fresh UUIDv7 as text (RFC 9562: 48 bits of milliseconds, then 74 random bits).

    wall: seconds since the epoch to write into it; default now.
    """
    milliseconds = int((time.time() if wall is None else wall) * 1000) & (1 << 48) - 1
    random = int.from_bytes(os.urandom(10), "big")
    high, low = random >> 68, random & (1 << 62) - 1  # 12 and 62 bits
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def next_run_id(newest: str | None) -> str:
    """As `new_run_id`, behind the newest run that is known, though the clock may have been set back since."""
    wall = time.time()
    return new_run_id(
        wall if newest is None else max(wall, started_at(newest) + 0.0015)
    )  # the next millisecond


def started_at(run: str) -> float:
    """Seconds since the epoch written into a UUIDv7."""
    return (uuid.UUID(run).int >> 80) / 1000.0
