"""What a run recorded of itself in JSON, read so that no stored value can break what is made of it.

An import is checked (`ranges`); a file that somebody gives with --database was written by whoever wrote it.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from avlab.store.ranges import MOST_K

# Settings that something is made of, not only shown. One of another type or size counts as not recorded.
NUMBERS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 1e6),
    "top_k": (0, 2**53),
    "top_p": (0.0, 1.0),
    "interval": (0.0, 1e9),
    "seed": (0, 2**63),
    "K": (0, MOST_K),
    "max_num_seqs": (0, 2**53),
}
TEXTS = ("workload", "arrival", "policy", "url", "target", "drafter")


def settings(text: str | None) -> dict[str, Any]:
    """A run's configuration."""
    found = _object(text)
    return {name: value for name, value in found.items() if _may_be(name, value)}


def machine(text: str | None) -> dict[str, Any]:
    """What a run recorded of its machine; its `unread` is a list of words, and `versions` name to text."""
    found = _object(text)
    unread, versions = found.get("unread"), found.get("versions")
    if unread is not None:
        found["unread"] = (
            [word for word in unread if isinstance(word, str)] if isinstance(unread, list) else []
        )
    if versions is not None:
        found["versions"] = versions if isinstance(versions, dict) else {}
    return found


def labels(text: str | None) -> list[str]:
    """The labels of an experiment's arms."""
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return [label for label in found if isinstance(label, str)] if isinstance(found, list) else []


def draft_positions(K: object) -> int:
    """A recorded K; 0 for one that cannot be."""
    return K if isinstance(K, int) and 0 <= K <= MOST_K else 0


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _may_be(name: str, value: Any) -> bool:
    if name in TEXTS:
        return value is None or isinstance(value, str)
    if name in NUMBERS and value is not None:
        least, most = NUMBERS[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and least <= value <= most and math.isfinite(value)
    return True
