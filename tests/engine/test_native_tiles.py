"""Products by matrix tiles: their kernel over plain loops, and who may use the processor's own."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from avlab.engine import linear as linears
from avlab.engine.linear import Linear
from avlab.engine.native import ANY_ROWS, native_for, tiles
from avlab.engine.native.judging import difference, judged
from avlab.engine.native.tiles import Tiles, asked, verdict_of
from avlab.engine.profile import make_costs

CPU = torch.device("cpu")


@pytest.fixture
def native():
    found = native_for(torch.bfloat16, CPU)
    if found is None:
        pytest.skip("there is no compiler on this machine")
    return found


@pytest.mark.parametrize("rows", [*range(1, 34), 47, 48, 49, 64, 100])
@pytest.mark.parametrize(("outputs", "inputs"), [(50, 32), (64, 64), (96, 576)])
def test_the_kernel_over_software_tiles_equals_the_plain_product(native, rows, outputs, inputs):
    torch.manual_seed(rows)
    x, weight, bias, other = (
        torch.randn(*shape).to(torch.bfloat16)
        for shape in ((rows, inputs), (outputs, inputs), (outputs,), (rows, outputs))
    )
    plain = x.float() @ weight.float().T + bias.float()
    due = {
        "none": plain,
        "silu": torch.nn.functional.silu(plain),
        "times": plain * other.float(),
        "plus": plain + other.float(),
    }
    packed = native.pack(weight)
    for ending, expected in due.items():
        factor = other if ending in ("times", "plus") else None
        found = native.multiply_in_software_tiles(x, packed, outputs, bias, ending, factor)
        torch.testing.assert_close(found.float(), expected, rtol=2**-7, atol=3e-4)
    exact = x.float() @ weight.float().T
    torch.testing.assert_close(
        native.multiply_in_software_tiles(x, packed, outputs, None).float(), exact, rtol=2**-7, atol=3e-4
    )


def plainly(x, weight, width, bias, ending, other):
    """A product with its ending, of a weight that is not packed."""
    y = (
        x.float() @ weight.float().T + bias.float()[:width]
        if bias is not None
        else x.float() @ weight.float().T
    )
    return linears.PLAIN[ending](y, other).to(torch.bfloat16)


def test_a_comparison_finds_one_wrong_row():
    def wrong(x, *arguments):
        y = plainly(x, *arguments)
        if len(x) == 33:
            y[32] += 1
        return y

    assert difference(plainly, plainly, lambda weight: weight) == ""
    assert difference(plainly, wrong, lambda weight: weight) == "33 rows by 50 x 32"
    verdict = judged(plainly, wrong, lambda weight: weight)
    assert verdict.least_rows is None and "differ from plain ones (33 rows" in verdict.note


def test_slow_tiles_do_not_serve(native):
    if native.most_rows < ANY_ROWS:
        pytest.skip("this processor's products of bfloat16 are not native ones")
    verdict = judged(native.multiply, native.multiply_in_software_tiles, native.pack)
    assert verdict == Tiles(None, "AMX products are slower than plain ones here")


def test_a_verdict_is_made_once_and_a_crash_is_one(tmp_path, monkeypatch):
    library = tmp_path / "library.so"
    crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"]
    assert asked(crash) == Tiles(None, "AMX products ended with code -4")
    assert asked([sys.executable, "-c", "print('no verdict')"]).note.endswith("without a verdict")
    assert "No such file" in asked([str(tmp_path / "nothing")]).note
    orders = []
    monkeypatch.setattr(tiles, "asked", lambda command: orders.append(command) or Tiles(4))
    assert verdict_of(str(library)) == verdict_of(str(library)) == Tiles(4)
    assert len(orders) == 1 and orders[0][-1] == str(library)
    assert json.loads((tmp_path / "library.tiles.json").read_text()) == {"least_rows": 4, "note": ""}
    for count, damaged in enumerate(['{"note": ""', "[4]", '{"least_rows": "4", "note": ""}', "{}"], 2):
        (tmp_path / "library.tiles.json").write_text(damaged)
        assert verdict_of(str(library)) == Tiles(4) and len(orders) == count


def test_which_products_serve_is_said(native, monkeypatch):
    monkeypatch.setattr(native, "most_rows", ANY_ROWS)
    for verdict, said in [
        (Tiles(None), "AVX-512 BF16"),
        (Tiles(1), "AMX"),
        (Tiles(8), "AMX from 8 rows on, AVX-512 BF16 below"),
    ]:
        monkeypatch.setattr(native, "tiles", verdict)
        assert native.products == said
    monkeypatch.setattr(native, "most_rows", 8)
    monkeypatch.setattr(native, "tiles", Tiles(None, "AMX products ended with code -4"))
    assert native.products == "native up to 8 rows, oneDNN above (AMX products ended with code -4)"


@pytest.fixture
def by_onednn(native, monkeypatch):
    """A weight as on a processor whose tiles may not be used: beyond 8 rows by oneDNN."""
    if not linears.PACKS_BFLOAT16:
        pytest.skip("oneDNN has no products of bfloat16 here")
    few = SimpleNamespace(most_rows=8, pack=native.pack, multiply=native.multiply, logits=native.logits)
    monkeypatch.setattr(linears, "native_for", lambda dtype, device: few)
    torch.manual_seed(0)
    return Linear(torch.randn(50, 64).to(torch.bfloat16), torch.randn(50).to(torch.bfloat16))


@pytest.mark.parametrize("rows", [8, 9, 16, 17, 100, 513])
def test_products_by_onednn_are_padded_to_few_sizes(by_onednn, rows, monkeypatch):
    met = []
    for name in ("UNARY", "BINARY"):
        original = getattr(linears, name)
        monkeypatch.setattr(
            linears, name, lambda x, *rest, original=original: met.append(len(x)) or original(x, *rest)
        )
    x, weight = torch.randn(rows, 64).to(torch.bfloat16), by_onednn.weight.to_dense()
    other = torch.randn(rows, 50).to(torch.bfloat16)
    plain = x.float() @ weight.float().T + by_onednn.bias.float()
    torch.testing.assert_close(by_onednn(x).float(), plain, rtol=2**-6, atol=1e-2)
    torch.testing.assert_close(by_onednn.plus(x, other).float(), plain + other.float(), rtol=2**-6, atol=2e-2)
    torch.testing.assert_close(
        by_onednn.times(x, other).float(), plain * other.float(), rtol=2**-6, atol=2e-2
    )
    size = {8: None, 9: 16, 16: 16, 17: 32, 100: 128, 513: 1024}[rows]
    assert met == ([size] * 3 if size else [])


def test_the_budget_knows_the_padding(by_onednn):
    samples = [(n, float(n)) for n in (1, 8, 16, 32, 48, 64, 96, 128)]
    verify = make_costs([], samples, 0, 4, 100, "profiled", by_onednn.padded).table.verify
    assert verify[[8, 9, 16, 17, 32, 65, 96, 97, 100]].tolist() == [8, 16, 16, 32, 32, 96, 96, 128, 128]
    assert len(verify) == 101
