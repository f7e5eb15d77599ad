"""Whether an online fit is stuck: its slope steps are dropped at one refit after the other."""

from collections.abc import Sequence

import numpy as np

ENOUGH = 3  # dropped steps in a row that are no chance; chosen here


def dropped_in_a_row(slopes: Sequence[float] | np.ndarray, labels: Sequence[float] | np.ndarray) -> int:
    """How many of the last refits, one after the other, dropped their slope step; 0 where that may be chance.

    slopes: before the first refit and after each, [R + 1]. labels: of each refit's round, [R]; rounds without labels
    ask for no step and are passed over. A step that is taken is never exactly 0, not even in float32. So a slope
    that is the same to the last digit was kept by the rule that drops a step to below 0.
    """
    asked = np.asarray(labels) > 0
    moved = (np.diff(np.asarray(slopes, dtype=np.float64)) != 0)[asked]
    last = int(np.argmax(moved[::-1])) if moved.any() else len(moved)
    return last if last >= ENOUGH else 0
