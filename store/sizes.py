"""How many bytes of what comes from outside are taken: the README promises 4 GB, whatever is imported or asked.

A file's own size says little. A Parquet file of a megabyte may hold a thousand million equal numbers, or one long text
for every row; so what is counted is what its columns become in memory.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from avlab.store.errors import TransferError

MOST_UNPACKED = 1 << 30  # bytes of an archive's files together
MOST_MEMORY = 1 << 30  # bytes that the tables of a run may take while it is imported
MOST_CSV = 512 << 20  # bytes of one CSV file
BATCH_ROWS = 16_384


def in_words(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / (1 << 30):.3g} GB" if size >= 1 << 30 else f"{size / (1 << 20):.3g} MB"


class Budget:
    """What is left of the memory for one import."""

    def __init__(self) -> None:
        self.left = MOST_MEMORY

    def could_take(self, size: int, path: Path) -> None:
        """Raises TransferError as `take` does, and takes nothing: for what is a bound, far above what will be."""
        self.take(size, path)
        self.left += size

    def take(self, size: int, path: Path) -> None:
        """Raises TransferError where the tables so far and this one would be too much."""
        self.left -= size
        if self.left < 0:
            raise TransferError(
                f"{path} would take the run beyond {in_words(MOST_MEMORY)} of memory: it is too large to be imported. "
                "Give its database with --database instead."
            )


def read_parquet(path: Path, schema: pa.Schema, budget: Budget) -> pa.Table:
    """A file with exactly these columns, as these types. Raises TransferError, and pyarrow's errors.

    Text is read as the few different texts that a column's pages hold, and made whole only once its length is known.
    """
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        if file.schema_arrow.names != schema.names:
            raise TransferError(f"{path} has other columns than an export: it was not written by avlab.")
        budget.take(_numbers(file.metadata), path)
        for field in schema:
            if pa.types.is_list(field.type) and pa.types.is_string(field.type.value_type):
                budget.could_take(_most_text(file.metadata, field.name), path)
        batches = list(_batches(file, schema, texts, budget, path))
    return pa.Table.from_batches(batches, schema=schema)


def check_csv(path: Path, budget: Budget) -> None:
    """Raises TransferError for a CSV file that is too large."""
    size = path.stat().st_size
    if size > MOST_CSV:
        raise TransferError(f"{path} has more than {in_words(MOST_CSV)}: export the run as parquet.")
    budget.take(size, path)


def _numbers(metadata: pq.FileMetaData) -> int:
    """The bytes of a file's values, 8 for each, whatever they are packed into; lists count by their entries."""
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    return sum(8 * group.column(number).num_values for group in groups for number in range(group.num_columns))


def _most_text(metadata: pq.FileMetaData, name: str) -> int:
    """The bytes that a column of lists of texts could become at most: each entry may be the longest text there is."""
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    mine = (column for column in columns if column.path_in_schema.partition(".")[0] == name)
    return sum(column.num_values * column.total_uncompressed_size for column in mine)


def _batches(
    file: pq.ParquetFile, schema: pa.Schema, texts: list[str], budget: Budget, path: Path
) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(BATCH_ROWS):
        for name in texts:
            column = batch.column(name)
            if pa.types.is_dictionary(column.type):
                lengths = pc.binary_length(column.dictionary).take(column.indices)
                budget.take(pc.sum(lengths).as_py() or 0, path)
        yield batch.cast(schema)
