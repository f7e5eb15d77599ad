"""A trace of a run that verified every draft: drafts at the positions that the run visited, and stand-ins elsewhere.

A run stands at one anchor a step, so a policy that keeps other lengths comes to anchors at which nothing was drafted.
There, what was left of the last draft before stands in: it is known to follow the text that far. Whether a fresh draft
follows the token at which the older one left the text is a coin; where it does, the draft of the next visited anchor
goes on. Exact for the run's own policy; docs/replay.md says how near it comes for others.
"""

from dataclasses import replace

import numpy as np

from avlab.replay.about import SERVED
from avlab.replay.trace import Trace

FRESH = (
    0.4  # how often a fresh draft has the token that an older one had not: 0.39 to 0.47 in the shipped traces
)


def filled(trace: Trace, visited: np.ndarray, seed: int = 0) -> Trace:
    """A trace whose anchors are right only where `visited` [A] is true, with stand-ins elsewhere.

    The first anchor of every text was visited. What a draft would have been that does not know the text, `behind`, is
    taken from other anchors: their features are distributed alike, and know nothing of this text.
    """
    K, A, rng = trace.about.K, trace.anchors, np.random.default_rng(seed)
    left, every = trace.left(), np.arange(A)
    text = np.repeat(np.arange(trace.texts), trace.output_tokens - 1)
    last = np.maximum.accumulate(np.where(visited, every, -1))
    after = np.minimum.accumulate(np.where(visited, every, A)[::-1])[::-1]
    same = (after < A) & (text[np.minimum(after, A - 1)] == text)
    after = np.where(same, after, last)
    gone = every - last
    rest = np.clip(trace.accepted[last] - gone, 0, None)  # slots of the last draft that still follow the text
    fresh = ~visited & (rng.random(A) < FRESH) & (rest < K)
    accepted = np.where(fresh, rest + 1 + np.where(same, trace.accepted[after], 0), rest)
    accepted = np.where(visited, trace.accepted, np.minimum(np.minimum(accepted, K), left))

    slot = np.arange(K)
    features = trace.features[last[:, None], np.minimum(slot + gone[:, None], K - 1)]
    onward = slot - rest[:, None] - 1  # slots of the next visited anchor's draft
    goes_on = (fresh & same)[:, None] & (onward >= 0)
    features[goes_on] = trace.features[after[:, None], np.clip(onward, 0, K - 1)][goes_on]
    features[visited] = trace.features[visited]

    behind = None
    if trace.about.temperature > 0:
        behind = np.repeat(features[:, None], K, axis=1)
        for a in range(K - 1):
            alike = np.flatnonzero(visited & (trace.accepted >= a))
            if len(alike):
                behind[:, a, a + 1 :] = trace.features[rng.choice(alike, A), a + 1 :]
    return replace(
        trace,
        about=replace(trace.about, origin=SERVED),
        accepted=accepted,
        features=features,
        acceptance=np.where(visited[:, None], trace.acceptance, np.nan).astype(np.float32),
        behind=behind,
    )


def visits(trace: Trace, length: int) -> np.ndarray:
    """Which anchors [A] a run stands at that always verifies `length` drafts."""
    at, found = trace.first.copy(), np.zeros(trace.anchors, dtype=bool)
    ends = trace.first + trace.output_tokens - 1
    while len(at):
        found[at] = True
        at = at + np.minimum(trace.accepted[at], length) + 1
        at, ends = at[at < ends], ends[at < ends]
    return found
