"""A worker without a model that serves in full: the real serving loop, policies and reports over a stand-in engine.

Its drafts are coins whose chance follows feature, position and workload kind, so the estimator has something to learn,
and a step takes as long as its cost table says. The target "failing" makes step 30 raise. With AVLAB_SIMULATED_TIME no
time passes but on the run's clock, and what is measured does not depend on the machine.
"""

import os
import sys
import time

import numpy as np
from draft_features import features_of
from stand_in_engine import StandInEngine, Words, distributions

from avlab.engine.request import Finished, Sequence
from avlab.policies.base import PolicyContext, make_policy
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer
from avlab.speculation.features import probability
from avlab.speculation.labels import labels
from avlab.wire import frames
from avlab.workers.entry import Order, work
from avlab.workers.intake import open_traffic
from avlab.workers.reporting import StepReporter
from avlab.workers.run_clock import EmulatedClock
from avlab.workers.serving import Server

SIMULATED = bool(os.environ.get("AVLAB_SIMULATED_TIME"))
SLOTS, CONTEXT = 16, 400
EASE = {"tool_calls": 1.0, "code": 0.8, "arithmetic": 0.5, "verse": -1.0, "essays": -0.6}


class Engine(StandInEngine):
    """Serves with features and outcomes that depend on position and workload kind."""

    def __init__(self, config):
        self.failing, self.simulated = config.target == "failing", EmulatedClock(None, lambda: 0)
        tokens = np.arange(SLOTS * (config.K + 1) + 1.0)
        depth = np.arange(config.K + 1) / config.K  # [K + 1], as a share of the whole draft
        draft = (2 + np.arange(SLOTS + 1) / 8)[:, None] * np.where(depth, 0.4 + 0.6 * depth, 0.0)
        costs = CostTable(draft, 19 + 0.1 * tokens + 0.5 * np.maximum(tokens - 24, 0))
        super().__init__(config.arm, SLOTS, config.K)
        self.costs, self.policies = costs, {}
        self.set_policy(config.arm)

    def set_policy(self, arm):
        self.policies.setdefault(str(arm), make_policy(arm, PolicyContext(self.K, self.costs, 30)))
        self.policy = self.policies[str(arm)]

    def spend(self, milliseconds):
        """Let the time pass that a step takes."""
        if SIMULATED:
            self.simulated.advance(milliseconds / 1e3)
        else:
            time.sleep(milliseconds / 1e3)

    def step(self):
        if self.failing and self.step_number == 30:
            raise RuntimeError("a fault in step 30")
        while self.queue and len(self.sequences) < self.slots:
            request = self.queue.popleft()
            self.sequences.append(Sequence(request, 0, list(request.tokens), np.full(self.K, np.nan)))
            self.sequences[-1].admitted_at = self.clock()
        return self._serve()

    def _serve(self):
        from types import SimpleNamespace

        K, B = self.K, len(self.sequences)
        scheduled = np.array([max(0, min(K, s.remaining - 1)) for s in self.sequences])
        earlier = np.array([s.earlier for s in self.sequences])
        offer = Offer(scheduled, earlier, self.draw.random(B), requests=B, emitting=B, other_tokens=B)
        decision = self.policy.decide(offer)
        depth = decision.drafted
        offer.scheduled = np.minimum(offer.scheduled, depth)
        kinds = [s.request.kind for s in self.sequences]
        ease = np.array([EASE.get(kind, 0.0) for kind in kinds])[:, None]
        feature = self.draw.normal(1.2 + ease, 1.8, (B, K)) - 0.1 * np.arange(K)
        feature[:, depth:] = np.nan
        odds = 0.75 * feature + 0.6 * ease - 0.1 * np.arange(K)
        features, chance = features_of(feature, odds), probability(odds)
        estimates = self.policy.estimate(features) if depth else None
        admission = self.policy.admit(decision, estimates, offer)
        position = np.arange(K)
        kept = (self.draw.random((B, K)) < chance) & (position < admission.admitted[:, None])
        accepted = np.cumprod(kept, axis=1).sum(1)
        learnt = labels(accepted, admission.admitted, K)
        tokens = B + int(admission.admitted.sum())
        draft, verify = float(self.costs.draft_at(depth)[B]), float(self.costs.verify[tokens])
        self.spend(draft + verify)
        report = SimpleNamespace(
            step=self.step_number, running=B, waiting=self.waiting, emitting=B, surplus=float("nan"), prompt_tokens=0,
            target_tokens=tokens, drafted=depth, tokens=int(accepted.sum()) + B, admission=admission, slots=None,
            finished=[], refit=None, emitted=[], counted=True,
            ms={"draft": draft, "verify": verify * self.draw.uniform(0.97, 1.08), "sample": 1.2, "decide": 0.4},
        )  # fmt: skip
        if depth:
            self.policy.observe(features, estimates, learnt)
            report.slots = SimpleNamespace(
                request=np.array([s.request.id for s in self.sequences]), kind=kinds,
                temperature=np.array([s.request.temperature for s in self.sequences]),
                scheduled=offer.scheduled, admitted=admission.admitted, accepted=accepted,
                features=features,
                estimates=estimates,
                tokens=np.full((B, depth), 7),
                label=np.where(learnt.labelled, learnt.label, -1).astype(np.int8),
            )  # fmt: skip
        for s, n, row in zip(list(self.sequences), accepted, range(B), strict=True):
            s.tokens += [7] * (int(n) + 1)
            report.emitted.append((s.request, [7] * (int(n) + 1)))
            s.steps += 1
            s.drafts_accepted += int(n)
            s.last_token_at = self.clock()
            s.first_token_at = s.first_token_at or s.last_token_at
            s.earlier = np.full(K, np.nan) if estimates is None else estimates.probability[row]
            if s.remaining <= 0:
                self.sequences.remove(s)
                report.finished.append(Finished(s, "length"))
        report.refit = self.policy.end_step()
        self.step_number += 1
        if self.observer:
            self.observer(report, *distributions(admission.admitted, depth))
        return report


def serve(order: Order) -> str:
    config = order.config
    engine = Engine(config)
    if SIMULATED:
        order.clock = engine.simulated
    order.progress("timing steps", 1, 2)
    order.outbox.put(
        frames.Hello(
            kind="reference", pid=os.getpid(), wall=time.time() - order.clock(),
            config=config.model_dump(mode="json"), target="stand-in", target_hash="0" * 16, drafter="stand-in",
            drafter_hash="0" * 16, K=config.K, code="unknown", machine={"cores": 1},
        )
    )  # fmt: skip
    sizes = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128]
    verify = [(size, float(engine.costs.verify[size])) for size in sizes if size < len(engine.costs.verify)]
    draft = [(size, d, float(engine.costs.draft[size, d])) for size in (1, 4, 8, 16) for d in (1, config.K)]
    order.outbox.put(
        frames.CostProfile(
            "profiled", draft, verify, engine.costs.draft.tolist(), engine.costs.verify.tolist(), "0" * 16
        )
    )
    report = StepReporter(order.outbox.put, order.clock, config.K, config.drafts, config.recorded_features)
    return Server(order, engine, Words(50), open_traffic(config), report).run()


if __name__ == "__main__":
    sys.exit(work(serve))
