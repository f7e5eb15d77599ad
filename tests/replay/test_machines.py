"""Machines: shipped tables are as published, policies decide by them as vLLM would, and bad files are sentences."""

import numpy as np
import pytest

from avlab.machines import FOLDER, MachineError, machine, read

B300, H100 = "b300-deepseek-v4-flash-tp4", "h100-llama-3.1-8b-eagle3"


def test_costs_are_as_published():
    b300, h100 = machine(B300, 7), machine(H100, 7)
    assert b300.milliseconds(64, 7, 160) == (2.274, 11.3, 0.0)
    assert b300.milliseconds(64, 3, 176)[:2] == (2.274, 10.41)  # a parallel drafter, and not monotone
    assert b300.milliseconds(64, 0, 64)[0] == 0.0
    assert b300.milliseconds(1, 7, 65)[1] == 8.21  # padded to 72
    assert b300.milliseconds(1, 7, 1024)[1] == 20.63 and b300.milliseconds(1, 7, 1025)[1] > 100
    draft, verify, rest = h100.milliseconds(10, 5, 60, cached=1000)
    assert draft == pytest.approx(2.135 + 8.41e-4 * 50 + 2.38e-3)
    assert verify == pytest.approx(5.886 + 2.101e-2 * 60 + 3.926e-2)
    assert rest == 1.207


def test_operation_tables_give_what_nvidia_measured():
    """Decode passes of 64 requests that hold 1,024 tokens each: the tables' own attention, not the fitted line."""
    h200 = machine("h200-llama-3.1-70b-tp4", 7)
    for tokens, ms in {64: 15.1, 128: 16.6, 256: 22.0, 512: 35.5}.items():
        assert h200.milliseconds(64, 0, tokens, cached=64 * 1024)[1] == pytest.approx(ms, rel=0.01)
    assert (
        h200.milliseconds(1, 7, 1)[0] > 6 * h200.milliseconds(1, 1, 1)[0]
    )  # one pass of the head after another
    rtx = machine("rtx-pro-6000-llama-3.1-8b", 7)
    assert rtx.milliseconds(64, 0, 64, cached=64 * 1024)[1] == pytest.approx(17.6, rel=0.06)
    for each in (h200, rtx):
        assert each.knows_cached and "Kernel times alone" in " ".join(each.notes)
        assert each.table(10_000).verify[8] > each.table().verify[8]


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.toml"))])
def test_every_machine_says_where_it_is_from(name):
    about = read(FOLDER / f"{name}.toml")
    assert about.source and about.licence and about.trust and about.gpu in about.title
    table = machine(name, 7).table()
    assert (np.diff(table.verify) >= 0).all() and (np.diff(table.draft, axis=0) >= 0).all()
    assert table.draft.shape == (about.most_requests + 1, 8)


def test_a_jagged_and_a_flat_table_are_said_to_be_so(tmp_path):
    text = (FOLDER / f"{B300}.toml").read_text(encoding="utf-8")
    flat, jagged = tmp_path / "flat.toml", tmp_path / "jagged.toml"
    flat.write_text(
        text[: text.index("[verify]")] + "[verify]\nsamples = [[1, 5.0], [1024, 5.0]]\n", encoding="utf-8"
    )
    jagged.write_text(
        text[: text.index("[verify]")] + "[verify]\nsamples = [[1, 9.0], [64, 5.0], [1024, 12.0]]\n",
        encoding="utf-8",
    )
    assert "costs the same" in " ".join(machine(str(flat), 7).notes)
    assert "not monotone" in " ".join(machine(str(jagged), 7).notes)


WRONG = {
    "text for a number": ("most_requests = 256", 'most_requests = "many"'),
    "a negative cost": ("[1, 5.11]", "[1, -5.11]"),
    "nan": ("[1, 5.11]", "[1, nan]"),
    "a size beyond all bounds": ("[1, 5.11]", "[9999999999, 5.11]"),
    "a hole": ("[1, 5.11]", "[1]"),
    "an unknown line": ("gpus = 4", "gpus = 4\nprice = 3"),
    "no source": ("source =", "sauce ="),
    "no TOML": ("gpus = 4", "gpus = = 4"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_file_that_is_no_machine_is_one_sentence(tmp_path, change):
    path = tmp_path / "machine.toml"
    path.write_text((FOLDER / f"{B300}.toml").read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(MachineError) as refused:
        machine(str(path), 7)
    assert str(refused.value).endswith(".") and str(refused.value).count("\n") <= 1


def test_names_and_sizes_that_cannot_be(tmp_path):
    with pytest.raises(MachineError, match="known are"):
        machine("tpu", 7)
    with pytest.raises(MachineError, match="cannot be read"):
        machine(str(tmp_path / "none.toml"), 7)
    huge = tmp_path / "huge.toml"
    huge.write_text("a = 1\n" * 500_000)
    with pytest.raises(MachineError, match="small"):
        machine(str(huge), 7)


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.toml"))])
def test_what_steps_take_there_is_what_the_clock_says(name):
    """`executed`, by which +depth and +stop decide, against the clock: draft, pass and the rest, with cached tokens."""
    emulated = machine(name, 7)
    costs, rng = emulated.executed(3000), np.random.default_rng(0)
    for _ in range(50):
        requests, depth = int(rng.integers(1, emulated.about.most_requests + 1)), int(rng.integers(0, 8))
        tokens = min(requests * int(rng.integers(1, 9)), emulated.about.most_tokens)
        told = sum(emulated.milliseconds(requests, depth, tokens, 3000))
        assert costs.step(requests, depth, tokens) == pytest.approx(told)
