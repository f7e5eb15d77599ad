"""Step costs as they are, from costs as they were profiled and what steps have taken since.

A profile is made at start, on a machine that does nothing else; later steps share it, and hold texts of other lengths.
What matters to a choice of depth is the cost of a larger step over that of a smaller one, so a factor is kept for every
size of step, and not one for all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from avlab.speculation.costs import CostTable

WEIGHT = 0.05  # of a step in the means; twenty steps, chosen here
FORGOTTEN = 0.002  # a step's way of a size that was not met towards the one that was; 500 steps, chosen here
MOST_JUMP = math.log(2.0)  # how far from its mean a step counts: one that was held up says little
KNOTS_AN_OCTAVE = 2
FRESH_STEPS = 8  # for which tables are used


class MeasuredCosts:
    """A `CostTable` that follows measurements; it begins as the profiled one.

    Verify cost is the profiled one times a factor by size, whose logarithm has a knot every half octave of tokens and
    straight lines between (a step teaches its two neighbours); draft cost is times one factor; what else a step takes
    (sampling, deciding), with a draft or without, is added. Everything follows from steps that have ended, so a choice
    by these costs is as non-anticipating as one by the profile.
    """

    def __init__(self, profiled: CostTable, K: int):
        self.profiled, self.K = profiled, K
        sizes = np.log2(np.maximum(np.arange(len(profiled.verify)), 1.0)) * KNOTS_AN_OCTAVE
        self._sizes = sizes
        self._factor = np.zeros(int(sizes[-1]) + 2)  # logarithms, by knot
        self._draft_factor = 0.0
        self._other = np.full(2, np.nan)  # ms without a draft, and with one
        self._observed = 0
        self._verify, self._draft = profiled.verify, profiled.by_depth(K)
        self._timed = self._verify, self._draft  # the same without what else a step takes

    def __deepcopy__(self, memo: Any) -> MeasuredCosts:
        """Itself: costs are the engine's, whichever policy asks."""
        return self

    @property
    def verify(self) -> np.ndarray:
        """Milliseconds by tokens of the target's pass, and what a step without a draft takes besides; [tokens + 1]."""
        return self._verify

    def by_depth(self, K: int) -> np.ndarray:
        """Milliseconds by requests and depth, and what a draft adds to the rest of a step; [requests + 1, K + 1]."""
        return self._draft

    def draft_at(self, depth: int) -> np.ndarray:
        """Milliseconds by requests, [requests + 1]."""
        return self._draft[:, depth]

    def step(self, requests: int, depth: int, tokens: int) -> float:
        """As `CostTable.step`: milliseconds of the draft and the target's pass, without what else a step takes."""
        verify, draft = self._timed
        return float(draft[requests, depth] + verify[min(tokens, len(verify) - 1)])

    def observe(
        self, requests: int, depth: int, tokens: int, draft_ms: float, verify_ms: float, other_ms: float
    ) -> None:
        """A step has ended: its sizes as in `CostTable.step`, and the milliseconds of its parts."""
        tokens = min(tokens, len(self.profiled.verify) - 1)
        profiled = float(self.profiled.verify[tokens])
        if verify_ms > 0 and profiled > 0:
            knot, share = divmod(float(self._sizes[tokens]), 1.0)
            pair = self._factor[int(knot) : int(knot) + 2]
            weights = np.array([1.0 - share, share])
            mean = float(pair @ weights)
            self._factor += FORGOTTEN * (mean - self._factor)
            pair += weights / (weights @ weights) * (_towards(mean, math.log(verify_ms / profiled)) - mean)
        drafting = float(self.profiled.by_depth(self.K)[requests, depth]) if depth else 0.0
        if draft_ms > 0 and drafting > 0:
            self._draft_factor = _towards(self._draft_factor, math.log(draft_ms / drafting))
        place = int(depth > 0)
        known = self._other[place]
        at_most = max(4 * known, 0.1)  # a step that was held up
        self._other[place] = (
            other_ms if math.isnan(known) else known + WEIGHT * (min(other_ms, at_most) - known)
        )
        self._observed += 1
        if self._observed % FRESH_STEPS == 0:
            self._renew()

    def _renew(self) -> None:
        without = 0.0 if math.isnan(self._other[0]) else float(self._other[0])
        with_draft = without if math.isnan(self._other[1]) else float(self._other[1])
        if math.isnan(self._other[0]):
            without = with_draft
        factors = np.exp(np.interp(self._sizes, np.arange(len(self._factor)), self._factor))
        draft = self.profiled.by_depth(self.K) * math.exp(self._draft_factor)
        self._timed = self.profiled.verify * factors, draft
        self._verify = self._timed[0] + without
        self._draft = np.concatenate([draft[:, :1], draft[:, 1:] + max(0.0, with_draft - without)], axis=1)


def _towards(mean: float, value: float) -> float:
    """A running mean renewed by a value, which counts as at most `MOST_JUMP` away."""
    return mean + WEIGHT * min(max(value - mean, -MOST_JUMP), MOST_JUMP)
