"""A sweep's rows as a file: CSV or Parquet, by its name; and its ratios as Markdown."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from avlab.errors import not_written
from avlab.experiments.replay_intervals import Ratio
from avlab.experiments.replay_sweep import Number
from avlab.files import write_new

FORMS = (".csv", ".parquet")


class TableFileError(ValueError):
    """A file that a table cannot be written to. The message is one sentence."""


def checked(path: Path) -> Path:
    """The file, if a sweep can be written to it. Raises TableFileError."""
    path = path.expanduser()
    if path.suffix not in FORMS:
        raise TableFileError(f"{path} is to hold a table: give a name that ends in {' or '.join(FORMS)}.")
    if path.exists():
        raise TableFileError(f"{path} is there already: give another name.")
    return path


def write_table(rows: Sequence[Mapping[str, Number]], path: Path) -> None:
    """One new file. Raises TableFileError, or what `write_new` does."""
    path = checked(path)
    if path.suffix == ".csv":
        write_new(path, lambda: _csv(rows))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = path.with_name(f"{path.name}.part")  # so that nothing half written has the file's name
    try:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), part)
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TableFileError(not_written(path, error)) from None


def markdown(compared: Sequence[Ratio]) -> str:
    """Arms over the best fixed length of each load, as the documentation shows them: bold where the interval is above
    1, with half its width in percent."""
    over = {each.load: each.over for each in compared}
    lines = [
        "| requests | " + " | ".join(map(str, over)) + " |",
        "| --- |" + " --- |" * len(over),
        "| best fixed length | " + " | ".join(arm.removeprefix("fixed:") for arm in over.values()) + " |",
    ]
    for arm in dict.fromkeys(each.arm for each in compared):
        mine = {each.load: each for each in compared if each.arm == arm}
        lines.append(f"| `{arm}` | " + " | ".join(_shown(mine[load]) for load in over) + " |")
    return "\n".join(lines) + "\n"


def _shown(each: Ratio) -> str:
    if each.low is None or each.high is None:
        return f"{each.ratio:.3f}"
    middle = f"**{each.ratio:.3f}**" if each.low > 1 else f"{each.ratio:.3f}"
    return f"{middle} ± {50 * (each.high - each.low):.1f} %"


def _csv(rows: Sequence[Mapping[str, Number]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
