"""Values as JSON can hold them."""

import math

import numpy as np


def plain(value):
    """A value as JSON can hold it: NaN and infinities become None, arrays and tuples lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
