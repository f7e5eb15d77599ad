"""A trace's file: what is written is read, and what cannot be is one sentence."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traces import made_up

from avlab.replay.about import TraceError
from avlab.replay.trace import Trace, read_trace, write_trace
from avlab.replay.traces import shipped, trace_named


@pytest.mark.parametrize("behind", [True, False])
def test_what_is_written_is_read(tmp_path, behind):
    trace, path = made_up(behind=behind), tmp_path / "trace.parquet"
    write_trace(trace, path)
    found = read_trace(path)
    assert found.about == trace.about
    for name in Trace.__slots__[1:]:
        here, there = getattr(trace, name), getattr(found, name)
        assert (here is None) == (there is None), name
        if here is not None:
            np.testing.assert_array_equal(here, there, err_msg=name)


def test_several_draws_of_a_text_stay_together(tmp_path):
    """They are texts of their own in the file; a sample by text takes all of them."""
    once, twice = made_up(texts=5), tmp_path / "twice.parquet"
    table = pq.read_table(_written(once, tmp_path / "once.parquet"))
    text = table["text"].to_numpy()
    rows = np.concatenate([np.tile(np.flatnonzero(text == t), 2) for t in range(5)])
    copies = pa.array(
        np.concatenate([np.repeat([2 * t, 2 * t + 1], (text == t).sum()) for t in range(5)]), pa.int32()
    )
    about = json.loads(table.schema.metadata[b"avlab"]) | {"draws": 2}
    table = (
        table.take(rows).set_column(0, "text", copies).replace_schema_metadata({"avlab": json.dumps(about)})
    )
    pq.write_table(table, twice)
    trace = read_trace(twice)
    assert (
        trace.texts == 10 and trace.size() == f"5 texts, each drafted for 2 times, {2 * once.anchors} anchors"
    )
    sample = trace.sample(np.random.default_rng(0))
    assert len(sample) == 10 and (sample[::2] + 1 == sample[1::2]).all() and (sample[::2] % 2 == 0).all()
    again = tmp_path / "again.parquet"
    write_trace(trace, again)
    assert read_trace(again).about == trace.about


def _written(trace, path):
    write_trace(trace, path)
    return path


def changed(tmp_path, about=None, **columns):
    """A trace's file with some of it replaced."""
    path = tmp_path / "trace.parquet"
    write_trace(made_up(), path)
    table = pq.read_table(path)
    for name, value in columns.items():
        table = (
            table.drop_columns(name)
            if value is None
            else table.set_column(table.column_names.index(name), name, value(table[name]))
        )
    if about is not None:
        plain = json.loads(table.schema.metadata[b"avlab"]) | about
        table = table.replace_schema_metadata({"avlab": json.dumps(plain)})
    pq.write_table(table, path)
    return path


WRONG = {
    "another version": {"about": {"version": 9}},
    "another K": {"about": {"K": 5}},
    "no K at all": {"about": {"K": 0}},
    "other features": {"about": {"features": ["a", "b"]}},
    "no accepted": {"accepted": None},
    "too many accepted": {"accepted": lambda c: pa.array(np.full(len(c), 3, np.int8))},
    "negative accepted": {"accepted": lambda c: pa.array(np.full(len(c), -1, np.int8))},
    "anchors out of order": {"position": lambda c: pa.array(c.to_numpy()[::-1])},
    "texts out of order": {"text": lambda c: pa.array(c.to_numpy()[::-1])},
    "no prompt": {"prompt_tokens": lambda c: pa.array(np.zeros(len(c), np.int32))},
    "a limit below the text": {"limit": lambda c: pa.array(np.ones(len(c), np.int32))},
    "text for numbers": {"accepted": lambda c: pa.array(["x"] * len(c))},
    "an endless chance": {
        "acceptance": lambda c: pa.FixedSizeListArray.from_arrays(
            pa.array(np.full(3 * len(c), np.inf, np.float16)), 3
        )
    },
    "endless features": {
        "features": lambda c: pa.FixedSizeListArray.from_arrays(
            pa.array(np.full(3 * len(c), -np.inf, np.float16)), 3
        )
    },
    "endless features behind": {
        "behind": lambda c: pa.FixedSizeListArray.from_arrays(
            pa.array(np.full(3 * len(c), np.inf, np.float16)), 3
        )
    },
    "features in lists of any length": {"features": lambda c: pa.array([[1.0]] * len(c))},
    "features in lists of lists": {"features": lambda c: pa.array([[[1.0]]] * len(c))},
    "a kind of numbers": {"kind": lambda c: pa.array(np.zeros(len(c)))},
    "a kind that is a record": {"kind": lambda c: pa.array([{"a": 1}] * len(c))},
    "fractions for whole numbers": {"limit": lambda c: pa.array(np.full(len(c), 64.5))},
    "holes": {"limit": lambda c: pa.array([None] * len(c), pa.int32())},
    "a text before the first": {"text": lambda c: pa.array(c.to_numpy() - 1)},
    "a kind as long as a book": {"kind": lambda c: pa.array(["x" * 2_000_000] * len(c)).dictionary_encode()},
    "K in words": {"about": {"K": "three"}},
    "K that is true": {"about": {"K": True}},
    "an endless temperature": {"about": {"temperature": float("inf")}},
    "no temperature": {"about": {"temperature": float("nan")}},
    "no features": {"about": {"features": []}},
    "a feature twice": {"about": {"features": ["max_log_odds", "max_log_odds"]}},
    "features that are one word": {"about": {"features": "max_log_odds"}},
    "a target with control characters": {"about": {"target": "\x1b[31m"}},
    "a target as long as a book": {"about": {"target": "x" * 1000}},
    "an origin that there is not": {"about": {"origin": "found"}},
    "draws that are no number": {"about": {"draws": "two"}},
    "more draws than its texts": {"about": {"draws": 4}},
    "draws of texts that are not alike": {"about": {"draws": 2}},
    "a field that there is not": {"about": {"owner": "me"}},
    "chances above one": {
        "acceptance": lambda c: pa.FixedSizeListArray.from_arrays(
            pa.array(np.full(3 * len(c), 2, np.float16)), 3
        )
    },
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_file_that_does_not_fit_is_one_sentence(tmp_path, case):
    with pytest.raises(TraceError) as refused:
        read_trace(changed(tmp_path, **case))
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_bytes_that_are_no_trace_are_one_sentence(tmp_path):
    path = tmp_path / "trace.parquet"
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path)
    for damaged in (b"", b"PAR1", b"\0" * 5000):
        path.write_bytes(damaged)
        with pytest.raises(TraceError):
            read_trace(path)
    path.unlink()
    write_trace(made_up(), path)
    with pytest.raises(TraceError, match="is there already"):
        write_trace(made_up(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError):
        read_trace(path)
    for place in range(
        40, len(whole), len(whole) // 40
    ):  # whatever byte is hit, it is an answer or a sentence
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_trace(path)
        except TraceError as refused:
            assert str(refused)


def test_the_shipped_traces_are_whole_and_small():
    assert {"card", "greedy", "plain", "reasoning"} <= set(shipped())
    for name in shipped():
        trace = trace_named(name)
        assert trace.anchors >= 20_000 and trace.about.K == 7
        assert trace.tokens_per_step() == pytest.approx(1 + np.mean(trace.accepted))
        # accepted by coins whose chance was recorded
        first = np.nanmean(trace.acceptance[:, 0])
        assert (trace.accepted > 0).mean() == pytest.approx(first, abs=4 * 0.5 / np.sqrt(trace.anchors))
    with pytest.raises(TraceError, match="known are"):
        trace_named("nothing")


def rewritten(tmp_path, change):
    path = tmp_path / "trace.parquet"
    write_trace(made_up(), path)
    pq.write_table(change(pq.read_table(path)), path)
    return path


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.append_column("text", t["text"]), "has the column 'text' twice"),
        (lambda t: t.append_column("more", t["text"]), "which no trace has"),
        (lambda t: t.replace_schema_metadata({}), "has no key avlab"),
        (lambda t: t.replace_schema_metadata({"avlab": "[" * 50_000}), "something else than JSON"),
        (lambda t: t.replace_schema_metadata({"avlab": "[1]"}), "does not say its version"),
        (lambda t: t.replace_schema_metadata({"avlab": '{"version": 1}'}), "does not say its K"),
        (lambda t: t.replace_schema_metadata({"avlab": " " * 200_000}), "at most 100,000"),
        (lambda t: t.slice(0, 0), "holds 0 anchors"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, change, sentence):
    with pytest.raises(TraceError) as refused:
        read_trace(rewritten(tmp_path, change))
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_small_file_cannot_take_much_memory(tmp_path):
    """Ten million anchors of nothing fit in few bytes: they are refused by what is declared, before they are read."""
    rows, K = 10_000_000, 10
    path = rewritten(tmp_path, lambda t: t.slice(0, 1))
    about = json.loads(pq.read_schema(path).metadata[b"avlab"]) | {"K": K}
    nothing = pa.array(np.zeros(rows, np.int8))
    columns = dict.fromkeys(("text", "position", "accepted", "prompt_tokens", "limit"), nothing)
    columns["kind"] = pa.DictionaryArray.from_arrays(nothing, ["x"])
    flat = pa.array(np.zeros(K * rows, np.float16))
    columns |= {name: pa.FixedSizeListArray.from_arrays(flat, K) for name in ("features", "acceptance")}
    table = pa.table(columns).replace_schema_metadata({"avlab": json.dumps(about | {"K": K})})
    table = table.append_column(
        "behind", pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(45 * rows, np.float16)), 45)
    )
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 2_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(TraceError, match="GB of memory"):
        read_trace(path)
    assert pa.total_allocated_bytes() - before < 10_000_000
