"""`adaptive+stop`: drafts are planned from recent estimates; this step's estimates say where verification ends."""

from copy import deepcopy

import numpy as np

from avlab.policies.adaptive import Adaptive, AdaptiveVerification
from avlab.policies.base import Admission, PolicyContext
from avlab.speculation.budget import survival
from avlab.speculation.decision import Decision, Offer, running_mean
from avlab.speculation.estimates import Estimates
from avlab.speculation.recent_rows import RecentRows
from avlab.speculation.stopping import Plan, plan, ranking, stop

ROWS = 128  # recent drafts that a plan looks at, at the least; chosen on the shipped traces, as is the next
EVERY = 8  # steps that a plan holds while the load stays the same
FIRST_WAIT, LONGEST_WAIT = 8, 512  # steps without a draft before one is tried all the same; each wait doubles


class StoppingVerification(AdaptiveVerification):
    """Plans depth, rate and survivals now and then; settles how many drafts to verify when they are there.

    With `+depth` the depth is planned, else it is K. What no recent draft tells counts as the running mean. While the
    plan is not to draft, a draft is tried all the same after 8, 16, 32, ... 512 steps, and the first slot of every
    request verified: without labels an estimator that is too pessimistic would stay so for ever.
    """

    def __init__(self, arm: Adaptive, context: PolicyContext):
        super().__init__(arm, context)
        self.deciding = context.measured if context.measured is not None else context.costs
        self.rows = RecentRows(context.K)
        self.K, self.steps = context.K, 0
        self.waited, self.wait, self.trying = 0, FIRST_WAIT, False
        self.plan: Plan | None = None
        self.planned_for = (0, 0)

    def __copy__(self) -> "StoppingVerification":
        """With rows of its own, since deciding adds to them."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__ | {"rows": deepcopy(self.rows)})
        return twin

    def decide(self, offer: Offer) -> Decision:
        self.mean_estimate = running_mean(self.mean_estimate, offer.earlier)
        self.rows.add(offer.earlier)
        size = offer.requests, offer.other_tokens
        if self.plan is None or self.steps % EVERY == 0 or size != self.planned_for:
            self.plan, self.planned_for = self._planned(*size), size
        self.steps += 1
        self.trying = self._tries()
        if self.trying:
            self.plan, self.planned_for = self._planned(*size, shallowest=1), (0, 0)
        depth = self.plan.depth
        explored = np.full(len(offer.coins), bool((offer.coins[:1] < self.arm.explore).any()))
        budget = int(np.minimum(offer.scheduled, depth).sum())
        return Decision(self.K if explored.any() else depth, depth, budget, explored)

    def _tries(self) -> bool:
        """Whether this step drafts although the plan says not to; by a schedule that knows no draft."""
        assert self.plan is not None  # `decide` made one
        if self.plan.depth:
            if not self.trying:
                self.waited, self.wait = 0, FIRST_WAIT
            return False
        self.waited += 1
        if self.waited < self.wait:
            return False
        self.waited, self.wait = 0, min(2 * self.wait, LONGEST_WAIT)
        return True

    def _planned(self, requests: int, other_tokens: int, shallowest: int = 0) -> Plan:
        sets = -(-ROWS // requests)
        rows = self.rows.take(sets * requests)
        estimates = np.where(np.isnan(rows), self.mean_estimate, rows)
        return plan(
            survival(estimates),
            sets,
            self.deciding.by_depth(self.K)[requests],
            self.deciding.verify,
            requests,
            other_tokens,
            shallowest if self.arm.depth else self.K,
        )

    def count(self, best: np.ndarray, planned: Plan, other_tokens: int) -> int:
        """How many of this step's drafts to verify; best [N]: their survivals, best first."""
        return stop(best, planned, self.deciding.verify, other_tokens)

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        assert self.plan is not None  # `decide` came before
        B = len(offer.scheduled)
        ranked, tokens = np.zeros(B, dtype=np.int64), float(offer.emitting)
        if estimates is not None and decision.depth:
            scheduled = np.minimum(offer.scheduled, decision.depth)
            best, whose = ranking(estimates.survival[:, : decision.depth], scheduled)
            budget = self.count(best, self.plan, offer.other_tokens)
            ranked, tokens = np.bincount(whose[:budget], minlength=B), tokens + float(best[:budget].sum())
            if self.trying:
                ranked = np.maximum(ranked, np.minimum(scheduled, 1))
        plain = offer.other_tokens + int(ranked.sum())
        milliseconds = self.deciding.step(offer.requests, decision.depth, plain)
        if not decision.explored.any():
            return Admission(ranked, plain - offer.other_tokens, 0, 0.0, tokens, milliseconds)
        admitted = np.where(decision.explored, offer.scheduled, ranked)
        whole = offer.other_tokens + int(admitted.sum())
        explored_ms = self.deciding.step(offer.requests, decision.drafted, whole) - milliseconds
        return Admission(
            admitted=admitted,
            budget=plain - offer.other_tokens,
            explored=whole - plain,
            explored_ms=explored_ms,
            expected_tokens=tokens,
            expected_ms=milliseconds + explored_ms,
        )
