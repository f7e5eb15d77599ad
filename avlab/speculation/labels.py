"""What a verification tells about each draft slot: accepted, refused, or nothing."""

from typing import NamedTuple

import numpy as np


class Labels(NamedTuple):
    """label [B, K]: 1.0 for accepted slots, 0.0 for others. labelled [B, K] (bool): which of them have a label."""

    label: np.ndarray
    labelled: np.ndarray


def labels(accepted, admitted, K: int, limit=None) -> Labels:
    """The labels of one verification.

    accepted [B]: draft tokens kept; admitted [B]: draft tokens the target saw; limit [B], optional: slots
    from this depth on carry no label (they lie behind an accepted end-of-text, or beyond the token limit).
    Accepted slots and the first rejected are labelled. Slots behind a rejection, trimmed slots and slots from `limit`
    on are censored.
    """
    accepted, admitted = np.asarray(accepted)[:, None], np.asarray(admitted)[:, None]
    position = np.arange(K)
    seen = admitted if limit is None else np.minimum(admitted, np.asarray(limit)[:, None])
    return Labels((position < accepted).astype(np.float64), position < np.minimum(accepted + 1, seen))
