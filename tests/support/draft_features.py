"""Features of drafts as an engine gives them to a policy."""

import numpy as np

from avlab.speculation.features import Features


def features_of(max_log_odds, head_log_odds=None):
    """From log-odds [B, K] each."""
    columns = {"max_log_odds": max_log_odds, "head_log_odds": head_log_odds}
    told = {name: np.asarray(values, float) for name, values in columns.items() if values is not None}
    return Features(tuple(told), np.stack(list(told.values()), axis=-1))
