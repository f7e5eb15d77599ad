"""The traces that ship, by name, one Parquet file each; and traces of a reader's own, by path."""

from functools import lru_cache
from pathlib import Path

from avlab.replay.about import About, TraceError
from avlab.replay.trace import Trace, read_about, read_trace

DEFAULT_TRACE = "reasoning"  # the sampling that most reasoning models recommend
FOLDER = Path(__file__).parent / "recorded"


def known() -> list[str]:
    """The names of the traces that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.parquet"))


@lru_cache(maxsize=4)
def trace_named(name: str) -> Trace:
    """A shipped trace, or the one in a file. Raises TraceError."""
    return read_trace(_path(name))


@lru_cache(maxsize=16)
def about_named(name: str) -> About:
    """What a trace says of itself; reads no anchors. Raises TraceError."""
    return read_about(_path(name))


def _path(name: str) -> Path:
    if name in known():
        return FOLDER / f"{name}.parquet"
    path = Path(name).expanduser()
    if path.suffix != ".parquet":
        raise TraceError(
            f"There is no trace {name!r}; known are {', '.join(known())}, or the path of a Parquet file."
        )
    return path
