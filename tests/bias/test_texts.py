"""What a rule does to text: the sums, their intervals, and the engine's own rows behind every token."""

import numpy as np
import pytest
import torch
from tiny_models import write_block_drafter, write_llama

from avlab.bias.audit.answers import Answers
from avlab.bias.audit.rules import AuditError, parse
from avlab.bias.text_measures import Texts, differences, intervals, repetition, within_noise
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.engine import Engine
from avlab.engine.target import Target
from avlab.training.model import DrafterShape

PROMPTS = [[1, 5, 7, 2, 9, 4 + i % 40] for i in range(60)]


def sums(random, count, shift=0.0):
    """Outputs of ten tokens drawn from a law of four tokens, or from one that is sharper."""
    law = np.array([0.4, 0.3, 0.2, 0.1])
    drawn_from = law + shift * np.array([1, 0, 0, -1])
    entropy = -(law * np.log(law)).sum()
    rows = []
    for _ in range(count):
        tokens = random.choice(4, 10, p=drawn_from)
        rows.append((10, np.log(law[tokens]).sum(), 10 * entropy, *repetition(tokens.tolist())))
    return Texts.of(rows)


def test_repetition_counts_runs_that_came_before():
    assert repetition([1, 2, 3, 4]) == (0, 1)
    assert repetition([1, 2, 3]) == (0, 0)
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == (1, 5)
    assert repetition([7] * 9) == (5, 6)


def test_intervals_hold_the_truth_as_often_as_they_say():
    random = np.random.default_rng(1)
    law = np.array([0.4, 0.3, 0.2, 0.1])
    due = (law * np.log(law)).sum()
    held = excess = 0
    for trial in range(150):
        found = intervals(sums(random, 60), seed=trial)
        _, low, high = found["log_probability"]
        held += low <= due <= high
        excess += not within_noise(found["excess"])
    assert 0.88 <= held / 150 <= 0.99 and excess / 150 <= 0.12


def test_a_sharper_sampler_is_seen_and_an_equal_one_is_not():
    random = np.random.default_rng(2)
    plain, again, sharp = (sums(random, 200, shift) for shift in (0.0, 0.0, 0.06))
    assert within_noise(differences(again, plain)["excess"]) and within_noise(intervals(plain)["excess"])
    found = differences(sharp, plain)
    assert found["log_probability"][1] > 0 and found["excess"][1] > 0
    assert intervals(sharp)["excess"][1] > 0


def test_pairs_are_kept_together():
    """Requests that differ much and answers that differ little: only the paired difference sees it."""
    random = np.random.default_rng(3)
    base = random.normal(-30, 10, 50)
    rows = [Texts.of([(10, x + shift, 20, 0, 7) for x in base]) for shift in (0.0, 0.5)]
    estimate, low, high = differences(rows[1], rows[0])["log_probability"]
    assert estimate == pytest.approx(0.05) and high - low < 1e-9
    wide = intervals(rows[0])["log_probability"]
    assert wide[2] - wide[1] > 0.2


def test_without_runs_there_is_no_repetition_to_speak_of():
    texts = Texts.of([(2, -3.0, 3.0, 0, 0)] * 4)
    assert np.isnan(intervals(texts)["repetition"]).all()
    assert within_noise(differences(texts, texts)["repetition"])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    path = write_llama(folder / "target", seed=3, sharpness=2.0)
    shape = DrafterShape(
        K=4, key_layers=(1, 2, 3), state_layers=(1, 2), input_width=24, markov_rank=8, draft_vocabulary=32
    )
    target = Target(path, torch.float32, length=128)
    return target, BlockDrafter(write_block_drafter(folder / "block", path, shape), target, 3)


def answered(models, rule, prompts=PROMPTS, **settings):
    answers = Answers(*models, prompts, parse(rule), 24, **settings)
    *_, ended = answers.serve()
    assert ended == len(prompts)
    return answers


def test_what_is_summed_is_what_the_target_says_of_the_text(models):
    """The rows that the engine sampled from, against the target's own pass over each finished text."""
    target, _ = models
    for rule in ("fixed:3", "maximum:0.2", "none", "drawn:0.2"):
        answers = answered(models, rule, PROMPTS[:20], temperature=0.8)
        assert type(answers.engine) is Engine and "step" not in vars(answers.engine)
        for number, prompt in enumerate(PROMPTS[:20]):
            new = answers.tokens[number]
            text = prompt + new
            batch = target.batch([0], [0], [len(text)])
            with torch.inference_mode():
                states, _ = target.forward(torch.tensor(text), batch, target.new_cache(1))
                log_p = (target.logits(states[len(prompt) - 1 : -1]) / 0.8).double().log_softmax(1)
            due = log_p[torch.arange(len(new)), torch.tensor(new)].sum()
            entropy = -(log_p.exp() * log_p).sum()
            np.testing.assert_allclose(answers.said[number], [due, entropy], rtol=1e-4, atol=1e-3)


def test_the_excess_tells_an_unsound_rule_from_a_sound_one(models):
    found = {
        rule: intervals(answered(models, rule, PROMPTS * 3).texts())
        for rule in ("maximum:0.15", "drawn:0.15")
    }
    assert within_noise(found["maximum:0.15"]["excess"])
    assert not within_noise(found["drawn:0.15"]["excess"])


def test_what_makes_no_texts_is_said(models):
    with pytest.raises(AuditError, match="cost that is set for one prompt"):
        Answers(*models, PROMPTS, parse("budget:same-step"), 8)
    with pytest.raises(AuditError, match="temperature 0"):
        Answers(*models, PROMPTS, parse("none"), 8, temperature=0.0)
