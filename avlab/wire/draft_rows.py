"""Raw draft slots on their way: one Arrow record batch, whose schema is that of the table `drafts`.

This is the one place where the columns are declared. pyarrow is imported where a batch is made or read, not before: a
worker that records no slots may lack it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

# of the table but for its `run`, in the words of DuckDB
COLUMNS: dict[str, str] = {
    "block": "INTEGER",
    "step": "BIGINT",
    "request": "INTEGER",
    "position": "TINYINT",
    "features": "FLOAT[]",  # by the names in `runs.features`; null where the drafter cannot tell
    "estimate": "FLOAT",  # null where nothing predicted
    "survival": "FLOAT",
    "admitted": "BOOLEAN",
    "label": "BOOLEAN",  # null where censored
}


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Columns in the words of DuckDB as an Arrow schema; a UUID is text."""
    import pyarrow as pa

    kinds = {
        "UUID": pa.string(),
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
    }

    def arrow(kind: str) -> pa.DataType:
        return pa.list_(kinds[kind[:-2]]) if kind.endswith("[]") else kinds[kind]

    return pa.schema([(name, arrow(kind)) for name, kind in columns.items()])


@functools.cache
def schema() -> pa.Schema:
    """That of every batch."""
    return arrow_schema(COLUMNS)


def prepare() -> None:
    """Import all that packing needs now: pyarrow, and pandas, which pyarrow imports with its first array (0.2 s)."""
    pack({name: np.zeros((0, 1) if name == "features" else 0) for name in COLUMNS})


def pack(columns: Mapping[str, np.ndarray]) -> bytes:
    """The columns of N slots, [N] each and `features` [N, F], as an IPC stream of one record batch.

    nan is null. label: 1 accepted, 0 rejected, -1 censored, which is null.
    """
    import pyarrow as pa

    features, label = columns["features"], columns["label"]
    offsets = np.arange(len(features) + 1, dtype=np.int32) * features.shape[1]
    flat = pa.array(np.ascontiguousarray(features, dtype=np.float32).ravel(), from_pandas=True)
    made = {
        "features": pa.ListArray.from_arrays(pa.array(offsets), flat),
        "admitted": pa.array(columns["admitted"].astype(bool)),
        "label": pa.array(label == 1, mask=label < 0),
    }
    for field in schema():
        if field.name not in made:
            kind = field.type.to_pandas_dtype()
            made[field.name] = pa.array(columns[field.name].astype(kind), field.type, from_pandas=True)
    batch = pa.record_batch([made[name] for name in schema().names], schema=schema())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema(), options=pa.ipc.IpcWriteOptions(use_threads=False)) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def unpack(data: bytes, rows: int) -> pa.Table:
    """The slots of an IPC stream of exactly `rows` rows. Raises ValueError for anything that `pack` does not make."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        with pa.ipc.open_stream(data) as stream:
            if not stream.schema.equals(schema()):
                raise ValueError(f"its columns are not those of drafts: {', '.join(stream.schema.names)}")
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"its slots are no Arrow stream ({error})") from None
    if table.num_rows != rows:
        raise ValueError(f"it holds {table.num_rows} slots and says {rows}")
    sizes = pc.list_value_length(table["features"]).unique().to_pylist()
    if len(sizes) > 1 or None in sizes:
        raise ValueError(f"its slots have {' and '.join(map(str, sizes))} features each")
    return table
