"""A recorded trace is what the engine would have drafted and accepted: exactly where nothing is drawn, else in law."""

import numpy as np
import pytest
import torch
from tiny_models import make_engine, serve, write_block_drafter, write_llama

from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafters.llama import LlamaDrafter
from avlab.engine.recording.chances import Chances, Sampling
from avlab.engine.recording.parts import Part
from avlab.engine.recording.recorder import Recorder
from avlab.engine.recording.texts import Text
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.replay.about import About
from avlab.replay.trace import read_trace, write_trace
from avlab.speculation.coupling import follow_probability

LIMIT, K = 40, 4


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    target = write_llama(folder / "target", sharpness=2.5)
    drafter = write_block_drafter(folder / "drafter", target, vocabulary=range(32))
    return target, drafter, write_llama(folder / "small", seed=1, sharpness=2.5, num_hidden_layers=2)


def requests(count, temperature, top_p=1.0):
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 64, int(n)).tolist() for n in rng.integers(3, 12, count)]
    return [
        Request(i, prompt, LIMIT, temperature, top_p=top_p, seed=i + 7, kind="verse")
        for i, prompt in enumerate(prompts)
    ]


def recorded(models, count, temperature, top_p=1.0, kind="block"):
    """A trace of what the target alone writes, and those texts."""
    folder, drafter, _ = models
    finished, _ = serve(make_engine(folder), requests(count, temperature, top_p))
    texts = [
        Text("verse", s.request.tokens, s.tokens[len(s.request.tokens) :], LIMIT, s.request.seed)
        for s in (finished[i].sequence for i in range(count))
    ]
    target = Target(folder, torch.float32)
    made = BlockDrafter(drafter, target, K) if kind == "block" else LlamaDrafter(models[2], target, 1, K)
    recorder = Recorder(target, made, Sampling(temperature, top_p), seed=3)
    about = About(K, made.features, "tiny", "block", 3, temperature, top_p, 0)
    return Part.of(texts, [recorder.record(text) for text in texts]).trace(about), texts


@pytest.mark.parametrize("kind", ["block", "llama"])
def test_greedy_anchors_are_the_engines_steps(models, kind):
    """A greedy engine walks its text by the recorded lengths, and sees the recorded features at each anchor."""
    trace, texts = recorded(models, 6, 0.0, kind=kind)
    assert trace.behind is None and trace.anchors == 6 * (LIMIT - 1)
    engine = make_engine(models[0], kind, models[1] if kind == "block" else models[2], "fixed:4")
    for i, request in enumerate(requests(6, 0.0)):
        finished, reports = serve(engine, [request])
        assert finished[i].sequence.tokens == texts[i].prompt + texts[i].output
        at = 0
        for report in (each for each in reports if each.slots is not None):
            anchor, offered = trace.first[i] + at, int(report.slots.scheduled[0])
            assert int(report.slots.accepted[0]) == min(int(trace.accepted[anchor]), offered)
            for name in trace.about.features:
                here = report.slots.features[name][0, :offered]
                there = trace.features[anchor, :offered, trace.about.features.index(name)]
                np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-3)
            at += int(report.slots.accepted[0]) + 1


def walk(trace, text):
    """The anchors that an engine which verifies whole drafts stands at."""
    at, found = 0, []
    while at < trace.output_tokens[text] - 1:
        found.append(trace.first[text] + at)
        offered = min(K, trace.limit[text] - at - 2)
        at += min(int(trace.accepted[found[-1]]), offered) + 1
    return np.array(found)


@pytest.mark.parametrize(
    ("temperature", "top_p", "kind"), [(1.0, 1.0, "block"), (0.7, 0.9, "block"), (0.7, 0.9, "llama")]
)
def test_sampled_anchors_have_the_engines_law(models, temperature, top_p, kind):
    """Acceptance by position, given the positions before, against an engine that verifies everything it drafts."""
    trace, _ = recorded(models, 150, temperature, top_p, kind)
    _, reports = serve(
        make_engine(models[0], kind, models[1] if kind == "block" else models[2], "fixed:4", max_num_seqs=16),
        requests(150, temperature, top_p),
    )
    label = np.concatenate([each.slots.label for each in reports if each.slots is not None])
    visited = np.concatenate([walk(trace, i) for i in range(trace.texts)])
    left = np.concatenate([np.arange(n - 1, 0, -1) for n in trace.output_tokens])
    for k in range(K):
        known = label[label[:, k] >= 0, k]
        reached = visited[(trace.accepted[visited] >= k) & (left[visited] > k + 1)]
        served, here = known.mean(), (trace.accepted[reached] > k).mean()
        error = np.sqrt(served * (1 - served) / len(known) + here * (1 - here) / len(reached))
        assert abs(served - here) < 4.5 * error + 1e-9, k
        true = trace.acceptance[reached, k].mean()
        assert abs(true - here) < 4.5 * np.sqrt(here * (1 - here) / len(reached)) + 1e-9, k
    assert ((trace.acceptance >= 0) & (trace.acceptance < 1.0001)).all()


def test_the_draws_on_tensors_are_the_couplings(models):
    """Following by tensors against `follow_probability`, where the drafter lacks some of the tokens."""
    target = Target(models[0], torch.float32)
    recorder = Recorder(target, BlockDrafter(models[1], target, K), Sampling(1.0), seed=0)
    rng, n = np.random.default_rng(0), 20_000
    p, q = rng.dirichlet(np.ones(64)), rng.dirichlet(np.ones(32))
    text = rng.choice(64, n, p=p)
    column = np.where(text < 32, text, -1)
    of_target, of_draft = (torch.tensor(np.tile(each, (n, 1)), dtype=torch.float32) for each in (p[:32], q))
    nothing = torch.empty(n, 0)
    follows, drawn = recorder._coupled(
        Chances(of_target, nothing.long(), nothing),
        of_draft,
        torch.tensor(p[text], dtype=torch.float32),
        torch.tensor(column),
        rng,
    )
    wide = np.concatenate([q, np.zeros(32)])
    due = follow_probability(np.tile(p, (n, 1)), np.tile(wide, (n, 1)), text)
    assert follows.numpy().mean() == pytest.approx(due.mean(), abs=4 * 0.5 / np.sqrt(n))
    assert (drawn.numpy()[follows.numpy()] == text[follows.numpy()]).all()
    np.testing.assert_allclose(np.bincount(drawn.numpy(), minlength=32) / n, q, atol=5 * 0.5 / np.sqrt(n))


def test_a_recording_and_its_file_are_one_trace(models, tmp_path):
    """A replay of either gives the same: also of slots at which no draft left the text."""
    trace, _ = recorded(models, 6, 1.0)
    write_trace(trace, tmp_path / "own.parquet")
    read = read_trace(tmp_path / "own.parquet")
    assert not np.isnan(trace.behind).all((0, 1, 3)).any()
    for name in ("features", "behind", "accepted", "acceptance"):
        np.testing.assert_array_equal(getattr(read, name), getattr(trace, name))
    write_trace(read, tmp_path / "again.parquet")
    assert (tmp_path / "own.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()
