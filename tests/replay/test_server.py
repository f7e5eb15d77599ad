"""A replay's server: requests arrive, wait for a row and for memory, are served, and end on the machine's clock."""

import math

import numpy as np
import pytest
from traces import made_up

from avlab.machines import machine
from avlab.policies.arm import Arm, PolicyError
from avlab.replay.about import TraceError
from avlab.replay.server import ReplayServer

B300 = "b300-deepseek-v4-flash-tp4"


def server_of(trace, arm="fixed:2", requests=4, **more):
    return ReplayServer(trace, machine(B300, trace.about.K), Arm.parse(arm, trace.about.K), requests, **more)


def served(server):
    """Every end until nothing is left, and every step."""
    ends, steps = [], []
    while (step := server.step()) is not None:
        steps.append(step)
        ends += step.ended
    return ends, steps


@pytest.mark.parametrize("arm", ["none", "fixed:2", "adaptive", "adaptive+depth+explore=0.1"])
def test_every_request_gets_its_text(arm):
    trace = made_up(texts=20)
    server = server_of(trace, arm)
    for text in range(20):
        server.add(text, text)
    ends, steps = served(server)
    assert sorted(end.request.id for end in ends) == list(range(20))
    assert all(end.request.tokens == trace.output_tokens[end.request.text] for end in ends)
    assert sum(step.step.tokens for step in steps) == trace.output_tokens.sum()
    assert sum(step.step.prefill for step in steps) == trace.prompt_tokens.sum()
    assert sum(step.step.accepted for step in steps) == sum(end.request.accepted for end in ends)
    assert server.now_ms == pytest.approx(sum(sum(step.step.milliseconds) for step in steps))
    assert max(step.running for step in steps) == 4 and steps[0].waiting == 16


def test_times_of_one_request():
    """Arrives at 5 ms, waits for nobody: a step for its prompt, then fixed:2 by hand."""
    trace = made_up(texts=1)
    server = server_of(trace)
    server.wait_until(7.0)
    request = server.add(3, 0, arrived_ms=5.0)
    first = server.step()
    prompt = sum(server.machine.milliseconds(0, 0, int(trace.prompt_tokens[0])))
    assert first.begun == (request,) and first.step.tokens == 1 and not first.ended
    assert request.admitted_ms == 7.0 and request.first_token_ms == pytest.approx(7.0 + prompt)
    assert request.first_token_after_ms == pytest.approx(2.0 + prompt)
    (end,), steps = served(server)
    assert end.reason == "end" and end.request is request and request.steps == 1 + len(steps)
    assert request.last_token_ms == server.now_ms
    decoding = sum(sum(step.step.milliseconds) for step in steps)
    assert request.ms_per_token == pytest.approx(decoding / (trace.output_tokens[0] - 1))


def test_a_limit_ends_a_text_early():
    trace = made_up(texts=3, tokens=(30, 40))
    server = server_of(trace, "fixed:3")
    for id, limit in enumerate((1, 2, 9)):
        server.add(id, id, limit=limit)
    ends, _ = served(server)
    assert {end.request.id: (end.request.tokens, end.reason) for end in ends} == {
        0: (1, "length"),
        1: (2, "length"),
        2: (9, "length"),
    }


def test_prompts_are_computed_in_chunks_beside_decoding():
    trace = made_up(texts=3, tokens=(30, 40))
    trace.prompt_tokens[:] = 4, 10, 10
    server = server_of(trace, prefill_tokens=8)
    for text in range(3):
        server.add(text, text)
    steps = [server.step() for _ in range(4)]
    assert [step.step.prefill for step in steps] == [8, 8, 8, 0]
    assert [step.step.decoding for step in steps] == [0, 1, 2, 3]
    assert [tuple(each.id for each in step.begun) for step in steps] == [(0,), (1,), (2,), ()]
    assert steps[1].step.emitting == 2


def test_requests_wait_for_memory_in_order():
    trace = made_up(texts=4)
    trace.prompt_tokens[:] = 36, 36, 136, 36  # 100, 100, 200 and 100 tokens with the limit of 64
    server = server_of(trace, kv_tokens=250)
    for text in range(4):
        server.add(text, text)
    first = server.step()
    assert (first.running, first.waiting) == (2, 2)
    ends, steps = served(server)
    assert all(sum(100 + 100 * (each.text == 2) for each in step.requests) <= 250 for step in (first, *steps))
    admitted = {end.request.id: end.request.admitted_ms for end in ends}
    assert admitted[0] == admitted[1] < admitted[2] < admitted[3]  # the last would have fitted earlier
    with pytest.raises(TraceError, match=r"needs keys and values of 200 tokens, .* for 150"):
        server_of(trace, kv_tokens=150).add(0, 2)


def test_a_policy_is_switched_and_keeps_what_it_learnt():
    trace = made_up(texts=40)
    server = server_of(trace, "adaptive", refit_interval=5)
    for number in range(200):
        server.add(number, number % 40)
    refits = [server.step().decoding.refit for _ in range(30)]
    learnt = server.policy.estimator.coefficients
    assert sum(refit is not None for refit in refits) == 6 and learnt.slope != 0.5
    server.set_policy(Arm.parse("fixed:1"))
    assert {(step.arm, step.step.depth) for step in (server.step() for _ in range(5))} <= {
        ("fixed:1", 1),
        ("fixed:1", 0),
    }
    server.set_policy(Arm.parse("adaptive"))
    assert server.policy.estimator.coefficients is learnt
    with pytest.raises(PolicyError, match="has no confidence head"):
        server.policy_for(Arm.parse("adaptive:head"))
    with pytest.raises(PolicyError):
        server.set_policy(Arm.parse("fixed:4"))


def test_another_arms_estimates_are_forgotten_at_a_switch():
    server = server_of(made_up(texts=10), "adaptive")
    for text in range(4):
        server.add(text, text)
    for _ in range(3):
        server.step()
    known = server.under_way.earlier.copy()
    assert np.isfinite(known).any()
    server.set_policy(Arm.parse("adaptive"))  # the same arm goes on
    np.testing.assert_array_equal(server.under_way.earlier, known)
    server.set_policy(Arm.parse("adaptive:raw"))
    assert np.isnan(server.under_way.earlier).all()


def test_what_was_drafted_is_told():
    trace = made_up(texts=10)
    server = server_of(trace, "adaptive")
    for text in range(10):
        server.add(text, text)
    _, steps = served(server)
    for step in steps:
        each = step.decoding
        assert (
            len(each.rows) == step.step.decoding and each.emitted.sum() + len(step.begun) == step.step.tokens
        )
        if each.labels is not None:
            assert each.labels.label.sum() == each.accepted.sum() and each.features.values.shape[1:] == (3, 1)
            assert (each.admitted <= each.scheduled).all() and (each.accepted <= each.admitted).all()
            known = ~np.isnan(each.estimates.probability)
            assert (known == (np.arange(3) < step.step.depth)).all()


def test_cancelled_requests_leave():
    trace = made_up(texts=6)
    server = server_of(trace, requests=2, kv_tokens=200)
    for text in range(4):
        server.add(text, text)
    for _ in range(3):
        server.step()
    assert server.cancel(3) is None and [each.id for each in server.queue] == [2]
    end = server.cancel(1)
    assert end.reason == "cancelled" and end.request.tokens > 1 and end.request.steps == 3
    assert server.cancel(1) is None
    ends, _ = served(server)
    assert sorted(end.request.id for end in ends) == [0, 2]
    assert math.isnan(server.add(9, 5).first_token_after_ms)


def test_what_cannot_be_served_is_one_sentence():
    trace = made_up(texts=2)
    for requests in (0, 257):
        with pytest.raises(TraceError, match="serves 1 to 256 requests at once"):
            server_of(trace, requests=requests)
    server = server_of(trace)
    with pytest.raises(TraceError, match="texts 0 to 1, and none of number 2"):
        server.add(0, 2)
    with pytest.raises(TraceError, match="asks for 0 new tokens"):
        server.add(0, 1, limit=0)


def test_a_step_costs_what_its_requests_hold_in_their_caches():
    """H100's fit prices cached tokens: a pass over long texts is dearer than the same pass over short ones."""
    trace = made_up(texts=2)
    fit = machine("h100-llama-3.1-8b-eagle3", trace.about.K)
    server = ReplayServer(trace, fit, Arm.parse("none"), 2)
    server.add(0, 0)
    server.add(1, 1)
    held = int(trace.prompt_tokens[:2].sum())
    first, second = server.step(), server.step()
    assert first is not None and second is not None
    assert first.step.milliseconds == fit.milliseconds(0, 0, held)
    assert second.step.milliseconds == fit.milliseconds(2, 0, 2, held)
    assert second.step.milliseconds[1] > fit.milliseconds(2, 0, 2)[1]
