"""An engine without a model, with the real policies: drafts are coins, and a step takes no time."""

import math
from collections import deque
from types import SimpleNamespace

import numpy as np
from draft_features import features_of

from avlab.engine.request import Finished, RequestError, Sequence
from avlab.engine.served import InProcessEngine
from avlab.policies.base import PolicyContext, make_policy
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer
from avlab.speculation.labels import labels

K = 3
CONTEXT = 100


class StandInEngine(InProcessEngine):
    """Serves four requests at once. A slot is accepted with the probability that its feature says."""

    def __init__(self, arm, slots=4, K=K):
        self.K = K
        tokens = np.arange(200.0)
        self.costs = CostTable(np.full(slots + 1, 1.0), 10.0 + np.maximum(tokens - 8, 0.0))
        self.queue, self.sequences, self.policies, self.slots = deque(), [], {}, slots
        self.clock, self.step_number, self.draw = None, 0, np.random.default_rng(0)
        self.mean_estimate, self.observer = np.ones(K), None
        self.set_policy(arm)

    running = property(lambda self: len(self.sequences))
    waiting = property(lambda self: len(self.queue))

    def set_policy(self, arm):
        self.policy = self.policy_for(arm)

    def policy_for(self, arm):
        name = str(arm)
        if name not in self.policies:
            self.policies[name] = make_policy(arm, PolicyContext(self.K, self.costs))
        return self.policies[name]

    def add(self, request):
        if len(request.tokens) >= CONTEXT:
            raise RequestError(f"Request {request.id} has a prompt of {len(request.tokens)} tokens.")
        self.queue.append(request)

    def cancel(self, number):
        self.queue = deque(request for request in self.queue if request.id != number)
        for sequence in self.sequences:
            if sequence.request.id == number:
                self.sequences.remove(sequence)
                return Finished(sequence, "cancelled")
        return None

    def step(self):
        K = self.K
        while self.queue and len(self.sequences) < self.slots:
            request = self.queue.popleft()
            self.sequences.append(Sequence(request, 0, list(request.tokens), np.full(K, np.nan)))
            self.sequences[-1].admitted_at = self.clock()
        B = len(self.sequences)
        offer = Offer(
            scheduled=np.array([max(0, min(K, s.remaining - 1)) for s in self.sequences]),
            earlier=np.array([s.earlier for s in self.sequences]),
            coins=self.draw.random(B),
            requests=B,
            emitting=B,
            other_tokens=B,
        )
        decision = self.policy.decide(offer)
        depth = decision.drafted
        offer.scheduled = np.minimum(offer.scheduled, depth)
        feature = self.draw.normal(1, 2, (B, K))
        feature[:, depth:] = np.nan
        chance = 1 / (1 + np.exp(-feature))
        features = features_of(feature, feature)  # the head knows the chance
        estimates = self.policy.estimate(features) if depth else None
        admission = self.policy.admit(decision, estimates, offer)
        position = np.arange(K)
        kept = (self.draw.random((B, K)) < chance) & (position < admission.admitted[:, None])
        accepted = np.cumprod(kept, axis=1).sum(1)
        learnt = labels(accepted, admission.admitted, K)
        report = SimpleNamespace(
            step=self.step_number, running=B, waiting=self.waiting, emitting=B, prompt_tokens=0, surplus=math.nan,
            target_tokens=B + int(admission.admitted.sum()), drafted=depth, tokens=int(accepted.sum()) + B,
            admission=admission, slots=None, finished=[], refit=None, emitted=[], counted=True,
            ms={"draft": 1.0, "verify": 8.0, "sample": 0.5, "decide": 0.25},
        )  # fmt: skip
        if depth:
            self.policy.observe(features, estimates, learnt)
            report.slots = SimpleNamespace(
                request=np.array([s.request.id for s in self.sequences]),
                kind=[s.request.kind for s in self.sequences],
                temperature=np.array([s.request.temperature for s in self.sequences]),
                scheduled=offer.scheduled, admitted=admission.admitted, accepted=accepted,
                features=features,
                estimates=estimates,
                tokens=np.full((B, depth), 7),
                label=np.where(learnt.labelled, learnt.label, -1).astype(np.int8),
            )  # fmt: skip
        for s, n, row in zip(list(self.sequences), accepted, range(B), strict=True):
            s.tokens += [7] * (n + 1)
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


def distributions(admitted, depth):
    """Of the first request, drafts and logits over ten tokens, of which token 7 is the likeliest."""
    import torch  # late: a worker that nobody observes starts without it

    from avlab.engine.drafts import Drafts
    from avlab.engine.sampler import LogitRows

    logits = torch.log1p(torch.arange(10.0) % 8).repeat(admitted[0] + 1, 1)
    q = logits[:1].softmax(1).repeat(depth, 1)[None]
    drafts = Drafts(torch.full((1, depth), 7), q, None, features_of(np.full((1, depth), np.nan)))
    return drafts if depth else None, LogitRows(logits)


class Words:
    """A text that encodes a message as so many tokens as it has words, but at most so many."""

    def __init__(self, most):
        self.most = most

    def reads(self, name):
        return True

    def encode(self, messages, given=None):
        return [1] * min(len(messages[-1]["content"].split()), self.most)

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    def piece(self, token):
        return f" w{token}"

    def stream(self):
        return SimpleNamespace(add=self.piece)
