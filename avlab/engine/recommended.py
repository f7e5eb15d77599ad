"""The sampling that a checkpoint recommends, in its generation_config.json. No torch here."""

import json
import math
from pathlib import Path
from typing import Any

from avlab.engine.fetch import DEFAULT_TARGET
from avlab.speculation.sampling import MODELS_OWN, USUAL, Sampling

LARGEST_FILE = 1_000_000  # bytes
KEYS = Sampling._fields


def recommended(model: str) -> Sampling:
    """What the checkpoint in a folder recommends; `USUAL` for the shipped target, for a model that is no folder of this
    machine, and where the checkpoint says nothing.

    As vLLM does, a checkpoint that names one of the three leaves the others neutral. A value that cannot be is passed
    over: the file speaks of other things too, and loading the checkpoint says what is wrong with it.
    """
    if model == DEFAULT_TARGET:
        return USUAL
    said = {name: value for name, value in _read(Path(model).expanduser()).items() if _can_be(name, value)}
    if not said:
        return USUAL
    return Sampling(
        temperature=float(said.get("temperature", MODELS_OWN.temperature)),
        top_k=int(said.get("top_k", MODELS_OWN.top_k)),
        top_p=float(said.get("top_p", MODELS_OWN.top_p)),
    )


def _read(folder: Path) -> dict[str, Any]:
    """The generation configuration of a folder, {} where there is none that can be read."""
    path = folder / "generation_config.json"
    try:
        if path.stat().st_size > LARGEST_FILE:
            return {}
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _can_be(name: str, value: Any) -> bool:
    if name not in KEYS or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if name == "top_k":
        return value == int(value) and 0 <= value <= 10_000_000 if math.isfinite(value) else False
    return 0 < value <= 1 if name == "top_p" else 0 <= value <= 10
