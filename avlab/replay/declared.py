"""What a trace's file declares, checked before its anchors are read: a file does not decide how much memory it uses."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from avlab.replay.about import ORIGINS, VERSION, About, TraceError

MOST_ANCHORS = 20_000_000
MOST_MEMORY = 4_000_000_000  # bytes of the arrays that a trace becomes
MOST_DESCRIPTION = 100_000  # bytes of the metadata
MOST_OF_A_KIND = 64  # bytes that the name of an anchor's kind may take, on average, before it is compressed
MOST_K, MOST_FEATURES, MOST_DRAWS = 64, 64, 1000
SPARE = 1_000_000  # bytes that any column may take beside its values: pages and dictionaries

WHOLE = ("text", "position", "accepted", "prompt_tokens", "limit")
LONGEST_NAME = 200


def described(path: object, metadata: Mapping[bytes, bytes]) -> About:
    """What the file says of itself. Raises TraceError."""
    told = metadata.get(b"avlab")
    if told is None:
        raise TraceError(
            f"{path} is not a trace: its metadata has no key avlab (docs/replay.md has the schema)."
        )
    if len(told) > MOST_DESCRIPTION:
        raise TraceError(
            f"{path} describes itself in {len(told):,} bytes; at most {MOST_DESCRIPTION:,} are read."
        )
    try:
        plain: Any = _json(told)
    except ValueError:
        raise TraceError(
            f"{path} describes itself in something else than JSON: it is damaged, or no trace."
        ) from None
    if not isinstance(plain, dict) or "version" not in plain:
        raise TraceError(f"{path} does not say its version: it is damaged, or no trace.")
    if plain.pop("version") != VERSION:
        raise TraceError(f"{path} is a trace of another version: record it again.")
    if missing := [
        name for name in About.__slots__ if name not in plain and name not in ("origin", "note", "draws")
    ]:
        raise TraceError(f"{path} does not say its {missing[0]}: it is damaged, or no trace.")
    for name, value in plain.items():
        if name not in About.__slots__ or not _may_be(name, value):
            raise TraceError(f"{path} describes {str(name)[:40]!r} as {str(value)[:40]!r}, which cannot be.")
    return About(**{**plain, "features": tuple(plain["features"])})


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _may_be(name: str, value: Any) -> bool:
    """Whether a field of a description has a value that it may have."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = (whole or isinstance(value, float)) and math.isfinite(value)
    if name == "features":
        return (
            isinstance(value, list)
            and 0 < len(value) <= MOST_FEATURES
            and all(
                isinstance(each, str) and each.isidentifier() and len(each) <= LONGEST_NAME for each in value
            )
            and len(set(value)) == len(value)
        )
    if name in ("target", "drafter", "origin", "note"):
        named = isinstance(value, str) and len(value) <= LONGEST_NAME and (value.isprintable() or not value)
        return named and (name != "origin" or value in ORIGINS)
    if name == "K":
        return whole and 0 < value <= MOST_K
    if name == "draws":
        return whole and 0 < value <= MOST_DRAWS
    if name in ("seed", "top_k"):
        return whole and 0 <= value < 2**63
    return bool(number and (0 < value <= 1 if name == "top_p" else 0 <= value <= 10))


def check_columns(path: object, file: pq.ParquetFile, about: About) -> None:
    """Columns, their types, and the bytes that they and the trace would take. Raises TraceError."""
    K, F, rows = about.K, len(about.features), file.metadata.num_rows
    if not 0 < rows <= MOST_ANCHORS:
        raise TraceError(f"{path} holds {rows:,} anchors; a trace has 1 to {MOST_ANCHORS:,}.")
    widths = {"features": K * F, "acceptance": K, "behind": K * (K - 1) // 2 * F}
    names = file.schema_arrow.names
    if twice := [name for name in names if names.count(name) > 1]:
        raise TraceError(f"{path} has the column {str(twice[0])[:40]!r} twice.")
    if missing := [name for name in (*WHOLE, "kind", "features", "acceptance") if name not in names]:
        raise TraceError(f"{path} lacks the column {missing[0]}.")
    if strange := [name for name in names if name not in (*WHOLE, "kind", *widths)]:
        raise TraceError(f"{path} has a column {str(strange[0])[:40]!r}, which no trace has.")
    for field in file.schema_arrow:
        kind = field.type
        if field.name in WHOLE and not pa.types.is_integer(kind):
            raise TraceError(f"{path}: the column {field.name} is {_shown(kind)}; whole numbers are due.")
        if field.name == "kind" and not _is_text(kind):
            raise TraceError(f"{path}: the column kind is {_shown(kind)}; text is due.")
        if field.name in widths and kind != pa.list_(pa.float16(), widths[field.name]):
            raise TraceError(
                f"{path}: the column {field.name} is {_shown(kind)}; {widths[field.name]} half-precision numbers a row "
                f"are due: K is {K} in all of a trace."
            )
    memory = rows * 4 * (K * F + K + (K * K * F if "behind" in names else 0))
    if memory > MOST_MEMORY:
        raise TraceError(
            f"{path} would take {memory / 1e9:,.0f} GB of memory; {MOST_MEMORY / 1e9:g} GB are allowed: record fewer "
            "texts."
        )
    due = dict.fromkeys(WHOLE, 8 * rows) | {"kind": MOST_OF_A_KIND * rows}
    due |= {name: 8 * width * rows for name, width in widths.items()}  # the numbers, and their levels
    taken: dict[str, int] = {}
    for group in range(file.metadata.num_row_groups):
        part = file.metadata.row_group(group)
        for i in range(part.num_columns):
            column = part.column(i)
            name = column.path_in_schema.partition(".")[0]
            taken[name] = taken.get(name, 0) + column.total_uncompressed_size
    for name, size in taken.items():
        if size > due[name] + SPARE:
            raise TraceError(f"{path}: the column {name} would unfold to {size:,} bytes: that is no trace.")


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(value) or pa.types.is_large_string(value)


def _shown(kind: pa.DataType) -> str:
    """A type in words, however long its own are."""
    return str(kind).replace("\n", " ")[:80]
