"""The cost table of another machine, from a CSV that a reader brings."""

import csv
import io

import numpy as np

from avlab.speculation.costs import linear_table

MOST_ROWS = 100_000
LARGEST = 65_536  # tokens or requests; more than any step holds


class CostFileError(ValueError):
    """A CSV that holds no cost table. The message is one sentence."""


def read_costs(data: bytes) -> dict[str, np.ndarray]:
    """Tables "draft" and "verify" (ms by size from 0) from a CSV with the columns phase, size and ms.

    Several rows of one size count as samples of it. Raises CostFileError.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error):
        raise CostFileError("The file is not a CSV in UTF-8: save it as one.") from None
    if not rows or not {"phase", "size", "ms"} <= set(rows[0]):
        raise CostFileError("The CSV needs a first line with the columns phase, size and ms.")
    samples: dict[str, list[tuple[float, float]]] = {"draft": [], "verify": []}
    for number, row in enumerate(rows[:MOST_ROWS], start=2):
        phase = (row["phase"] or "").strip()
        try:
            size, ms = int(row["size"]), float(row["ms"])
        except (TypeError, ValueError):
            raise CostFileError(f"Line {number} needs a whole size and a number of ms.") from None
        if phase not in samples or not 0 <= size <= LARGEST or not 0 < ms < float("inf"):
            raise CostFileError(
                f"Line {number} says {phase!r}, {size}, {ms:g}: give draft or verify, a size up to {LARGEST}, and ms "
                "above 0."
            )
        samples[phase].append((size, ms))
    missing = [phase for phase, found in samples.items() if not found]
    if missing:
        raise CostFileError(f"The CSV has no rows of phase {missing[0]!r}: both draft and verify are needed.")
    largest = {phase: max(int(size) for size, _ in found) for phase, found in samples.items()}
    return {
        "draft": linear_table(samples["draft"], max(largest["draft"], 4096)),
        "verify": linear_table(samples["verify"], max(largest["verify"], 8192)),
    }
