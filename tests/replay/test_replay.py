"""Replay advances texts as the engine would, on a machine's clock, the same for the same seed."""

import numpy as np
import pytest
from traces import made_up

from avlab.machines import machine
from avlab.policies.arm import Arm
from avlab.policies.base import PolicyContext, make_policy
from avlab.replay.about import TraceError
from avlab.replay.serving import Replay

B300 = "b300-deepseek-v4-flash-tp4"


def replay_of(arm, trace, requests=4, seed=0, **more):
    K, emulated = trace.about.K, machine(B300, trace.about.K)
    policy = make_policy(Arm.parse(arm, K), PolicyContext(K, emulated.table()))
    return Replay(trace, emulated, policy, requests, seed, **more)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_a_fixed_length_walks_the_text(k):
    """One request under fixed:k, against a walk by hand: anchors, tokens, drafts and milliseconds."""
    trace = made_up(texts=1)
    replay = replay_of(f"fixed:{k}", trace, requests=1)
    at, n, limit = int(replay.under_way.at[0]), int(trace.output_tokens[0]), int(trace.limit[0])
    while at < n - 1:
        step = replay.step()
        offered = min(k, limit - at - 2)
        kept = min(int(trace.accepted[at]), offered)
        emitted = min(kept + 1, n - 1 - at)
        assert (step.tokens, step.admitted, step.accepted, step.emitting) == (emitted, offered, kept, 1)
        assert step.milliseconds == replay.under_way.machine.milliseconds(1, k, 1 + offered)
        at += emitted
    assert (
        replay.under_way.at[0] == 0
        and replay.under_way.prompt[0] == trace.prompt_tokens[0]
        and replay.rounds == 1
    )
    step = replay.step()  # the prompt, and the first token behind it
    assert (step.prefill, step.tokens, step.decoding) == (trace.prompt_tokens[0], 1, 0)


def test_long_prompts_are_computed_in_parts():
    trace = made_up(texts=2)
    trace.prompt_tokens[:] = 20_000
    replay = replay_of("none", trace, requests=2)
    replay.under_way.prompt[:] = trace.prompt_tokens[replay.under_way.text]
    most = replay.under_way.machine.about.prefill_tokens
    assert [replay.step().prefill for _ in range(5)] == [most] * 4 + [40_000 - 4 * most]


@pytest.mark.parametrize("arm", ["fixed:2", "adaptive", "adaptive+depth+explore=0.1"])
def test_the_same_seed_gives_the_same_steps(arm):
    trace = made_up(texts=20)
    one, two, other = (replay_of(arm, trace, seed=seed) for seed in (1, 1, 2))
    steps = [[each.step() for _ in range(200)] for each in (one, two, other)]
    assert steps[0] == steps[1] != steps[2]


def test_every_token_of_every_text_is_served_once_a_round():
    trace = made_up(texts=8)
    replay = replay_of("adaptive", trace, requests=3)
    replay.under_way.at[:] = 0
    tokens = 3  # the newest tokens, with which three texts begin
    while replay.rounds < 1:
        tokens += replay.step().tokens
    begun = [int(replay.under_way.at[r]) + (replay.under_way.prompt[r] == 0) for r in range(3)]
    # what is under way was begun in this round or in the first of the next
    assert tokens == pytest.approx(
        trace.output_tokens.sum() + sum(begun) - sum(trace.output_tokens[replay.under_way.text]), abs=2 * 64
    )


def test_what_was_not_verified_is_remembered_without_the_text():
    """Behind an admitted prefix that follows the text, the next step's decision sees the other draft's features."""
    trace = made_up(texts=4, chance=0.9)
    with_text, without = (
        replay_of("adaptive", made_up(texts=4, chance=0.9, behind=False)),
        replay_of("adaptive", trace),
    )
    lengths, anchor = np.array([1, 3, 0]), np.flatnonzero(trace.accepted >= 3)[:3]
    estimate = without.policy.estimate(without.under_way.features(trace.features[anchor], 3)).probability
    kept, classes = np.minimum(trace.accepted[anchor], lengths), trace.kind[:3]
    for each in (with_text, without):
        each.under_way.earlier[:3] = estimate
        each.under_way.remember(each.policy, np.arange(3), anchor, lengths, kept, 3, classes)
    assert (with_text.under_way.earlier[:3] == estimate).all()
    found = without.under_way.earlier[:3]
    assert (found[:, 0] == estimate[:, 0]).all() and (found[1] == estimate[1]).all()
    assert (
        found[0, 1] == estimate[0, 1]
        and found[0, 2] > estimate[0, 2]
        and (found[2, 1:] > estimate[2, 1:]).all()
    )


def test_a_load_that_the_machine_cannot_serve_is_one_sentence():
    with pytest.raises(TraceError, match=r"serves 1 to 256 requests at once, not 257\."):
        replay_of("none", made_up(), requests=257)
