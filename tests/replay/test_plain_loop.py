"""The replay's step over arrays does what a plain loop over requests does, step for step, to the last bit."""

from dataclasses import dataclass

import numpy as np
import pytest
from traces import made_up

from avlab.machines import machine
from avlab.policies.arm import Arm
from avlab.policies.base import PolicyContext, make_policy
from avlab.replay.serving import Replay
from avlab.replay.traces import trace_named
from avlab.replay.under_way import Step
from avlab.speculation.decision import Offer
from avlab.speculation.features import Features
from avlab.speculation.labels import labels

B300, H100 = "b300-deepseek-v4-flash-tp4", "h100-llama-3.1-8b-eagle3"
ARMS = (
    "none", "fixed:2", "verify:1", "adaptive", "adaptive:raw", "adaptive+depth", "adaptive+explore=0.1",
    "adaptive+depth+explore=0.1",
)  # fmt: skip


@dataclass(eq=False)
class One:
    """A request under way."""

    text: int
    at: int
    earlier: list
    prompt: int = 0


def plain(trace, emulated, policy, requests, seed, steps):
    """The rows of so many steps, request by request."""
    K, F, unknown = trace.about.K, len(trace.about.features), [np.nan] * trace.about.K
    order, coins = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])

    def texts():
        while True:
            yield from order.permutation(trace.texts).tolist()

    text = texts()
    share = np.random.default_rng([seed, 3]).random(requests)
    under_way = [One(next(text), 0, unknown) for _ in range(requests)]
    for one, part in zip(under_way, share, strict=True):
        one.at = int(part * (trace.output_tokens[one.text] - 1))

    def told(slots, whose):
        values = np.array(slots, dtype=np.float64).reshape(len(slots), K, F)
        return Features(trace.about.features, values, [trace.kind[one.text] for one in whose])

    def slots_of(row, depth):
        return [list(row[k]) if k < depth else [np.nan] * F for k in range(K)]

    for _ in range(steps):
        tossed = coins.random(requests)
        ready = [one for one in under_way if not one.prompt]
        room, begun = emulated.about.prefill_tokens, 0
        for one in under_way:
            if one.prompt:
                chunk = min(one.prompt, room)
                one.prompt, room = one.prompt - chunk, room - chunk
                begun += one.prompt == 0
        prefill = emulated.about.prefill_tokens - room
        left = [int(trace.output_tokens[one.text]) - 1 - one.at for one in ready]
        offer = Offer(
            scheduled=np.array(
                [min(max(int(trace.limit[one.text]) - one.at - 2, 0), K) for one in ready], dtype=np.int64
            ),
            earlier=np.array([one.earlier for one in ready]).reshape(len(ready), K),
            coins=np.array([coin for one, coin in zip(under_way, tossed, strict=True) if one in ready]),
            requests=len(ready),
            emitting=len(ready) + begun,
            other_tokens=len(ready) + prefill,
        )
        depth, admitted, kept = 0, [], []
        if ready:
            decision = policy.decide(offer)
            depth = decision.drafted
            offer.scheduled = np.array([min(int(most), depth) for most in offer.scheduled])
            anchors = [int(trace.first[one.text]) + one.at for one in ready]
            features = told([slots_of(trace.features[anchor], depth) for anchor in anchors], ready)
            estimates = policy.estimate(features) if depth else None
            admitted = policy.admit(decision, estimates, offer).admitted.tolist()
            kept = [min(int(trace.accepted[anchor]), a) for anchor, a in zip(anchors, admitted, strict=True)]
            if depth:
                policy.observe(features, estimates, labels(kept, admitted, K, left))
            for i, (one, anchor) in enumerate(zip(ready, anchors, strict=True)):
                if estimates is None:
                    one.earlier = unknown
                elif trace.behind is not None and admitted[i] < depth and kept[i] == admitted[i]:
                    other = told([slots_of(trace.behind[anchor, admitted[i]], depth)], [one])
                    one.earlier = policy.estimate(other).probability[0].tolist()
                else:
                    one.earlier = estimates.probability[i].tolist()
        policy.end_step()
        emitted = [min(n + 1, most) for n, most in zip(kept, left, strict=True)]
        yield Step(
            milliseconds=emulated.milliseconds(
                len(ready),
                depth,
                offer.other_tokens + sum(admitted),
                sum(int(trace.prompt_tokens[one.text]) + one.at for one in ready),
                prefill,
            ),
            decoding=len(ready),
            emitting=offer.emitting,
            tokens=sum(emitted) + begun,
            prefill=prefill,
            depth=depth,
            scheduled=sum(offer.scheduled.tolist()) if depth else 0,
            admitted=sum(admitted),
            accepted=sum(kept),
        )
        for one, n in zip(ready, emitted, strict=True):
            one.at += n
        for one in under_way:
            if not one.prompt and one.at >= trace.output_tokens[one.text] - 1:
                one.text, one.at, one.earlier = next(text), 0, unknown
                one.prompt = int(trace.prompt_tokens[one.text])


def both(trace, arm, requests, steps, name=B300, seed=3):
    emulated = machine(name, trace.about.K)
    context = PolicyContext(trace.about.K, emulated.table(), refit_interval=20)
    one, two = (make_policy(Arm.parse(arm, trace.about.K), context) for _ in range(2))
    replay = Replay(trace, emulated, one, requests, seed)
    there = list(plain(trace, emulated, two, requests, seed, steps))
    return [replay.step() for _ in range(steps)], there


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("requests", [1, 5, 40])
def test_made_up_texts(arm, requests):
    trace = made_up(texts=30, K=4)
    trace.limit[:5] = trace.output_tokens[:5]  # texts that their limit ends
    trace.prompt_tokens[5] = 5_000  # a prompt of several steps
    here, there = both(trace, arm, requests, 150)
    assert here == there


@pytest.mark.parametrize("arm", ["adaptive", "adaptive:head+depth", "adaptive:classes"])
@pytest.mark.parametrize("name", [B300, H100])
def test_recorded_texts(arm, name):
    here, there = both(trace_named("reasoning"), arm, 12, 80, name)
    assert here == there


def test_drafts_that_depend_on_no_draw():
    here, there = both(made_up(texts=9, behind=False), "adaptive+depth", 6, 100)
    assert here == there
