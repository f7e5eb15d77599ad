"""Features of drafts as an engine gives them to a policy."""

import numpy as np

from avlab.speculation.features import Features


def features_of(max_log_odds, head_log_odds=None):
    """From log-odds [B, K] each."""
    columns = {"max_log_odds": max_log_odds, "head_log_odds": head_log_odds}
    return Features.of({name: np.asarray(x, float) for name, x in columns.items() if x is not None})
