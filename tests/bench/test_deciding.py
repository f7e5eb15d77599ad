"""What deciding takes, timed on a few steps: every arm is led through whole steps, and all its calls are counted."""

import numpy as np

from avlab.bench.measures.deciding import ARMS, FIXED, timed


def test_every_call_of_a_step_is_timed():
    found = timed(ARMS, 4, 2)
    assert list(found) == list(ARMS)
    for arm, parts in found.items():
        assert parts.shape == (5,) and np.isfinite(parts).all() and (parts[:3] > 0).all()
        assert arm == FIXED or parts.sum() > found[FIXED].sum()
