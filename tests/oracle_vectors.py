"""Loads the reference vectors in tests/oracle; what they are is said in the README there."""

from pathlib import Path

import numpy as np


def oracle(name: str) -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parent / "oracle" / f"{name}.npz") as arrays:
        return dict(arrays)
