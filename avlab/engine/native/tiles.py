"""Whether bfloat16 products use the processor's matrix tiles (AMX): only where they prove right and faster here.

The first start on a processor with tiles compares them with the plain products on random data and times both, in a
process of its own, so that even a crash costs nothing but the tiles. The verdict is kept beside the library, whose name
holds source, compiler and processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

SECONDS = 120.0  # that a verdict may take


@dataclass(frozen=True, slots=True)
class Tiles:
    """least_rows: products of so many rows and more use tiles; None where none do. note: why not, if there are any."""

    least_rows: int | None
    note: str = ""


def verdict_of(path: str) -> Tiles:
    """The verdict on the tiles of this processor, made where there is none yet. path: of the library."""
    kept = Path(path).with_suffix(".tiles.json")
    try:
        return _read(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        verdict = asked([sys.executable, "-m", "avlab.engine.native.judging", path])
    try:
        made = kept.with_suffix(f".{os.getpid()}")
        made.write_text(json.dumps(asdict(verdict)), encoding="utf-8")
        made.replace(kept)
    except OSError:
        pass  # the next start asks again
    return verdict


def asked(command: list[str]) -> Tiles:
    """The verdict that a process prints; where it fails, that tiles do not serve, and why."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return Tiles(None, f"AMX products had not been compared after {SECONDS:.0f} s")
    except OSError as error:
        return Tiles(None, f"AMX products could not be compared: {error.strerror}")
    if done.returncode:
        return Tiles(None, f"AMX products ended with code {done.returncode}")
    try:
        return _read(done.stdout)
    except ValueError:
        return Tiles(None, "AMX products were compared without a verdict")


def _read(text: str) -> Tiles:
    """A verdict as it was written. Raises ValueError for anything else."""
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise ValueError("a verdict is an object")
    least, note = plain.get("least_rows"), plain.get("note")
    if not (least is None or (type(least) is int and least > 0)) or not isinstance(note, str):
        raise ValueError("a verdict holds a number of rows, or none, and a note")
    return Tiles(least, note)
