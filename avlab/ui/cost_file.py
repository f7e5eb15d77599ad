"""The cost table of another machine, from a CSV that a reader brings."""

import csv
import io

from avlab.speculation.costs import MOST_MS, CostTable

MOST_ROWS = 100_000
LARGEST = 65_536  # tokens or requests; more than any step holds
DEEPEST = 32  # as K may be


class CostFileError(ValueError):
    """A CSV that holds no cost table. The message is one sentence."""


def read_costs(data: bytes) -> CostTable:
    """Cost tables from a CSV with the columns phase, size and ms, and depth where drafts of several were timed.

    Several rows of one size (and depth) count as samples of it. Raises CostFileError.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error):
        raise CostFileError("The file is not a CSV in UTF-8: save it as one.") from None
    if not rows or not {"phase", "size", "ms"} <= set(rows[0]):
        raise CostFileError("The CSV needs a first line with the columns phase, size and ms.")
    samples: dict[str, list[tuple[int, int, float]]] = {"draft": [], "verify": []}  # (size, depth or 0, ms)
    for number, row in enumerate(rows[:MOST_ROWS], start=2):
        phase = (row["phase"] or "").strip()
        try:
            size, ms = int(row["size"]), float(row["ms"])
            depth = int(row.get("depth") or 0) if phase == "draft" else 0
        except (TypeError, ValueError):
            raise CostFileError(
                f"Line {number} needs a whole size, a number of ms, and a whole depth if any."
            ) from None
        if (
            phase not in samples
            or not 0 <= size <= LARGEST
            or not 0 < ms <= MOST_MS
            or not 0 <= depth <= DEEPEST
        ):
            raise CostFileError(
                f"Line {number} says {phase!r}, {size}, {ms:g}: give draft or verify, a size up to {LARGEST}, and ms "
                f"above 0, at most {MOST_MS:,.0f}."
            )
        samples[phase].append((size, depth, ms))
    missing = [phase for phase, found in samples.items() if not found]
    if missing:
        raise CostFileError(f"The CSV has no rows of phase {missing[0]!r}: both draft and verify are needed.")
    largest = {phase: max(size for size, _, _ in found) for phase, found in samples.items()}
    draft, verify = samples["draft"], [(size, ms) for size, _, ms in samples["verify"]]
    depths = {depth for _, depth, _ in draft}
    if 0 in depths and len(depths) > 1:
        raise CostFileError(
            "Some draft rows of the CSV have a depth and some have none: give all or none of them one."
        )
    K = max(depths) or None
    return CostTable.linear(
        draft if K else [(size, ms) for size, _, ms in draft],
        verify,
        max(largest["draft"], 4096),
        max(largest["verify"], 8192),
        K,
    )
