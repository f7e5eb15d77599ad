"""A trace: texts of the target, and at every position of them a draft that was drawn jointly with the text.

An anchor is a position t of a text's output whose token is the newest one: the draft behind it proposes output tokens
t + 1 to t + K. What a policy can do there follows from how many slots follow the text and from the slots' features.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from avlab.errors import not_written
from avlab.replay.about import VERSION, About, TraceError
from avlab.replay.declared import WHOLE, check_columns, described

Taken = TypeVar("Taken")

LARGEST_FILE = 1_000_000_000  # bytes
MOST_TOKENS = 1_000_000  # of a prompt or an output
# first bytes of all numbers, then second bytes: a fifth smaller
SPLIT = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in ("features", "acceptance", "behind")}
PACKING: Any = {
    "compression": "zstd",
    "compression_level": 19,
    "use_dictionary": ["kind"],
    "column_encoding": SPLIT,
}
SETTINGS = ("temperature", "top_p", "top_k")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """T texts with A anchors in all, those of a text side by side, by rising position.

    kind [T]: of the prompt. prompt_tokens, output_tokens [T]. limit [T]: the most output tokens it might have had.
    first [T]: a text's first anchor; it has output_tokens - 1. accepted [A]: slots that follow the text. features
    [A, K, F] float32. acceptance [A, K]: the true chance of a slot given its drafted prefix, sum of min(p, q); nan
    where it was not asked for. behind [A, K, K, F]: row a holds the features of a draft that follows the text for a
    slots and then knows it no more; where the draft follows the text for fewer, any. None where drafts do not depend on
    draws. drafted [A]: how many slots hold a draft, of a drafter that may find fewer than K; None: all do. Where every
    text was drafted for several times, `about.draws`, its copies stand side by side as texts.
    """

    about: About
    kind: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    limit: np.ndarray
    first: np.ndarray
    accepted: np.ndarray
    features: np.ndarray
    acceptance: np.ndarray
    behind: np.ndarray | None = None
    drafted: np.ndarray | None = None

    @property
    def texts(self) -> int:
        return len(self.first)

    @property
    def anchors(self) -> int:
        return len(self.accepted)

    def left(self) -> np.ndarray:
        """Output tokens behind each anchor, [A]."""
        counts = self.output_tokens - 1
        return np.repeat(self.first + counts, counts) - np.arange(self.anchors)

    def slots(self) -> np.ndarray:
        """How many slots of each anchor hold a draft, [A]."""
        return np.full(self.anchors, self.about.K) if self.drafted is None else self.drafted

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Numbers of as many texts as there are, with replacement, each with all its draws: a bootstrap by text."""
        draws = self.about.draws
        written = random.integers(0, self.texts // draws, self.texts // draws)
        return (written[:, None] * draws + np.arange(draws)).ravel()

    def size(self) -> str:
        """How much it holds, in words: "140 texts, 23,903 anchors"."""
        draws = f", each drafted for {self.about.draws:,} times" if self.about.draws > 1 else ""
        return f"{self.texts // self.about.draws:,} texts{draws}, {self.anchors:,} anchors"

    def tokens_per_step(self) -> float:
        """Output tokens of a step that verifies whole drafts, over all anchors."""
        return float(1.0 + self.accepted.mean())

    def typical_length(self) -> int:
        """Tokens that a request holds on average: its prompt, and half of its text."""
        return int(self.prompt_tokens.mean() + self.output_tokens.mean() / 2)


def write_trace(trace: Trace, path: Path) -> None:
    """One new Parquet file: a row an anchor, the description in its metadata. Raises TraceError."""
    if path.exists():
        raise TraceError(f"{path} is there already: give another name.")
    counts = trace.output_tokens - 1
    text = np.repeat(np.arange(trace.texts), counts)
    K, F = trace.about.K, len(trace.about.features)
    columns: dict[str, pa.Array] = {
        "text": pa.array(text.astype(np.int32)),
        "kind": pa.array(trace.kind[text]).dictionary_encode(),
        "prompt_tokens": pa.array(trace.prompt_tokens[text].astype(np.int32)),
        "limit": pa.array(trace.limit[text].astype(np.int32)),
        "position": pa.array((np.arange(trace.anchors) - trace.first[text]).astype(np.int32)),
        "accepted": pa.array(trace.accepted.astype(np.int8)),
        "features": _lists(trace.features.reshape(trace.anchors, K * F)),
        "acceptance": _lists(trace.acceptance),
    }
    if trace.behind is not None:
        own = np.where(trace.behind == trace.features[:, None], np.nan, trace.behind)
        columns["behind"] = _lists(own[:, *_below(K)].reshape(trace.anchors, -1))
    about: dict[str, Any] = {"version": VERSION} | {
        name: getattr(trace.about, name) for name in About.__slots__
    }
    if trace.about.draws == 1:
        del about["draws"]
    table = pa.table(columns).replace_schema_metadata({"avlab": json.dumps(about)})
    part = path.with_name(f"{path.name}.part")  # so that nothing half written has the file's name
    try:
        pq.write_table(table, part, **PACKING)
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TraceError(not_written(path, error)) from None


def read_trace(path: Path) -> Trace:
    """A trace from its file, checked by value and bounded. Raises TraceError."""
    return _read(path, lambda file, about: _checked(path, about, file.read()))


def read_about(path: Path) -> About:
    """What a trace's file says of itself, without its anchors: in a moment. Raises TraceError."""
    return _read(path, lambda file, about: about)


def _read(path: Path, take: Callable[[pq.ParquetFile, About], Taken]) -> Taken:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise TraceError(f"{path} holds more than {LARGEST_FILE:,} bytes: record fewer texts.")
        file = pq.ParquetFile(
            path, thrift_string_size_limit=10_000_000, thrift_container_size_limit=1_000_000
        )
        about = described(path, file.schema_arrow.metadata or {})
        check_columns(path, file, about)
        return take(file, about)
    except OSError as error:
        raise TraceError(f"The trace {path} cannot be read: {error.strerror or error}.") from None
    except (pa.ArrowException, KeyError, TypeError, ValueError, MemoryError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{path} is not a trace, or is damaged ({str(error).splitlines()[0]}).") from None


def _checked(path: Path, about: About, table: pa.Table) -> Trace:
    K, F, A = about.K, len(about.features), table.num_rows
    if holes := [name for name in (*WHOLE, "kind") if table[name].null_count]:
        raise TraceError(f"{path} has holes in the column {holes[0]}.")
    text, position, accepted, prompt, limit = (table[name].to_numpy().astype(np.int64) for name in WHOLE)
    begins = np.flatnonzero(np.diff(text, prepend=-1))
    ends = np.append(begins[1:], A)
    if not (
        (np.diff(text) >= 0).all() and (position == np.arange(A) - np.repeat(begins, ends - begins)).all()
    ):
        raise TraceError(f"{path} has anchors that are missing or out of order.")
    left = np.repeat(ends, ends - begins) - np.arange(A)  # output tokens behind an anchor
    if not ((accepted >= 0) & (accepted <= np.minimum(K, left))).all():
        raise TraceError(f"{path} accepts more draft tokens than the draft or the text has.")
    if not ((prompt > 0) & (prompt <= MOST_TOKENS)).all():
        raise TraceError(f"{path} has a prompt of {prompt.min()} to {prompt.max()} tokens.")
    if not (limit >= np.repeat(ends - begins, ends - begins) + 1).all():
        raise TraceError(f"{path} has texts that are longer than their limit.")
    draws = np.stack([ends - begins, prompt[begins], limit[begins]])
    if len(begins) % about.draws or (draws != np.repeat(draws[:, :: about.draws], about.draws, axis=1)).any():
        raise TraceError(f"{path} says that each text was drafted for {about.draws} times, which is not so.")
    features = _rows(path, table, "features", K * F).reshape(A, K, F)
    acceptance = _rows(path, table, "acceptance", K)
    if (
        np.isinf(features).any()
        or (~np.isnan(acceptance) & ~((acceptance >= 0) & (acceptance <= 1.0001))).any()
    ):
        raise TraceError(f"{path} holds features or chances that cannot be.")
    behind = None
    if "behind" in table.column_names:
        behind, below = np.full((A, K, K, F), np.nan, dtype=np.float32), _below(K)
        own = _rows(path, table, "behind", len(below[0]) * F).reshape(A, -1, F)
        if np.isinf(own).any():
            raise TraceError(f"{path} holds features or chances that cannot be.")
        behind[:, *below] = own
        behind = behind_of(behind, features)
    drafted = drafted_of(about.features, features)
    if drafted is not None and (accepted > drafted).any():
        raise TraceError(f"{path} accepts more draft tokens than were drafted.")
    return Trace(
        about=about,
        kind=np.array(table["kind"].take(begins).to_pylist(), dtype=object),
        prompt_tokens=prompt[begins],
        output_tokens=ends - begins + 1,
        limit=limit[begins],
        first=begins,
        accepted=accepted,
        features=features,
        acceptance=acceptance,
        behind=behind,
        drafted=drafted,
    )


def drafted_of(names: Sequence[str], features: np.ndarray) -> np.ndarray | None:
    """`Trace.drafted` by recorded features [A, K, F]: a drafter that found nothing tells nothing."""
    if "match_length" not in names:
        return None
    return np.isfinite(features[..., list(names).index("match_length")]).sum(axis=1)


def behind_of(recorded: np.ndarray, features: np.ndarray) -> np.ndarray:
    """`Trace.behind` of what was recorded of it, [A, K, K, F]: where nothing was (nan), the draft goes on as the
    anchor's own, whose features [A, K, F] then hold."""
    return np.where(np.isnan(recorded), features[:, None], recorded)


def _below(K: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of what a draft that stops knowing the text after `row` slots has of its own."""
    row, column = np.triu_indices(K, 1)
    return row, column


def _lists(values: np.ndarray) -> pa.Array:
    """Rows [A, N] as half-precision lists: a feature's third digit decides nothing."""
    flat = pa.array(values.astype(np.float16).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _rows(path: Path, table: pa.Table, name: str, width: int) -> np.ndarray:
    column = table[name].combine_chunks()
    if column.type != pa.list_(pa.float16(), width) or column.null_count:
        raise TraceError(
            f"{path}: the column {name} is {column.type}; {width} half-precision numbers a row are due."
        )
    return column.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(column), width)
