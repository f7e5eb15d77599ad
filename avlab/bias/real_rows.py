"""Rows of the real target and drafter at some prompts, recorded once: what a page shows without a worker.

`python -m avlab.bias.audit.record_rows` records them again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("real_rows.json")
SHOWN = 7  # tokens by name; the others are taken together
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Rows:
    """Target and first draft row at a prompt, [8] each: the tokens that matter most, and all others as one."""

    names: list[str]
    target: np.ndarray
    draft: np.ndarray

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "Rows":
        """From names, target and draft as plain lists; rounded, so scaled to one again."""
        target, draft = (np.array(recorded[row]) / sum(recorded[row]) for row in ("target", "draft"))
        return cls(list(recorded["names"]), target, draft)


@cache
def recorded() -> dict[str, Rows]:
    """Rows by prompt."""
    return {each["prompt"]: Rows.of(each) for each in json.loads(FILE.read_text(encoding="utf-8"))}


def shortened(target: np.ndarray, draft: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Whole rows [V] to the ids of the SHOWN tokens with most mass in both, and rows [SHOWN + 1] with the rest last."""
    ids = np.argsort(-(target + draft), kind="stable")[:SHOWN]
    rows = [np.append(row[ids], max(0.0, 1.0 - row[ids].sum())) for row in (target, draft)]
    return ids.tolist(), rows[0] / rows[0].sum(), rows[1] / rows[1].sum()
