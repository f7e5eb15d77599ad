"""Features of drafts as an engine gives them to a policy."""

import numpy as np

from avlab.speculation.features import Features


def features_of(max_log_odds, head_log_odds=None):
    """From log-odds [B, K] each; with those of the head, also as a drafter without logits has them: a match of 3."""
    columns = {"max_log_odds": max_log_odds, "head_log_odds": head_log_odds}
    if head_log_odds is not None:
        match = np.where(np.isnan(np.asarray(max_log_odds, float)), np.nan, 3.0)
        columns |= {"match_length": match, "match_source": match * 0}
    return Features.of({name: np.asarray(x, float) for name, x in columns.items() if x is not None})
