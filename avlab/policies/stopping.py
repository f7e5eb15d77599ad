"""`adaptive+stop`: drafts are planned from recent estimates; this step's estimates say where verification ends."""

from copy import deepcopy

import numpy as np

from avlab.policies.adaptive import Adaptive, AdaptiveVerification
from avlab.policies.base import Admission, PolicyContext
from avlab.speculation.allocation import best_slots, in_order
from avlab.speculation.budget import survival
from avlab.speculation.decision import Decision, Offer, running_mean
from avlab.speculation.estimates import Estimates
from avlab.speculation.measured_costs import MeasuredCosts
from avlab.speculation.recent_rows import RecentRows
from avlab.speculation.stopping import Plan, Prices, plan, prices, stop

ROWS = 128  # recent drafts that a plan looks at, at the least; chosen on the shipped traces, as is the next
EVERY = 8  # steps that a plan holds while the load stays the same
FIRST_WAIT, LONGEST_WAIT = 8, 512  # steps without a draft before one is tried all the same; each wait doubles
PLAIN_EVERY, CLOSE = (
    32,
    0.9,
)  # steps that only draft until one does not, and how near its rate must be; chosen here
LABELS = 16  # first slots that a try verifies at least, where there are as many; chosen here


class StoppingVerification(AdaptiveVerification):
    """Plans depth, rate and survivals now and then; settles how many drafts to verify when they are there.

    With `+depth` the depth is planned, else it is K. What no recent draft tells counts as the running mean. While the
    plan is not to draft, a draft is tried all the same after 8, 16, 32, ... 512 steps, and the first slots of some
    requests verified: without labels an estimator that is too pessimistic would stay so for ever.
    """

    def __init__(self, arm: Adaptive, context: PolicyContext):
        super().__init__(arm, context)
        self.deciding = context.measured if context.measured is not None else context.costs
        self.rows = RecentRows(context.K)
        self.K, self.steps = context.K, 0
        self.waited, self.wait, self.trying = 0, FIRST_WAIT, False
        self.plan: Plan | None = None
        self.planned_for = (0, 0)
        self._prices: tuple[tuple[Plan, np.ndarray, int, int], Prices] | None = None  # and what they are of

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
        self.trying = self._tries(prompts=offer.other_tokens > offer.requests)
        if self.trying:
            self.plan, self.planned_for = self._planned(*size, shallowest=1), (0, 0)
        depth = 0 if self._leaves_out(*size) else self.plan.depth
        all_of_it = bool((offer.coins[:1] < self.arm.explore).any()) if self.arm.explore else False
        budget = int(np.add.reduce(np.minimum(offer.scheduled, depth)))
        explored = np.full(len(offer.coins), all_of_it)
        return Decision(self.K if all_of_it else depth, depth, budget, explored)

    def _tries(self, prompts: bool) -> bool:
        """Whether this step drafts although the plan says not to; by a schedule that knows no draft.

        prompts: whether the step computes any. Drafts beside them bring labels too, so waiting begins anew; but it is
        as long as before, since they may pay where others do not. A try beside prompts costs most: it is put off.
        """
        assert self.plan is not None  # `decide` made one
        if self.plan.depth:
            if not self.trying:
                self.waited = 0
                self.wait = self.wait if prompts else FIRST_WAIT
            return False
        self.waited += 1
        if self.waited < self.wait * (1 + prompts):
            return False
        self.waited, self.wait = 0, min(2 * self.wait, LONGEST_WAIT)
        return True

    def _leaves_out(self, requests: int, other_tokens: int) -> bool:
        """Whether this step does not draft although the plan says so, since what such a step costs is only guessed.

        A machine that has become slower and drafts that have become dearer look alike until a step without drafts is
        measured. So where it would be nearly as good, one is, from time to time.
        """
        assert self.plan is not None
        costs = self.deciding
        return (
            self.plan.depth > 0
            and other_tokens == requests
            and isinstance(costs, MeasuredCosts)
            and self.plan.plain >= CLOSE * self.plan.rate
            and costs.age(requests) >= PLAIN_EVERY
        )

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
        verify, made = self.deciding.verify, self._prices
        if made is None or not (
            made[0][0] is planned and made[0][1] is verify and made[0][2:] == (other_tokens, len(best))
        ):
            of = planned, verify, other_tokens, len(best)
            made = self._prices = of, prices(*of)
        return stop(best, made[1])

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        assert self.plan is not None  # `decide` came before
        ranked, tokens = np.zeros(len(offer.scheduled), dtype=np.int64), float(offer.emitting)
        if estimates is not None and decision.depth:
            scheduled = np.minimum(offer.scheduled, decision.depth)
            slots, best = in_order(estimates.survival[:, : decision.depth], scheduled)
            if budget := self.count(best, self.plan, offer.other_tokens):
                ranked = best_slots(slots, best[budget - 1], budget)
                tokens += float(np.add.reduce(best[:budget]))
            if self.trying:
                some = (self.steps + np.arange(min(LABELS, len(ranked)))) % len(ranked)
                ranked[some] = np.maximum(ranked[some], np.minimum(scheduled[some], 1))
        plain = offer.other_tokens + int(np.add.reduce(ranked))
        milliseconds = self.deciding.step(offer.requests, decision.depth, plain)
        if not (self.arm.explore and decision.explored.any()):
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
