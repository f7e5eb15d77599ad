"""Traces made up for a test: any texts, features and accepted lengths that fit each other."""

import numpy as np

from avlab.replay.about import About
from avlab.replay.trace import Trace


def made_up(texts=6, K=3, seed=0, behind=True, tokens=(5, 40), chance=0.6):
    """Texts of random length whose slots follow by coins; the only feature is the coin's log-odds plus noise."""
    rng = np.random.default_rng(seed)
    output = rng.integers(*tokens, texts)
    first = np.cumsum(output - 1) - (output - 1)
    A = int((output - 1).sum())
    left = np.concatenate([np.arange(n - 1, 0, -1) for n in output])
    odds = rng.normal(np.log(chance / (1 - chance)), 1.0, (A, K))
    follows = rng.random((A, K)) < 1 / (1 + np.exp(-odds))
    accepted = np.minimum(follows.cumprod(1).sum(1), left)
    features = odds[..., None].astype(np.float16).astype(np.float32)
    tails = np.repeat(features[:, None], K, axis=1)
    tails[:, *np.triu_indices(K, 1)] += 1.0
    tails = tails.astype(np.float16).astype(np.float32)
    return Trace(
        about=About(K, ("max_log_odds",), "made up", "made up", seed, 1.0, 1.0, 0),
        kind=np.array(["verse"] * texts, dtype=object),
        prompt_tokens=rng.integers(3, 30, texts),
        output_tokens=output,
        limit=np.full(texts, 64),
        first=first,
        accepted=accepted,
        features=features,
        acceptance=(1 / (1 + np.exp(-odds))).astype(np.float16).astype(np.float32),
        behind=tails if behind else None,
    )
