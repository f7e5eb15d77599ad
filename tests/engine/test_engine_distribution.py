"""What the engine samples is distributed as the target alone would have it, over several steps, by enumeration."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from tiny_models import make_engine, outputs, serve, write_block_drafter, write_llama

from avlab.engine.cache import Batch
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.speculation.sampling import target_distribution
from avlab.training.model import DrafterShape

N = 2500
PROMPT = [0, 2, 1, 1, 0, 2]
# K = 2: five tokens take at least two steps with drafts. With more tokens to choose from, a refused draft leaves
# several, and noise that had a part in the draft would show in the choice among them
VOCABULARY_AND_LENGTH = {"deep": (3, 5), "wide": (9, 3)}


def shape(V):
    return DrafterShape(
        K=2, key_layers=(1,), state_layers=(1,), input_width=16, markov_rank=4, draft_vocabulary=V - 1
    )


def tiny(V):
    return {
        "vocab_size": V,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "sharpness": 2.0,
    }


@pytest.fixture(scope="module", params=VOCABULARY_AND_LENGTH)
def models(request, tmp_path_factory):
    folder, (V, length) = tmp_path_factory.mktemp("models"), VOCABULARY_AND_LENGTH[request.param]
    target = write_llama(folder / "target", seed=3, num_hidden_layers=2, **tiny(V))
    return {
        "V": V,
        "length": length,
        "target": Target(target, torch.float32),
        "block": write_block_drafter(folder / "block", target, shape(V)),
        "llama": write_llama(folder / "llama", seed=8, num_hidden_layers=1, **tiny(V)),
    }


def law(models, temperature, top_k, top_p):
    """Chance of every continuation of the prompt, [V ** length], in lexicographic order."""
    target, V, chance = models["target"], models["V"], np.ones(1)
    for length in range(models["length"]):
        texts = [[*PROMPT, *said] for said in itertools.product(range(V), repeat=length)]
        cache, n = target.new_cache(len(texts)), len(PROMPT) + length
        batch = Batch.build(range(len(texts)), [0] * len(texts), [n] * len(texts), torch.float32, "cpu")
        with torch.inference_mode():
            states, _ = target.forward(torch.tensor(texts).flatten(), batch, cache)
            logits = target.logits(states.view(len(texts), n, -1)[:, -1]).numpy()
        chance = (chance[:, None] * target_distribution(logits, temperature, top_k, top_p)).ravel()
    return chance


def g_test(counts, law):
    """p-value of the G-test, cells expected fewer than five times joined."""
    expected = law * counts.sum()
    assert not counts[expected == 0].any()
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    used = expected > 0
    return stats.power_divergence(counts[used], expected[used], lambda_="log-likelihood").pvalue


PLAIN, CUT = (1.0, 0, 1.0), (0.7, 2, 0.9)


@pytest.mark.parametrize(
    ("drafter", "arm", "sampling"),
    [
        ("block", "adaptive", PLAIN),
        ("block", "adaptive:head", CUT),
        ("llama", "adaptive", PLAIN),
        ("llama", "fixed:2", CUT),
        ("block", "adaptive+depth+explore=0.3", PLAIN),
        ("llama", "adaptive:raw+depth", PLAIN),
    ],
)
def test_samples_follow_the_targets_law(models, drafter, arm, sampling):
    slots = 8 if arm == "adaptive:raw+depth" else 100  # among 100 no draft of its is worth its price
    engine = make_engine(
        models["target"], drafter, models[drafter], arm, max_num_seqs=slots, K=2, bump=0.6, refit_interval=7
    )
    (temperature, top_k, top_p), V, length = sampling, models["V"], models["length"]
    asked = [
        Request(i, PROMPT, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=i)
        for i in range(N)
    ]
    finished, reports = serve(engine, asked)
    index = [int("".join(map(str, said)), V) for said in outputs(finished).values()]
    counts = np.bincount(index, minlength=V**length)
    assert g_test(counts, law(models, temperature, top_k, top_p)) > 1e-3
    seen = [r.slots for r in reports if r.slots is not None]
    accepted = sum(s.accepted.sum() for s in seen)
    assert 0.1 * N < accepted < sum(s.admitted.sum() for s in seen)
    if "+depth" in arm and length == 5:
        assert len({r.drafted for r in reports if r.admission}) > 1
    elif arm.startswith("adaptive") and length == 5:  # some drafts were trimmed, some were not
        scheduled, admitted = (
            np.concatenate([getattr(s, n) for s in seen]) for n in ("scheduled", "admitted")
        )
        assert (admitted < scheduled).any() and ((admitted == scheduled) & (scheduled > 0)).any()
