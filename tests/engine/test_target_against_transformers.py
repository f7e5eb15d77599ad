"""Our forward pass gives the logits of transformers' Llama: prefill, decode, ragged batches, every served option."""

import random

import pytest
import torch
from tiny_models import LLAMA, write_llama
from transformers import LlamaForCausalLM

from avlab.engine import linear
from avlab.engine.cache import Batch, neighbours
from avlab.engine.fetch import fetch
from avlab.engine.target import Target

OPTIONS = {
    "grouped heads, tied": {},
    "untied": {"tie_word_embeddings": False},
    "one head a key": {"num_key_value_heads": 4},
    "one key for all": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 16},
    "biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    "linear rope": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "linear rope, old spelling": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama3 rope": {
        "rope_theta": 500.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "new spelling of rope": {
        "rope_theta": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
    },
}
V = LLAMA["vocab_size"]
# float32: two orders of the same sums, about 30 additions deep, on logits of up to 6
FLOAT32 = 5e-5


def texts(seed, n, longest):
    rng = random.Random(seed)
    return [[rng.randrange(V) for _ in range(rng.randint(1, longest))] for _ in range(n)]


def theirs(model, tokens):
    """Logits of every position, [n, V]."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].float()


def serve_raggedly(target, tokens, slots, seed, most):
    """Feed each text into its slot in uneven pieces, several texts at a time; logits of every position."""
    rng, cache = random.Random(seed), target.new_cache(max(slots) + 1)
    done, logits = [0] * len(tokens), [[] for _ in tokens]
    while any(d < len(t) for d, t in zip(done, tokens, strict=True)):
        open_ = [i for i, t in enumerate(tokens) if done[i] < len(t)]
        live = sorted(rng.sample(open_, rng.randint(1, len(open_))), key=lambda i: slots[i])
        counts = [min(rng.choice([1, 1, 2, 5, most]), len(tokens[i]) - done[i]) for i in live]
        batch = Batch.build([slots[i] for i in live], [done[i] for i in live], counts, target.dtype, "cpu")
        rows = [t for i, n in zip(live, counts, strict=True) for t in tokens[i][done[i] : done[i] + n]]
        with torch.inference_mode():
            states, _ = target.forward(torch.tensor(rows), batch, cache)
            out = target.logits(states).split(counts)
        for i, n, part in zip(live, counts, out, strict=True):
            logits[i].append(part)
            done[i] += n
    return [torch.cat(parts) for parts in logits]


@pytest.mark.parametrize("option", OPTIONS)
def test_prefill_and_ragged_decoding_in_float32(tmp_path, option):
    folder = write_llama(tmp_path, seed=2, **OPTIONS[option])
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    target = Target(folder, torch.float32)
    tokens = texts(0, 12, 70)
    expected = [theirs(model, t) for t in tokens]
    slots = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 20]  # neighbours and holes
    for most in (3, 40):  # decoding with drafts; prompts beside it
        for ours, right in zip(serve_raggedly(target, tokens, slots, 1, most), expected, strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, right, atol=FLOAT32, rtol=0)


def test_a_slot_that_was_used_before_leaves_no_trace(tmp_path):
    target = Target(write_llama(tmp_path, seed=2), torch.float32)
    cache = target.new_cache(2)
    for keys in (*cache.keys, *cache.values):
        keys.normal_(std=5)
    short, long = texts(3, 1, 9)[0], texts(4, 1, 40)[0]
    batch = Batch.build([0, 1], [0, 0], [len(short), len(long)], torch.float32, "cpu")
    with torch.inference_mode():
        dirty, _ = target.forward(torch.tensor(short + long), batch, cache)
        clean, _ = target.forward(torch.tensor(short + long), batch, target.new_cache(2))
    torch.testing.assert_close(dirty, clean, atol=0, rtol=0)


@pytest.mark.parametrize("option", ["grouped heads, tied", "biases"])
def test_plain_products_do_the_same_as_packed_ones(tmp_path, monkeypatch, option):
    """What runs on CUDA, and on processors that oneDNN does not pack for."""
    folder, tokens = write_llama(tmp_path, seed=2, **OPTIONS[option]), texts(7, 5, 30)
    packed = serve_raggedly(Target(folder, torch.float32), tokens, range(5), 1, 9)
    monkeypatch.setattr(linear, "PACKS", False)
    plain = serve_raggedly(Target(folder, torch.float32), tokens, range(5), 1, 9)
    for ours, right in zip(plain, packed, strict=True):
        torch.testing.assert_close(ours, right, atol=FLOAT32, rtol=0)


def test_tapped_states_are_the_inputs_of_the_layers(tmp_path):
    folder = write_llama(tmp_path, seed=2)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    target = Target(folder, torch.float32)
    tokens = texts(5, 1, 30)[0]
    with torch.inference_mode():
        hidden = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        batch = Batch.build([0], [0], [len(tokens)], torch.float32, "cpu")
        final, taps = target.forward(torch.tensor(tokens), batch, target.new_cache(1), (1, 3))
    torch.testing.assert_close(taps[0], hidden[1][0], atol=FLOAT32, rtol=0)
    torch.testing.assert_close(taps[1], hidden[3][0], atol=FLOAT32, rtol=0)
    torch.testing.assert_close(final, hidden[-1][0], atol=FLOAT32, rtol=0)


def test_bfloat16_is_as_close_to_the_truth_as_transformers_is(tmp_path):
    """bfloat16 keeps 8 bits: two correct programs differ by as much as either differs from float32."""
    folder = write_llama(tmp_path, seed=2, tie_word_embeddings=False)
    truth = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    target = Target(folder, torch.bfloat16)
    tokens = texts(6, 10, 60)
    right = torch.cat([theirs(truth, t) for t in tokens])
    ours = torch.cat(serve_raggedly(target, tokens, list(range(10)), 2, 20)) - right
    rough = torch.cat([theirs(model, t) for t in tokens]) - right
    assert ours.dtype == torch.float32
    assert ours.square().mean().sqrt() < 1.5 * rough.square().mean().sqrt()
    assert ours.abs().max() < 3 * rough.abs().max()


@pytest.fixture(scope="module")
def default_target():
    return fetch()


@pytest.mark.model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_default_target(default_target, dtype):
    """float32 within 2e-3 on logits of up to 30 (30 layers deep); bfloat16 as close to float32 as transformers'."""
    model = LlamaForCausalLM.from_pretrained(default_target, dtype=torch.float32, attn_implementation="eager")
    target = Target(default_target, dtype, length=256)
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randint(0, 49152, (n,), generator=generator).tolist() for n in (3, 17, 40)]
    right = torch.cat([theirs(model, t) for t in tokens])
    ours = torch.cat(serve_raggedly(target, tokens, [0, 1, 4], 2, 20))
    if dtype == torch.float32:
        torch.testing.assert_close(ours, right, atol=2e-3, rtol=0)
        assert (ours.argmax(1) == right.argmax(1)).all()
    else:
        rough = torch.cat([theirs(model.bfloat16(), t) for t in tokens])
        assert (ours - right).square().mean() < 1.5**2 * (rough - right).square().mean()
        assert (ours.argmax(1) == right.argmax(1)).float().mean() > 0.7


def test_slots_are_grouped_while_padding_is_cheap():
    assert neighbours([0, 1, 2, 5], [300, 310, 320, 300], [1, 1, 3, 1]) == [
        (0, 3),
        (3, 4),
    ]  # a hole ends a group
    assert neighbours([0, 1, 2], [2000, 100, 100], [1, 1, 1]) == [(0, 1), (1, 3)]  # so does a long neighbour
    assert neighbours([0, 1, 2], [100, 2000, 1900], [1, 1, 1]) == [(0, 1), (1, 3)]
    assert neighbours([0, 1, 2], [300, 300, 300], [1, 200, 1]) == [
        (0, 1),
        (1, 2),
        (2, 3),
    ]  # a prompt stays alone
