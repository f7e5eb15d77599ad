"""The native operations against their plain forms, in every shape that serving gives them."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from avlab.engine.cache import Batch
from avlab.engine.drafters.draws import Draws
from avlab.engine.linear import Linear
from avlab.engine.native import native_for
from avlab.engine.rows import above, draw_rows, log_sum_exp
from avlab.engine.target import attend, rotate

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
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 27])
def test_products_of_few_rows(dtype, rows, width):
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
    plain_keys[grouped.slot_of_row, :, grouped.positions] = qk[:, H:]
    plain_values[grouped.slot_of_row, :, grouped.positions] = plain[:, H + KV :]
    expected = torch.cat([attend(qk[:, :H], plain_keys, plain_values, group) for group in grouped.groups])

    native, batch = native_for(dtype, CPU), Batch.build(slots, starts, counts, dtype, CPU, narrow=8)
    assert len(batch.begins) == 5 and [(g.start, g.stop) for g in batch.groups] == [(14, 54)]
    native.rotate(qkv, turn, batch.slot_of_row, batch.positions, keys, values)
    close(keys, plain_keys, dtype)
    close(values, plain_values, dtype)
    out = torch.full((N, H * D), float("nan"), dtype=dtype)
    native.attend(qkv, keys, values, batch, out)
    wide = torch.zeros(N, dtype=torch.bool)
    wide[14:54] = True
    assert bool(out[wide].isnan().all())  # rows of a wide request are somebody else's
    close(out[~wide], expected[~wide], dtype, scale=1000 if dtype == torch.bfloat16 else 1)


@pytest.mark.parametrize("Q", [5, 256, 1000, 8192])
def test_draws_at_every_temperature(dtype, Q, monkeypatch):
    torch.manual_seed(Q)
    logits = (torch.randn(6, Q) * 3).to(dtype)
    logits[1] = 2.0  # all equal
    logits[2, 3] = 90.0  # nearly certain
    logits[3, : Q // 2] = -torch.inf
    temperature = torch.tensor([1.0, 1.0, 1.0, 0.7, 0.0, 1e-3])
    uniforms = torch.rand(6, 7, dtype=torch.float64)
    uniforms[0], uniforms[1] = 1 - 2**-53, 0.0
    fast, plain = Draws(temperature, uniforms), Draws(temperature, uniforms)
    drawn = [fast.draw(logits.roll(k, 1)).tolist() for k in range(2)]
    monkeypatch.setattr("avlab.engine.drafters.draws.native_for", lambda dtype, device: None)
    assert drawn == [plain.draw(logits.roll(k, 1)).tolist() for k in range(2)]
    torch.testing.assert_close(fast.rows, plain.rows, rtol=2e-5, atol=1e-9)
    np.testing.assert_allclose(fast.feature, plain.feature, atol=2e-5)
    assert float(fast.rows[3, 0, : Q // 2].max()) < 1e-30  # a token left out is never drawn


def test_damaged_logits_stay_inside_their_row(dtype):
    native, q = native_for(dtype, CPU), torch.zeros(3, 300)
    logits = torch.full((1, 300), float("nan"), dtype=dtype)
    column, _ = native.draw(logits, torch.ones(1), torch.tensor([[0.5]], dtype=torch.float64)[:, 0], q[1:2])
    assert 0 <= int(column) < 300
    assert bool((q[[0, 2]] == 0).all())


def test_long_rows(monkeypatch):
    """Normalisers, tokens above a floor, and draws, the last also where a token is left out or hardly there."""
    if native_for(torch.float32, CPU) is None:
        pytest.skip("there is no compiler on this machine")
    torch.manual_seed(0)
    x = torch.randn(9, 49_152) * 4
    x[1, 1:] = -torch.inf
    x[2, ::2] = -torch.inf
    x[3] = -1000.0
    rows, floor = torch.tensor([8, 2, 0, 3]), torch.tensor([6.0, 6.0, torch.inf, -torch.inf])
    uniforms = torch.tensor([0.0, 0.5, 0.9973, 0.2513], dtype=torch.float64)
    normaliser = log_sum_exp(x)
    found = [*above(x, rows, floor), draw_rows(x, rows, normaliser, uniforms)]
    monkeypatch.setattr("avlab.engine.rows.native_for", lambda dtype, device: None)
    torch.testing.assert_close(normaliser, log_sum_exp(x), rtol=1e-6, atol=1e-5)
    expected = [*above(x, rows, floor), draw_rows(x, rows, x.logsumexp(1), uniforms)]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    x[4, 7] = torch.nan
    assert not bool(log_sum_exp(x)[4].isfinite())
