"""What verifying less has saved: time by the cost table, against a target's pass over all that was drafted."""

import numpy as np


def saved_ms(verify_cost, target_tokens, scheduled, admitted) -> np.ndarray:
    """Milliseconds a step would have cost more had every scheduled draft token been verified, by element.

    verify_cost [T + 1]: milliseconds by tokens in the target's pass; between whole numbers and beyond the table the
    straight line goes on. target_tokens: tokens in the pass as it was; scheduled and admitted: draft tokens. All three
    may be means over steps.
    """
    table = np.asarray(verify_cost, dtype=np.float64)
    tokens = np.asarray(target_tokens, dtype=np.float64)
    trimmed = np.asarray(scheduled, dtype=np.float64) - np.asarray(admitted, dtype=np.float64)
    return _at(table, tokens + trimmed) - _at(table, tokens)


def _at(table: np.ndarray, size: np.ndarray) -> np.ndarray:
    last = len(table) - 1
    inside = np.interp(size, np.arange(last + 1), table)
    slope = table[-1] - table[-2] if last else 0.0
    return inside + slope * np.maximum(size - last, 0.0)
