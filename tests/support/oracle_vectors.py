"""Loads the reference vectors in tests/oracle; what they are is said in the README there."""

import numpy as np
from places import TESTS


def oracle(name: str) -> dict[str, np.ndarray]:
    with np.load(TESTS / "oracle" / f"{name}.npz") as arrays:
        return dict(arrays)
