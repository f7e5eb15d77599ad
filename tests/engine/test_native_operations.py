"""The native operations against their plain forms, in every shape that serving gives them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from avlab.engine import native
from avlab.engine.cache import Batch, KVCache
from avlab.engine.checkpoint import Weights
from avlab.engine.drafters.draws import Draws, row_features
from avlab.engine.linear import Linear
from avlab.engine.model_config import ModelConfig
from avlab.engine.native import building, native_for
from avlab.engine.rows import draw_rows, log_sum_exp
from avlab.engine.sampler import SamplingParameters, nucleus
from avlab.engine.target import Layer, Stack, attend, rotate
from avlab.speculation.features import FEATURES

CPU = torch.device("cpu")


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request):
    if native_for(request.param, CPU) is None:
        pytest.skip("there is no compiler on this machine")
    return request.param


def close(one, other, dtype, scale: float = 1.0):
    torch.testing.assert_close(
        one.float(), other.float(), rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=scale * 1e-5
    )


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_rms_norm(dtype, rows):
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 576).to(dtype), torch.rand(576).to(dtype)
    close(native_for(dtype, CPU).rms_norm(x, weight, 1e-5), F.rms_norm(x, (576,), weight, 1e-5), dtype)


@pytest.mark.parametrize("width", [2, 7, 34, 576])
@pytest.mark.parametrize("rows", [*range(1, 14), 27, 64, 100])
def test_products_of_any_number_of_rows(dtype, rows, width):
    torch.manual_seed(rows)
    x, weight, bias = (
        torch.randn(rows, width).to(dtype),
        torch.randn(50, width).to(dtype),
        torch.randn(50).to(dtype),
    )
    other, plain = torch.randn(rows, 3, 50).to(dtype)[:, 1], F.linear(x.float(), weight.float())
    linear, biased = Linear(weight), Linear(weight, bias)
    close(linear(x), plain, dtype, scale=30)
    close(biased(x), plain + bias.float(), dtype, scale=30)
    close(biased.silu(x), F.silu(plain + bias.float()), dtype, scale=30)
    close(linear.times(x, other), plain * other.float(), dtype, scale=30)
    close(linear.plus(x, other), plain + other.float(), dtype, scale=30)


@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("KV", [1, 3])
@pytest.mark.parametrize("share", [1, 3, 4])
def test_attention_of_ragged_requests_through_the_cache(dtype, D, KV, share):
    torch.manual_seed(0)
    H, length, counts, starts = KV * share, 90, [1, 3, 8, 2, 40, 1], [0, 17, 60, 81, 5, 33]
    slots, N = [0, 1, 2, 4, 5, 7], sum(counts)
    keys, values = (torch.randn(8, KV, length, D).to(dtype) for _ in range(2))
    turn = torch.polar(torch.ones(N, 1, D // 2), torch.rand(N, 1, D // 2) * 6)
    qkv = torch.randn(N, H + 2 * KV, D).to(dtype)
    plain, grouped = qkv.clone(), Batch.build(slots, starts, counts, dtype, CPU)
    plain_keys, plain_values = keys.clone(), values.clone()
    qk = rotate(plain[:, : H + KV], turn)
    plain_keys[grouped.cache_rows, :, grouped.positions] = qk[:, H:]
    plain_values[grouped.cache_rows, :, grouped.positions] = plain[:, H + KV :]
    expected = torch.cat([attend(qk[:, :H], plain_keys, plain_values, group) for group in grouped.groups])

    operations, batch = native_for(dtype, CPU), Batch.build(slots, starts, counts, dtype, CPU, narrow=8)
    assert len(batch.begins) == 5 and [(g.start, g.stop) for g in batch.groups] == [(14, 54)]
    operations.rotate(qkv, turn, batch.cache_rows, batch.positions, keys, values)
    close(keys, plain_keys, dtype)
    close(values, plain_values, dtype)
    out = torch.full((N, H * D), float("nan"), dtype=dtype)
    operations.attend(qkv, keys, values, batch, out)
    wide = torch.zeros(N, dtype=torch.bool)
    wide[14:54] = True
    assert bool(out[wide].isnan().all())  # rows of a wide request are somebody else's
    close(out[~wide], expected[~wide], dtype, scale=1000 if dtype == torch.bfloat16 else 1)
    batch = Batch.build(slots, starts, counts, dtype, CPU, narrow=100)  # a part of a prompt among them
    operations.attend(qkv, keys, values, batch, out)
    close(out, expected, dtype, scale=1000 if dtype == torch.bfloat16 else 1)


@pytest.mark.parametrize("Q", [5, 256, 1000, 8192])
def test_draws_at_every_temperature(dtype, Q, monkeypatch):
    """Tokens, distributions and every feature of the registry that a row gives."""
    torch.manual_seed(Q)
    logits = (torch.randn(6, Q) * 3).to(dtype)
    logits[1] = 2.0  # all equal
    logits[2, 3] = 90.0  # nearly certain
    logits[3, : Q // 2] = -torch.inf
    temperature = torch.tensor([1.0, 1.0, 1.0, 0.7, 0.0, 1e-3])
    uniforms = torch.rand(6, 7, dtype=torch.float64)
    uniforms[0], uniforms[1] = 1 - 2**-53, 0.0
    fast, plain = (Draws(temperature, uniforms, list(FEATURES)) for _ in range(2))
    drawn = [fast.draw(logits.roll(k, 1)).tolist() for k in range(2)]
    monkeypatch.setattr("avlab.engine.drafters.draws.native_for", lambda dtype, device: None)
    assert drawn == [plain.draw(logits.roll(k, 1)).tolist() for k in range(2)]
    torch.testing.assert_close(fast.draft_probs, plain.draft_probs, rtol=2e-5, atol=1e-9)
    found, due = fast.features, plain.features
    assert found.names == due.names == tuple(name for name in FEATURES if FEATURES[name].of_row)
    assert np.isfinite(found.values).all()
    np.testing.assert_allclose(found.values, due.values, atol=1e-4)
    np.testing.assert_allclose(found["max_log_odds"], due["max_log_odds"], atol=2e-5)
    assert float(fast.draft_probs[3, 0, : Q // 2].max()) < 1e-30  # a token left out is never drawn


def test_damaged_logits_stay_inside_their_row(dtype):
    q = torch.zeros(3, 300)
    logits = torch.full((1, 300), float("nan"), dtype=dtype)
    column, _ = native_for(dtype, CPU).draw(
        logits, torch.ones(1), torch.tensor([[0.5]], dtype=torch.float64)[:, 0], q[1:2]
    )
    assert 0 <= int(column) < 300
    assert bool((q[[0, 2]] == 0).all())


@pytest.mark.parametrize("prompt", [0, 20])
@pytest.mark.parametrize("bias", [False, True])
def test_layers_in_one_call(dtype, bias, prompt):
    """Three layers over ragged requests: by one call, and operation by operation without native ones."""
    config = ModelConfig(
        vocabulary=10, hidden=192, intermediate=200, layers=3, heads=6, kv_heads=2, head_dim=64,
        norm_epsilon=1e-5, rope_theta=1e4, rope_scaling=(), max_positions=64, tied_embeddings=True,
        end_tokens=(0,),
    )  # fmt: skip
    torch.manual_seed(0)
    shapes = {"self_attn.q_proj": (384, 192), "self_attn.k_proj": (128, 192), "self_attn.v_proj": (128, 192)}
    shapes |= {"self_attn.o_proj": (192, 384), "mlp.gate_proj": (200, 192), "mlp.up_proj": (200, 192)}
    shapes |= {"mlp.down_proj": (192, 200)}
    weights = Weights(Path("none"), {})
    for i in range(3):
        for name, (out, inputs) in shapes.items():
            weights[f"{i}.{name}.weight"] = (torch.randn(out, inputs) * inputs**-0.5).to(dtype)
            if bias:
                weights[f"{i}.{name}.bias"] = torch.randn(out).to(dtype)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{i}.{name}.weight"] = torch.rand(192).to(dtype)
    batch = Batch.build([0, 2, 3], [0, 7, 30], [2, 1, 9 + prompt], dtype, CPU, narrow=100)
    rows = 12 + prompt
    turn = torch.polar(torch.ones(rows, 1, 32), torch.rand(rows, 1, 32) * 6)
    x = torch.randn(rows, 192).to(dtype)
    caches = KVCache(3, 4, 2, 64, 64, dtype, CPU), KVCache(3, 4, 2, 64, 64, dtype, CPU)
    outputs = []
    for cache in caches:
        for layer, (key, value) in enumerate(zip(cache.keys, cache.values, strict=True)):
            generator = torch.Generator().manual_seed(layer)
            key.copy_(torch.randn(key.shape, generator=generator))
            value.copy_(torch.randn(value.shape, generator=generator))
        layers = [Layer(weights, str(i), config) for i in range(3)]
        for layer in layers:
            layer.native = native_for(dtype, CPU)
        stack = Stack(layers, cache.keys, cache.values)
        if stack.most_rows < rows:
            pytest.skip("this processor's products of this dtype are not native ones")
        if outputs:
            stack.most_rows = 0
        outputs.append(stack(x.clone(), turn, batch))
    close(*outputs, dtype, scale=3000 if dtype == torch.bfloat16 else 1)
    close(caches[0].keys[2], caches[1].keys[2], dtype, scale=3000 if dtype == torch.bfloat16 else 1)
    assert not torch.equal(outputs[0], x)


@pytest.mark.parametrize("requests", [1, 3, 16])
def test_a_block_drafters_recurrence(dtype, requests):
    """Tokens, distributions, features and states by one call, and position by position."""
    B, K, Q, M, V = requests, 5, 90, 64, 120
    torch.manual_seed(requests)
    carry, out = (Linear((torch.randn(n, M) * M**-0.5).to(dtype), torch.randn(n).to(dtype)) for n in (M, Q))
    if min(carry.most_rows, out.most_rows) < B:
        pytest.skip("this processor's products of this dtype are not native ones")
    base, drive = (torch.randn(K, B, Q) * 2).to(dtype), torch.randn(K, B, M).to(dtype)
    token_drive, ids = torch.randn(V, M).to(dtype), torch.randperm(V)[:Q].sort().values
    newest, temperature = torch.randint(V, (B,)), torch.ones(B)
    temperature[B // 2 :: 4] = 0.0
    uniforms = torch.rand(B, K + 2, dtype=torch.float64)[:, 1 : K + 1]
    native = native_for(dtype, CPU)
    weights = torch.empty(B, K, Q)
    columns, q, feature, states = native.recur(
        base,
        drive,
        token_drive,
        carry.native_weight,
        out.native_weight,
        ids,
        newest,
        temperature,
        uniforms,
        weights,
    )
    draws, state, previous = (
        Draws(temperature, uniforms, list(FEATURES)),
        torch.zeros(B, M, dtype=dtype),
        newest,
    )
    for k in range(K):
        state = F.silu(carry.plus(state, drive[k] + token_drive[previous]))
        close(states[k], state, dtype)
        column = draws.draw(out.plus(states[k], base[k]))
        assert torch.equal(columns[:, k], column)
        state, previous = states[k], ids[column]
    torch.testing.assert_close(q, draws.draft_probs)
    found, due = row_features(list(FEATURES), feature, weights, columns), draws.features
    assert found.names == due.names
    np.testing.assert_allclose(found.values, due.values, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_of_a_nucleus(seed, monkeypatch):
    """Kept tokens and masses, also with equal logits, floors that must fall, k beyond the row, and rows left out."""
    if native_for(torch.float32, CPU) is None:
        pytest.skip("there is no compiler on this machine")
    generator = torch.Generator().manual_seed(seed)
    V = [7, 64, 1000, 49_152][seed % 4]
    x = torch.randn(9, V, generator=generator) * [0.0, 1.0, 3.0, 12.0][seed // 4 % 4]
    x[2] = x[2].round()
    x[3, : V // 2] = -torch.inf
    rows = torch.tensor([8, 2, 0, 3, 4, 5])
    k = torch.tensor([0, 3, 0, V + 5, 50, 0])
    p = torch.tensor([0.9, 1.0, 0.9999999, 0.5, 0.8, 1e-6])
    parameters = SamplingParameters(torch.ones(6), k, p)
    normaliser = x.logsumexp(1)
    ids, masses = nucleus(x, rows, normaliser, parameters)
    monkeypatch.setattr("avlab.engine.sampler.native_for", lambda dtype, device: None)
    expected_ids, expected = nucleus(x, rows, normaliser, parameters)
    kept = expected > 0
    assert torch.equal(masses > 0, kept)
    assert torch.equal(ids[kept], expected_ids[kept])
    torch.testing.assert_close(masses, expected, rtol=1e-6, atol=1e-12)


def test_long_rows(monkeypatch):
    """Normalisers and draws, these also where a token is left out or hardly there."""
    if native_for(torch.float32, CPU) is None:
        pytest.skip("there is no compiler on this machine")
    torch.manual_seed(0)
    x = torch.randn(9, 49_152) * 4
    x[1, 1:] = -torch.inf
    x[2, ::2] = -torch.inf
    x[3] = -1000.0
    rows = torch.tensor([8, 2, 0, 3])
    uniforms = torch.tensor([0.0, 0.5, 0.9973, 0.2513], dtype=torch.float64)
    normaliser = log_sum_exp(x)
    drawn = draw_rows(x, rows, normaliser, uniforms)
    monkeypatch.setattr("avlab.engine.rows.native_for", lambda dtype, device: None)
    torch.testing.assert_close(normaliser, log_sum_exp(x), rtol=1e-6, atol=1e-5)
    assert torch.equal(drawn, draw_rows(x, rows, x.logsumexp(1), uniforms))
    x[4, 7] = torch.nan
    assert not bool(log_sum_exp(x)[4].isfinite())


def test_a_build_that_fails_says_why(tmp_path, monkeypatch):
    compiler = tmp_path / "broken-g++"
    compiler.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'native.cpp:1: error: no room' >&2; exit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr("avlab.engine.native.building.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("avlab.engine.native.built", building.built.__wrapped__)
    assert native.why_not(torch.float32, CPU).endswith("failed: native.cpp:1: error: no room")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.why_not(torch.float32, CPU) == "there is no compiler no-such-compiler here"
    monkeypatch.setenv("AVLAB_NATIVE", "0")
    assert "AVLAB_NATIVE=0" in native.why_not(torch.float32, CPU)
    assert "meta" in native.why_not(torch.float32, torch.device("meta"))
    assert native.why_not(torch.float16, CPU) == "the dtype is float16"
