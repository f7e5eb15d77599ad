"""Serving a trace under a load that never changes: so many requests always under way, under one policy."""

from __future__ import annotations

import numpy as np

from avlab.machines import Machine
from avlab.policies.base import Policy
from avlab.replay.about import TraceError
from avlab.replay.texts import TextOrder
from avlab.replay.trace import Trace
from avlab.replay.under_way import Decoding, Step, UnderWay


class Replay:
    """Serves the texts of a trace with so many requests always under way, under one policy.

    Texts come in an order drawn by the seed, each again when all were served; `rounds` says how often that happened.
    Two replays with one seed meet the same texts with the same drafts, whatever their policies: common random numbers.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        policy: Policy,
        requests: int,
        seed: int = 0,
        texts: np.ndarray | None = None,
    ):
        """texts: the numbers of the texts to serve, as often as each is named; else all.

        Raises TraceError for more requests than the machine serves at once.
        """
        most = machine.about.most_requests
        if not 1 <= requests <= most:
            raise TraceError(f"{machine.about.title}: serves 1 to {most} requests at once, not {requests}.")
        self.policy, self.under_way = policy, UnderWay(trace, machine)
        self._coins = np.random.default_rng([seed, 2])
        self._order = TextOrder(np.arange(trace.texts) if texts is None else texts, seed)
        self.under_way.begin(np.array([self._order.take() for _ in range(requests)]))
        self.under_way.prompt[:] = 0
        # as under a load that has run for a while, each request is somewhere in its text
        share = np.random.default_rng([seed, 3]).random(requests)
        self.under_way.at = (share * (self.under_way.output - 1)).astype(np.int64)

    @property
    def rounds(self) -> int:
        """How often every text was served, and they began anew."""
        return self._order.rounds

    def step(self) -> Step:
        """One step of all requests; one that ends makes way for the next text, whose prompt the next steps compute."""
        return self.watched_step()[0]

    def watched_step(self) -> tuple[Step, Decoding]:
        """As `step`, with what it did for each request."""
        done = self.under_way.step(self.policy, self._coins.random(len(self.under_way)))
        for row in self.under_way.over:
            self.under_way.again(row, self._order.take())
        return done
