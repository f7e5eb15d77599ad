"""Recorded drafts of drafters without logits: those of serving, and the target's chance of each."""

import numpy as np
import pytest
import torch
from tiny_models import costs, serve, write_llama

from avlab.engine.drafters.ngram import NgramDrafter, NgramOptions
from avlab.engine.drafters.suffix import SuffixDrafter, SuffixOptions
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.recording.chances import Sampling
from avlab.engine.recording.lookups import LookupRecorder
from avlab.engine.recording.parts import Part
from avlab.engine.recording.texts import Text
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.experiments.estimator_learning import fully_verified
from avlab.machines import machine
from avlab.policies.arm import Arm
from avlab.policies.base import PolicyContext, make_policy
from avlab.replay.about import About
from avlab.replay.rates import rates_of
from avlab.replay.serving import Replay
from avlab.replay.trace import read_trace, write_trace

K = 4
MADE = {
    "ngram": lambda: NgramDrafter(K, NgramOptions(prompt_lookup_min=1, prompt_lookup_max=3)),
    "suffix": lambda: SuffixDrafter(K, SuffixOptions(suffix_decoding_max_cached_requests=0)),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return Target(write_llama(tmp_path_factory.mktemp("lookups") / "target", sharpness=3.0), torch.float32)


def served(target, drafter, temperature, policy="fixed:4"):
    """Requests that a real engine served with this drafter: their texts, and the steps that each took."""
    config = EngineConfig(max_num_seqs=4)
    engine = Engine(target, drafter, costs(K, 4), config, Arm.parse(policy))
    requests = [Request(i, [5, 6, 7, 5, 6, i], 50, temperature, seed=i) for i in range(12)]
    finished, _ = serve(engine, requests)
    texts = [
        Text("self", f.sequence.request.tokens, f.sequence.tokens[f.sequence.prompt_length :], 50, seed=i)
        for i, f in sorted(finished.items())
    ]
    return texts, [finished[i].sequence.steps for i in sorted(finished)]


def recorded(target, make, texts, temperature):
    recorder = LookupRecorder(target, make(), Sampling(temperature))
    about = About(K, recorder.drafter.features, "tiny", "lookup", 0, temperature, 1.0, 0)
    return Part.of(texts, [recorder.record(text) for text in texts]).trace(about)


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_walk_along_the_trace_takes_the_steps_that_serving_took(target, kind, temperature, tmp_path):
    """The drafts follow from the text, so that every served step is known: also where the text was drawn."""
    texts, steps = served(target, MADE[kind](), temperature)
    trace = recorded(target, MADE[kind], texts, temperature)
    write_trace(trace, tmp_path / "trace.parquet")
    again = read_trace(tmp_path / "trace.parquet")
    assert np.array_equal(again.drafted, trace.drafted) and again.behind is None
    assert 0 in trace.drafted and K in trace.drafted
    walked = np.bincount(fully_verified(again).text, minlength=len(texts))
    assert (walked + 1).tolist() == steps  # and the step that wrote the first token


@pytest.mark.parametrize("kind", MADE)
def test_the_chance_of_a_copied_token_is_the_targets(target, kind):
    texts, _ = served(target, None, 1.0, "none")
    trace = recorded(target, MADE[kind], texts, 1.0)
    drafter, looked = MADE[kind](), 0
    for number, text in enumerate(texts[:3]):
        tokens, cache = text.prompt + text.output, target.new_cache(1)
        states, _ = target.forward(torch.tensor(tokens), target.batch([0], [0], [len(tokens)]), cache)
        p = target.logits(states).softmax(-1)
        for i in range(len(text.output) - 1):
            at = len(text.prompt) + i
            copied = drafter.look_up(0, tokens[: at + 1], K)
            anchor = trace.first[number] + i
            assert trace.drafted[anchor] == len(copied.tokens)
            for k, token in enumerate(copied.tokens[: trace.accepted[anchor] + 1]):
                if i + k < len(text.output) - 1:
                    assert trace.acceptance[anchor, k] == pytest.approx(float(p[at + k, token]), abs=2e-3)
                    looked += 1
        drafter.forget(0)
    assert looked > 30


def test_what_was_not_drafted_is_not_counted(target):
    texts, _ = served(target, None, 1.0, "none")
    trace = recorded(target, MADE["ngram"], texts, 1.0)
    slots = fully_verified(trace)
    assert np.isfinite(slots.features["match_length"][slots.labels.labelled]).all()
    drafted = trace.drafted > 0
    assert rates_of(trace)[0] == pytest.approx((trace.accepted[drafted & (trace.left() > 0)] > 0).mean())
    b300 = machine("b300-deepseek-v4-flash-tp4", K)
    for policy in ("adaptive:matches", "adaptive:converged+depth+stop", "fixed:4"):
        context = PolicyContext(K, b300.table(4 * trace.typical_length()))
        replay = Replay(trace, b300, make_policy(Arm.parse(policy), context), 4, seed=0)
        for _ in range(60):
            _, decoding = replay.watched_step()
            if decoding.features is not None:
                none = np.isnan(decoding.features["match_length"]).all(1)
                assert (decoding.scheduled[none] == 0).all() and (
                    decoding.admitted <= decoding.scheduled
                ).all()
