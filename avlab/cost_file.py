"""Cost files: timed samples as JSON, which `--costs` reads and `avlab costs` writes. No torch here.

{"draft": [[requests, depth, ms], ...], "verify": [[tokens, ms], ...]}
"""

import json
from collections.abc import Sequence
from pathlib import Path

from avlab.speculation.costs import MOST_MS

Draft = list[tuple[int, int, float]]  # requests, depth, ms
Verify = list[tuple[int, float]]  # tokens, ms
LARGEST_FILE = 16 << 20  # bytes; one of ours has some thousands
LARGEST = 1_000_000  # tokens, requests or depth: more than any step holds


class CostError(ValueError):
    """A cost file that cannot be used. The message says why."""


def text_of(draft: Sequence, verify: Sequence) -> str:
    """The text of a cost file."""
    return json.dumps({"draft": draft, "verify": verify}, indent=1) + "\n"


def read_samples(path: Path) -> tuple[Draft, Verify]:
    """The samples in a cost file. Raises CostError."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"it has more than {LARGEST_FILE >> 20} MB")
        plain = json.loads(path.read_text(encoding="utf-8"))
        draft = [(int(r), int(d), float(ms)) for r, d, ms in plain["draft"]]
        verify = [(int(t), float(ms)) for t, ms in plain["verify"]]
        if not verify:
            raise ValueError("it has no sample of verification")
        for *sizes, ms in draft + verify:
            if not all(0 <= size <= LARGEST for size in sizes):
                raise ValueError(f"a size is {max(sizes, key=abs)}, not 0 to {LARGEST:,}")
            free = len(sizes) == 2 and ms == 0  # a draft may cost nothing
            if not (free or 0 < ms <= MOST_MS):
                raise ValueError(f"a cost is {ms:g} ms, not above 0 and at most {MOST_MS:,.0f}")
        return draft, verify
    except OSError as error:
        raise CostError(f"The cost file {path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CostError(
            f"{path} is not a cost file ({error}): it holds a JSON object with 'draft', a list of "
            "[requests, depth, ms], and 'verify', a list of [tokens, ms], as `avlab costs` writes it."
        ) from None
