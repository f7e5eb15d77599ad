"""The engine serves what the target alone would say, whatever drafts, batches and policies do beside it."""

import itertools
import random

import numpy as np
import pytest
import torch
from tiny_models import LLAMA, make_engine, outputs, serve, write_block_drafter, write_llama

from avlab.engine.cache import Batch, KVCache
from avlab.engine.engine import EngineConfig
from avlab.engine.request import Request, RequestError
from avlab.engine.target import Target
from avlab.policies.arm import Arm

V, N = LLAMA["vocab_size"], 16
SWITCHED = ("adaptive+depth", "adaptive+explore=0.2", "adaptive+depth+explore=0.2")
ARMS = ("adaptive", "adaptive:raw", "adaptive:head", "fixed:1", "fixed:4", "verify:2", *SWITCHED)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A target, a block drafter for it, a draft model close to it, and the tokens it likes to say."""
    folder = tmp_path_factory.mktemp("models")
    target = write_llama(folder / "target", seed=1)
    said = outputs(serve(make_engine(target), requests(12, limit=40))[0])
    favourites = np.bincount(np.concatenate(list(said.values())), minlength=V).argsort()[-32:]
    return {
        "target": Target(target, torch.float32),
        "block": write_block_drafter(folder / "block", target, vocabulary=favourites.tolist()),
        "llama": near(target, folder / "llama"),
    }


def near(target, folder, noise=0.02):
    """A copy of a model whose weights are slightly wrong: a draft model that is often right."""
    from safetensors.torch import load_file, save_file

    folder.mkdir()
    (folder / "config.json").write_text((target / "config.json").read_text())
    generator = torch.Generator().manual_seed(5)
    weights = load_file(target / "model.safetensors")
    moved = {n: w + noise * torch.randn(w.shape, generator=generator) * w.std() for n, w in weights.items()}
    save_file(moved, folder / "model.safetensors")
    return folder


def requests(n, limit=24, seed=0, longest=40, **sampling):
    """n greedy requests (unless said otherwise) with prompts of 1 to `longest` tokens and varying limits."""
    rng = random.Random(seed)
    sampling.setdefault("temperature", 0.0)
    return [
        Request(
            id=i,
            tokens=[rng.randrange(V) for _ in range(rng.randint(1, longest))],
            max_new_tokens=rng.randint(1, limit),
            seed=i,
            **sampling,
        )
        for i in range(n)
    ]


def alone(target, asked):
    """What each greedy request says by itself: the whole text through the target for every token."""
    said = {}
    for request in asked:
        tokens = list(request.tokens)
        for _ in range(request.max_new_tokens):
            batch = Batch.build([0], [0], [len(tokens)], torch.float32, "cpu")
            with torch.inference_mode():
                states, _ = target.forward(torch.tensor(tokens), batch, target.new_cache(1))
                tokens.append(int(target.logits(states[-1:]).argmax()))
            if tokens[-1] in target.config.end_tokens:
                break
        said[request.id] = tokens[len(request.tokens) :]
    return said


@pytest.fixture(scope="module")
def truth(models):
    return alone(models["target"], requests(N))


def test_without_speculation_requests_say_what_they_say_alone(models, truth):
    finished, _ = serve(make_engine(models["target"], max_num_seqs=5), requests(N))
    assert outputs(finished) == truth


@pytest.mark.parametrize(
    ("drafter", "arm"),
    [
        (drafter, arm)
        for drafter in ("block", "llama")
        for arm in ARMS
        if drafter == "block" or "head" not in arm
    ],
)
def test_greedy_output_is_the_targets_own_under_every_policy(models, truth, drafter, arm):
    engine = make_engine(models["target"], drafter, models[drafter], arm, max_num_seqs=7, refit_interval=5)
    finished, reports = serve(engine, requests(N))
    assert outputs(finished) == truth
    slots = [r.slots for r in reports if r.slots is not None]
    accepted, admitted = (sum(getattr(s, name).sum() for s in slots) for name in ("accepted", "admitted"))
    assert 0 < accepted < admitted  # drafts were kept, and refused


@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_requests_may_join_at_any_step(models, truth, drafter):
    engine = make_engine(models["target"], drafter, models[drafter], "adaptive", max_num_seqs=N)
    rng, waiting, finished = random.Random(3), requests(N), {}
    while waiting or engine.running or engine.waiting:
        for _ in range(rng.choice([0, 0, 1, 2])):
            if waiting:
                engine.add(waiting.pop())
        finished |= {f.sequence.request.id: f for f in engine.step().finished}
    assert outputs(finished) == truth


def test_prompts_longer_than_a_chunk_take_turns_with_decoding(models, truth):
    engine = make_engine(models["target"], "llama", models["llama"], "fixed:4", max_num_seqs=N, prefill=5)
    finished, reports = serve(engine, requests(N))
    assert outputs(finished) == truth
    assert max(r.prompt_tokens for r in reports) == 5
    assert any(r.prompt_tokens == 5 and r.drafted for r in reports)
    assert sum(r.prompt_tokens for r in reports) == sum(len(r.tokens) for r in requests(N))


def test_a_step_has_at_most_max_num_batched_tokens(models, truth):
    K, most = 4, 90
    engine = make_engine(
        models["target"], "llama", models["llama"], "fixed:4", max_num_seqs=N, max_num_batched_tokens=most
    )
    assert engine.config.prefill_tokens(K) == most - N * (K + 1) > 0
    finished, reports = serve(engine, requests(N))
    assert outputs(finished) == truth
    assert max(r.target_tokens for r in reports) <= most
    assert max(r.prompt_tokens for r in reports) == most - N * (K + 1)
    assert EngineConfig(max_num_seqs=64).batched_tokens(7) == 64 * 8 + 256


@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_waiting_prompts_leave_a_decoding_request_its_drafts(models, drafter):
    """Acceptance of a request does not depend on prompts being computed in slots around it."""

    def steps_of_last(prefill, others):
        engine = make_engine(
            models["target"], drafter, models[drafter], "fixed:4", max_num_seqs=8, prefill=prefill
        )
        long = [Request(i, [i + 1] * 60, 1, temperature=0.0) for i in range(others)]
        watched = Request(99, [3, 1, 4, 1, 5], 30, temperature=0.0)
        finished, reports = serve(engine, [*long[:3], watched, *long[3:]])
        counts = [len(new) for r in reports for request, new in r.emitted if request.id == 99]
        return outputs(finished)[99], counts

    assert steps_of_last(256, 0) == steps_of_last(7, 6)


@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_what_is_cached_is_what_the_target_computes(models, drafter):
    """After every step: keys and values of all verified positions, and the states at the last of them.

    Drafts write into the same cache and are refused, prompts take turns beside them; none of that may stay.
    """
    target = models["target"]
    engine = make_engine(target, drafter, models[drafter], "fixed:4", max_num_seqs=6, prefill=9)
    for request in requests(9, limit=10, longest=25):
        engine.add(request)
    engine.taps = (1, 2)
    engine.states = torch.zeros(6, 3 * LLAMA["hidden_size"])
    while engine.running or engine.waiting:
        engine.step()
        for s in (s for s in engine.sequences if s.cached):
            batch, cache = Batch.build([0], [0], [s.cached], torch.float32, "cpu"), target.new_cache(1)
            with torch.inference_mode():
                final, taps = target.forward(torch.tensor(s.tokens[: s.cached]), batch, cache, (1, 2))
            states = torch.cat([final, *taps], 1)[-1]
            torch.testing.assert_close(engine.states[s.cache_row], states, atol=1e-4, rtol=0)
            for ours, right in zip(
                (*engine.cache.keys, *engine.cache.values), (*cache.keys, *cache.values), strict=True
            ):
                ours, right = ours[s.cache_row, :, : s.cached], right[0, :, : s.cached]
                torch.testing.assert_close(ours, right, atol=1e-4, rtol=0)


def test_prompts_are_computed_in_order_of_arrival(models):
    """A low slot that is filled again and again does not go ahead of a prompt that waits in a high one."""
    engine = make_engine(models["target"], max_num_seqs=4, prefill=10)
    _, reports = serve(engine, [Request(i, [i + 1] * 10, 1) for i in range(12)])
    assert [f.sequence.request.id for r in reports for f in r.finished] == list(range(12))


def test_a_temperature_near_zero_is_greedy(models, truth):
    for temperature in (1e-5, 1e-6, 1e-300):
        engine = make_engine(models["target"], "llama", models["llama"], "fixed:4", max_num_seqs=N)
        finished, _ = serve(engine, requests(N, temperature=temperature))
        assert outputs(finished) == truth


def test_slots_full_means_waiting_in_line(models, truth):
    engine = make_engine(models["target"], "block", models["block"], "fixed:2", max_num_seqs=2)
    for request in requests(N):
        engine.add(request)
    first_seen, finished = [], {}
    while engine.running or engine.waiting:
        report = engine.step()
        assert report.running <= 2
        first_seen += [s.request.id for s in engine.sequences if s.request.id not in first_seen]
        first_seen += [
            f.sequence.request.id for f in report.finished if f.sequence.request.id not in first_seen
        ]
        finished |= {f.sequence.request.id: f for f in report.finished}
    assert outputs(finished) == truth
    assert all(abs(i - at) <= 1 for at, i in enumerate(first_seen))  # two at once, in order of arrival
    assert engine.cache.free_rows == 3  # two, and the one for a request served alone


@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_a_policy_switch_between_steps_changes_no_greedy_output(models, truth, drafter):
    engine = make_engine(models["target"], drafter, models[drafter], "none", max_num_seqs=6)
    arms = itertools.cycle(
        ["none", "adaptive", "fixed:4", SWITCHED[2], "none", "verify:2", "adaptive:raw", "fixed:1"]
    )
    for request in requests(N):
        engine.add(request)
    finished, arms_seen = {}, set()
    while engine.running or engine.waiting:
        if engine.step_number % 3 == 0:
            engine.set_policy(Arm.parse(next(arms)))
        report = engine.step()
        arms_seen.add(report.arm)
        finished |= {f.sequence.request.id: f for f in report.finished}
    assert outputs(finished) == truth
    assert len(arms_seen) >= 5


def test_another_arms_estimates_are_forgotten_at_a_switch(models):
    engine = make_engine(models["target"], "block", models["block"], "adaptive", max_num_seqs=6)
    for request in requests(4):
        engine.add(request)
    for _ in range(4):
        engine.step()
    known = np.array([s.earlier for s in engine.sequences])
    assert np.isfinite(known).any()
    engine.set_policy(Arm.parse("adaptive"))  # the same arm goes on
    np.testing.assert_array_equal([s.earlier for s in engine.sequences], known)
    engine.set_policy(Arm.parse("adaptive:raw"))
    assert np.isnan([s.earlier for s in engine.sequences]).all()


@pytest.mark.parametrize("drafter", ["block", "llama"])
@pytest.mark.parametrize("arm", ["none", "fixed:4", "adaptive"])
def test_the_token_limit_is_met_exactly(models, drafter, arm):
    engine = make_engine(models["target"], drafter, models[drafter], arm, max_num_seqs=6)
    asked = [Request(i, [i + 1, 2, 3], i + 1, temperature=i % 2, seed=i) for i in range(14)]
    finished, reports = serve(engine, asked)
    assert {i: len(said) for i, said in outputs(finished).items()} == {i: i + 1 for i in range(14)}
    assert {f.reason for f in finished.values()} == {"length"}
    assert sum(r.tokens for r in reports) == sum(range(1, 15))
    emitted = [(request.id, new) for r in reports for request, new in r.emitted]
    for i, said in outputs(finished).items():
        assert [t for request, new in emitted if request == i for t in new] == said


@pytest.mark.parametrize("arm", ["none", "fixed:4", "adaptive"])
def test_a_full_context_ends_a_request_at_the_same_token_under_every_policy(models, arm):
    target = Target(models["target"].folder, torch.float32, length=40)
    engine = make_engine(target, "llama", models["llama"], arm, max_num_seqs=3)
    asked = [Request(i, list(range(1, 10 + 6 * i)), 100, temperature=0.0) for i in range(5)]
    finished, _ = serve(engine, asked)
    assert {i: len(f.sequence.tokens) for i, f in finished.items()} == dict.fromkeys(range(5), engine.room)
    assert {f.reason for f in finished.values()} == {"length"}
    plain, _ = serve(make_engine(target, max_num_seqs=3), asked)
    said = outputs(plain)
    assert all(said[i][: len(out)] == out for i, out in outputs(finished).items())


def with_end(models, drafter, arm, asked, end):
    """Serve with some tokens declared end-of-text."""
    target = Target(models["target"].folder, torch.float32)
    object.__setattr__(target.config, "end_tokens", end)
    engine = make_engine(target, drafter, models[drafter] if drafter != "none" else None, arm, max_num_seqs=6)
    return serve(engine, asked)


@pytest.mark.parametrize("arm", ["fixed:4", "adaptive", "verify:2"])
def test_end_of_text_inside_an_accepted_draft_ends_the_request_there(models, truth, arm):
    common = np.bincount(np.concatenate(list(truth.values())), minlength=V).argsort()[-3:]
    end = tuple(int(t) for t in common)
    expected = {
        i: said[: next((j + 1 for j, t in enumerate(said) if t in end), len(said))]
        for i, said in truth.items()
    }
    finished, reports = with_end(models, "llama", arm, requests(N), end)
    assert outputs(finished) == expected
    for i, f in finished.items():
        assert f.reason == ("end" if expected[i][-1] in end else "length")
    inside = 0
    for report in (r for r in reports if r.slots is not None):
        new = {request.id: tokens for request, tokens in report.emitted}
        for row, i in enumerate(report.slots.request):
            accepted, label = report.slots.accepted[row], report.slots.label[row]
            assert accepted <= len(new[i])
            if new[i][-1] in end and accepted == len(new[i]):  # the end was a draft
                inside += 1
                assert (label[:accepted] == 1).all() and (label[accepted:] == -1).all()
    assert inside > 3


def test_cancel_takes_a_request_out_wherever_it_is(models, truth):
    engine = make_engine(models["target"], "llama", models["llama"], "adaptive", max_num_seqs=3)
    asked = [r for r in requests(N) if r.max_new_tokens > 12][:5]
    for request in asked:
        engine.add(request)
    engine.step()
    engine.step()
    ended = engine.cancel(asked[1].id)
    said = ended.sequence.tokens[len(asked[1].tokens) :]
    assert ended.reason == "cancelled" and said == truth[asked[1].id][: len(said)]
    assert engine.cancel(asked[4].id) is None and engine.waiting == 1  # it was still in line
    assert engine.cancel(12345) is None
    finished, _ = serve(engine, [])
    assert outputs(finished) == {r.id: truth[r.id] for r in (asked[0], asked[2], asked[3])}
    assert engine.cache.free_rows == 4


def test_a_slot_is_used_again_without_a_trace(models, truth):
    engine = make_engine(models["target"], "llama", models["llama"], "fixed:4", max_num_seqs=1)
    finished, _ = serve(engine, requests(N)[::-1])
    assert outputs(finished) == truth


def test_a_cache_that_cannot_be_held_is_a_lack_of_memory():
    for length in (10**7, 10**15):
        with pytest.raises(MemoryError, match="no room for"):
            KVCache(1, 4096, 8, length, 64, torch.float32, "cpu")


def test_an_idle_step_does_nothing(models):
    engine = make_engine(models["target"], "block", models["block"], "adaptive")
    report = engine.step()
    assert (engine.step_number, report.running, report.tokens, report.slots) == (0, 0, 0, None)
    assert engine.policy.estimator.steps == 0


@pytest.mark.parametrize("drafter", ["none", "block", "llama"])
def test_the_same_seeds_give_the_same_tokens(models, drafter):
    def run(order=1):
        arm = "none" if drafter == "none" else "adaptive"
        engine = make_engine(models["target"], drafter, models.get(drafter), arm, max_num_seqs=6)
        return outputs(serve(engine, requests(16, temperature=0.9, top_p=0.9)[::order])[0])

    assert run() == run()


def test_without_drafts_a_sampled_request_does_not_depend_on_its_company(models):
    """Its noise is its own; with drafts its company decides what is verified, and it is the same in distribution."""
    asked = requests(12, temperature=1.0)
    together = outputs(serve(make_engine(models["target"], max_num_seqs=12), asked)[0])
    apart = outputs(serve(make_engine(models["target"], max_num_seqs=1), asked)[0])
    assert together == apart


@pytest.mark.parametrize("seed", [-1, 2**63 - 1, 2**63, 2**64 + 5])
def test_any_whole_number_is_a_seed(models, seed):
    engine = make_engine(models["target"], "block", models["block"], "adaptive")
    finished, _ = serve(engine, [Request(0, [1, 2], 5, seed=seed), Request(1, [1, 2], 5, seed=seed)])
    assert [len(said) for said in outputs(finished).values()] == [5, 5]


BAD = {
    "empty prompt": {"tokens": []},
    "outside the target's vocabulary": {"tokens": [1, V]},
    "outside the target's vocabulary ": {"tokens": [-1]},
    "the context holds": {"tokens": [1] * 509},
    "ask for 1 or more": {"max_new_tokens": 0},
    "temperature": {"temperature": -0.5},
    "temperature ": {"temperature": float("nan")},
    "temperature  ": {"temperature": float("inf")},
    "top_p": {"top_p": 0.0},
    "top_p ": {"top_p": 1.5},
    "top_p  ": {"top_p": float("nan")},
    "top_k": {"top_k": -1},
}


@pytest.mark.parametrize(("says", "change"), BAD.items())
def test_a_request_that_cannot_be_served_is_refused_with_one_sentence(models, says, change):
    engine = make_engine(models["target"], "block", models["block"], "adaptive")
    with pytest.raises(RequestError, match=says.strip()) as error:
        engine.add(Request(**{"id": 7, "tokens": [1, 2], **change}))
    assert "Request 7" in str(error.value) and "\n" not in str(error.value)
    assert engine.waiting == 0


def test_the_longest_prompt_that_fits_is_served(models):
    engine = make_engine(models["target"], "block", models["block"], "fixed:4")
    finished, _ = serve(engine, [Request(0, [1] * (engine.room - 1), 10)])
    assert len(outputs(finished)[0]) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_surplus_of_accepted_drafts_has_the_mean_zero(models, temperature):
    engine = make_engine(models["target"], "block", models["block"], "fixed:4", max_num_seqs=6)
    asked = [Request(i, [i % 9 + 1, 2, 3], 40, temperature=temperature, seed=i) for i in range(60)]
    reports = serve(engine, asked)[1]
    surplus = np.array([report.surplus for report in reports])
    if temperature:
        assert surplus.std() > 0.3 and abs(surplus.mean()) < 4 * surplus.std() / len(surplus) ** 0.5
    else:
        np.testing.assert_allclose(surplus, 0.0, atol=1e-4)  # no coin decides
