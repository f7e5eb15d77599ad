"""Traces by name: those that ship, and the reader's own beside the lab's database; one Parquet file each."""

import hashlib
import re
import shutil
from functools import lru_cache
from pathlib import Path

from avlab.errors import not_written
from avlab.installation import data_folder
from avlab.replay.about import About, TraceError
from avlab.replay.trace import Trace, read_about, read_trace

DEFAULT_TRACE = "reasoning"  # the sampling that most reasoning models recommend
FOLDER = Path(__file__).parent / "recorded"
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,59}")


def own_folder() -> Path:
    """Where a reader's own traces are."""
    return data_folder() / "traces"


def shipped() -> list[str]:
    """The names of the traces that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.parquet"))


def known() -> list[str]:
    """The names of the traces that ship, and of the reader's own behind them."""
    ours = shipped()
    return ours + sorted({path.stem for path in own_folder().glob("*.parquet")} - set(ours))


def trace_named(name: str) -> Trace:
    """A trace that ships, one of the reader's own, or the one in a file. Raises TraceError."""
    path = path_of(name)
    return _trace(path, _changed(path))


def about_named(name: str) -> About:
    """What a trace says of itself; reads no anchors. Raises TraceError."""
    path = path_of(name)
    return _about(path, _changed(path))


def path_of(name: str) -> Path:
    """The file of a trace that ships or is the reader's own, by its name; or the path of one. Raises TraceError."""
    if name in shipped():
        return FOLDER / f"{name}.parquet"
    if name in known():
        return own_folder() / f"{name}.parquet"
    path = Path(name).expanduser()
    if path.suffix != ".parquet":
        raise TraceError(
            f"There is no trace {name!r}; known are {', '.join(known())}, or the path of a Parquet file."
        )
    return path


def new_path(name: str) -> Path:
    """Where a new trace of the reader's own goes; its folder is there. Raises TraceError for a name that cannot be."""
    if not NAME.fullmatch(name):
        raise TraceError(f"{name[:70]!r} is no name of a trace: use small letters, digits, dots and dashes.")
    if name in shipped():
        raise TraceError(f"The trace {name} ships with avlab: give another name.")
    path = own_folder() / f"{name}.parquet"
    if path.exists():
        raise TraceError(f"There is a trace {name} already: give another name, or remove {path}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(not_written(path, error)) from None
    return path


def keep(file: Path, name: str) -> Trace:
    """Put a trace's file among the reader's own, once all of it is checked. Raises TraceError."""
    path = new_path(name)
    found = read_trace(file)
    copy(file, path)
    return found


def copy(file: Path, path: Path) -> None:
    """A new file with the bytes of a trace. Raises TraceError."""
    if path.exists():
        raise TraceError(f"{path} is there already: give another name.")
    part = path.with_name(f"{path.name}.part")  # so that nothing half written has the file's name
    try:
        shutil.copyfile(file, part)
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TraceError(not_written(path, error)) from None


def content_hash(name: str) -> str:
    """SHA-256 of a trace's file: which recording a replay has served. Raises TraceError."""
    path = path_of(name)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"The trace {path} cannot be read: {error.strerror or error}.") from None


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


@lru_cache(maxsize=4)
def _trace(path: Path, changed: int) -> Trace:
    """changed: when the file was, so that a new one is read."""
    return read_trace(path)


@lru_cache(maxsize=16)
def _about(path: Path, changed: int) -> About:
    return read_about(path)
