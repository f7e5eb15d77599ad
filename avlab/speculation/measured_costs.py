"""Step costs as they are, from costs as they were profiled and what steps have taken since.

A profile is made at start, on a machine that does nothing else; later steps share it, and hold texts of other lengths.
What matters to a choice of depth is the cost of a larger step over that of a smaller one, so a factor is kept for every
size of step, and not one for all. A machine that is shared is slow for some seconds, with every size alike; that is its
pace, and it is kept apart. Without it a slow second would make the size that is served then look dear beside one that
was timed at a better moment. What was learnt under another load must not decide at this one for ever: what is not
measured any more is forgotten.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from avlab.speculation.costs import CostTable

WEIGHT = 0.05  # of a step in the means; twenty steps, chosen here
PACE = 0.2  # of a step in the machine's pace; five steps, chosen here
FIRST_WEIGHT = 0.12  # of a size that was not met for long: a draft is tried seldom, and should tell something
GROWTH = 0.002  # a step's way back to that weight; 500 steps, chosen here
# a step's way back to the profile, at the machine's pace; 3,000 steps, chosen here: with 500, drafts that did not pay
# were tried so often that it cost 2 % at 8 requests
FORGOTTEN = 0.0003
MOST_JUMP = math.log(1.5)  # how far from its mean a step counts: one that was held up says little
KNOTS_AN_OCTAVE = 2
STALE_STEPS = 100  # after which what is not measured any more begins to be forgotten
FRESH_STEPS = 8  # for which tables are used


class Factors:
    """Measured over profiled cost by size 0..N: logarithms at knots, two an octave, and straight lines between.

    A knot that was never met follows those that are: what made these dearer than the profile makes others so, too,
    until they are met themselves.
    """

    def __init__(self, sizes: int):
        self._places = (np.log2(np.maximum(np.arange(sizes), 1.0)) * KNOTS_AN_OCTAVE).tolist()
        self._knots = [0.0] * (int(self._places[-1]) + 2)
        self._met = [False] * len(self._knots)
        self._weights = [FIRST_WEIGHT] * len(self._knots)  # of the next measurement
        self._observed = 0
        self._last = [0] * len(self._knots)  # how many measurements there were when it was met
        self._idle = 0  # steps since the last measurement

    def observe(self, size: int, measured: float, profiled: float) -> None:
        """A cost was measured; it teaches the two knots beside its size."""
        if measured <= 0 or profiled <= 0:
            return
        self._idle = 0
        knot, above = self._between(size)
        below, near = 1.0 - above, knot + (above > 0.5)
        mean = below * self._knots[knot] + above * self._knots[knot + 1]
        change = min(max(math.log(measured / profiled) - mean, -MOST_JUMP), MOST_JUMP)
        # so that the line between the two moves by as much at this size
        change *= self._weights[near] / (below * below + above * above)
        self._knots = [
            each * (1 - FORGOTTEN) if met else each + WEIGHT * (mean - each)
            for each, met in zip(self._knots, self._met, strict=True)
        ]
        self._knots[knot] += below * change
        self._knots[knot + 1] += above * change
        self._weights = [each + GROWTH * (FIRST_WEIGHT - each) for each in self._weights]
        self._weights[near] = max(WEIGHT, self._weights[near] / (1 + self._weights[near]))
        self._met[near] = True
        self._observed += 1
        self._last[near] = self._observed

    def _between(self, size: int) -> tuple[int, float]:
        """The knot below, and how far the size is on the way to the next, 0 to 1."""
        knot = int(self._places[size])
        return knot, self._places[size] - knot

    def forget(self) -> None:
        """Nothing was measured; after a while each such step is one of the way back to the profile."""
        self._idle += 1
        if self._idle > STALE_STEPS:
            self._knots = [each * (1 - FORGOTTEN) for each in self._knots]

    def age(self, size: int) -> int:
        """Measurements since this size, or one near it, was met."""
        knot, above = self._between(size)
        return self._observed - self._last[knot + (above > 0.5)]

    def at(self, size: int) -> float:
        """The factor of one size."""
        knot, above = self._between(size)
        return math.exp((1.0 - above) * self._knots[knot] + above * self._knots[knot + 1])

    def by_size(self) -> np.ndarray:
        """[N + 1]"""
        return np.exp(np.interp(self._places, np.arange(len(self._knots)), self._knots))


class Others:
    """What a step takes besides draft and pass (sampling, deciding), ms by requests, without a draft and with one."""

    def __init__(self, requests: int):
        self._octave = np.round(np.log2(np.maximum(np.arange(requests + 1), 1.0))).astype(np.int64)
        shape = 2, int(self._octave[-1]) + 1
        self._means, self._idle = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)

    def expected(self, requests: int, drafted: bool) -> float:
        """nan where no such step was met."""
        return float(self._means[int(drafted), self._octave[requests]])

    def observe(self, requests: int, drafted: bool, milliseconds: float) -> None:
        """A step has ended. After a while of its like, what others of this size took follows it."""
        octave, place = self._octave[requests], int(drafted)
        known = self._means[place, octave]
        at_most = max(4 * known, 0.1)  # a step that was held up
        mean = milliseconds if math.isnan(known) else known + WEIGHT * (min(milliseconds, at_most) - known)
        self._means[place, octave] = mean
        self._idle[place, octave], self._idle[1 - place, octave] = 0, self._idle[1 - place, octave] + 1
        if self._idle[1 - place, octave] > STALE_STEPS:
            self._means[1 - place, octave] += FORGOTTEN * (mean - self._means[1 - place, octave])

    def by_requests(self) -> np.ndarray:
        """[2, requests + 1]; alike where only one of the two is known, and 0 where neither is."""
        known = np.where(np.isnan(self._means), self._means[::-1], self._means)
        return np.nan_to_num(known)[:, self._octave]


class MeasuredCosts:
    """A `CostTable` that follows measurements; it begins as the profiled one.

    Verify cost is the profiled one times a factor by tokens, draft cost times a factor by requests; what else a step
    takes is part of the draft cost, also of a draft of depth 0. All of them are times the machine's pace, which follows
    whole steps sooner than the factors do, whatever their sizes. Everything follows from steps that have ended, so a
    choice by these costs is as non-anticipating as one by the profile.
    """

    def __init__(self, profiled: CostTable, K: int):
        self.profiled, self.K = profiled, K
        self._verify_factors = Factors(len(profiled.verify))
        self._draft_factors = Factors(len(profiled.by_depth(K)))
        self._others = Others(len(profiled.by_depth(K)) - 1)
        self._pace = 0.0  # the logarithm of a step's time over what its sizes say
        self._observed = 0
        self._verify, self._drafting = profiled.verify, profiled.by_depth(K)
        self._draft = self._drafting  # and what else a step takes

    def __deepcopy__(self, memo: Any) -> MeasuredCosts:
        """Itself: costs are the engine's, whichever policy asks."""
        return self

    @property
    def verify(self) -> np.ndarray:
        """Milliseconds by tokens of the target's pass, [tokens + 1]."""
        return self._verify

    def by_depth(self, K: int) -> np.ndarray:
        """Milliseconds by requests and depth, all but the target's pass, [requests + 1, K + 1]."""
        return self._draft

    def draft_at(self, depth: int) -> np.ndarray:
        """Milliseconds by requests, [requests + 1]."""
        return self._draft[:, depth]

    def age(self, tokens: int) -> int:
        """Steps since a pass of about so many tokens was measured."""
        return self._verify_factors.age(min(tokens, len(self.profiled.verify) - 1))

    def step(self, requests: int, depth: int, tokens: int) -> float:
        """As `CostTable.step`: milliseconds of the draft and the target's pass, without what else a step takes."""
        return float(self._drafting[requests, depth] + self._verify[min(tokens, len(self._verify) - 1)])

    def observe(
        self, requests: int, depth: int, tokens: int, draft_ms: float, verify_ms: float, other_ms: float
    ) -> None:
        """A step has ended: its sizes as in `CostTable.step`, and the milliseconds of its parts."""
        tokens = min(tokens, len(self.profiled.verify) - 1)
        verify = float(self.profiled.verify[tokens])
        draft = float(self.profiled.by_depth(self.K)[requests, depth])
        self._follow(requests, depth, tokens, draft_ms, verify_ms, other_ms)
        pace = math.exp(self._pace)
        self._verify_factors.observe(tokens, verify_ms, pace * verify)
        if depth:
            self._draft_factors.observe(requests, draft_ms, pace * draft)
        else:
            self._draft_factors.forget()
        if requests:
            self._others.observe(requests, depth > 0, other_ms / pace)
        self._observed += 1
        if self._observed % FRESH_STEPS == 0:
            self._renew()

    def _follow(
        self, requests: int, depth: int, tokens: int, draft_ms: float, verify_ms: float, other_ms: float
    ) -> None:
        """The machine's pace, by all of a step that something is expected of."""
        took, expected = verify_ms, float(self.profiled.verify[tokens]) * self._verify_factors.at(tokens)
        if depth:
            took += draft_ms
            drafting = float(self.profiled.by_depth(self.K)[requests, depth])
            expected += drafting * self._draft_factors.at(requests)
        other = self._others.expected(requests, depth > 0)
        if not math.isnan(other):
            took, expected = took + other_ms, expected + other
        if took > 0 and expected > 0:
            change = math.log(took / expected) - self._pace
            self._pace += PACE * min(max(change, -MOST_JUMP), MOST_JUMP)

    def _renew(self) -> None:
        pace = math.exp(self._pace)
        self._verify = self.profiled.verify * self._verify_factors.by_size() * pace
        self._drafting = self.profiled.by_depth(self.K) * (self._draft_factors.by_size() * pace)[:, None]
        others = np.maximum.accumulate(self._others.by_requests()) * pace  # a draft saves nothing elsewhere
        self._draft = self._drafting + others[np.minimum(np.arange(self.K + 1), 1)].T
