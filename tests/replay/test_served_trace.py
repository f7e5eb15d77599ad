"""A trace of what a run visited: exact for the run's own policy, near for others, and marked as such."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traces import made_up

from avlab.replay.about import TraceError
from avlab.replay.served import filled, visits
from avlab.replay.served_run import of_export
from avlab.replay.traces import trace_named


def tokens_per_step(trace, length):
    return (trace.output_tokens - 1).sum() / visits(trace, length).sum()


def test_the_runs_own_policy_is_exact_and_others_are_near():
    for name in ("reasoning", "greedy"):
        trace = trace_named(name)
        found = filled(trace, visits(trace, 7))
        np.testing.assert_array_equal(visits(found, 7), visits(trace, 7))
        for length, near in ((1, 0.02), (3, 0.015), (5, 0.01)):
            here, there = tokens_per_step(found, length), tokens_per_step(trace, length)
            assert here == pytest.approx(there, rel=near), (name, length)


def test_what_was_visited_is_kept_and_what_was_not_is_unknown():
    trace = made_up(texts=30)
    visited = visits(trace, 3)
    spoilt = replace(
        trace,
        accepted=np.where(visited, trace.accepted, 0),
        features=np.where(visited[:, None, None], trace.features, np.nan),
    )
    found = filled(spoilt, visited)
    np.testing.assert_array_equal(found.features[visited], trace.features[visited])
    np.testing.assert_array_equal(found.accepted[visited], trace.accepted[visited])
    assert np.isfinite(found.features).all() and np.isfinite(found.behind).all()
    assert (found.accepted <= found.left()).all() and found.about.origin == "served"
    assert np.isnan(found.acceptance[~visited]).all()


def exported(folder, trace, length=3, **changes):
    """What an export of a run would hold that served this trace's texts with so many drafts."""
    visited, left, step = visits(trace, length), trace.left(), 0
    rows, requests = [], []
    for text in range(trace.texts):
        n = int(trace.output_tokens[text])
        for anchor in range(trace.first[text], trace.first[text] + n - 1):
            if not visited[anchor]:
                continue
            step += 1
            offered = min(length, int(left[anchor]) - 1)
            for k in range(offered):
                label = None if k > trace.accepted[anchor] else bool(k < trace.accepted[anchor])
                rows.append((step, text, k, trace.features[anchor, k].tolist(), True, label))
        requests.append(
            {"request": text, "kind": "verse", "prompt_tokens": 5, "output_tokens": n, "finish": "length"}
            | {"temperature": 0.6, "top_p": 0.95, "top_k": 0}
        )
    run = {"kind": "reference", "config": json.dumps({"drafts": "all", "seed": 3}), "target": "tiny"}
    run |= {"drafter": "block", "K": 3, "features": ["max_log_odds"]}
    names = ("step", "request", "position", "features", "admitted", "label")
    tables = {
        "runs": [run],
        "requests": requests,
        "drafts": [dict(zip(names, row, strict=True)) for row in rows],
    }
    for name, change in changes.items():
        tables[name] = change(tables[name])
    for name, table in tables.items():
        pq.write_table(pa.Table.from_pylist(table), folder / f"{name}.parquet")
    return visited


def test_a_run_becomes_a_trace(tmp_path):
    trace = made_up(texts=8)
    visited = exported(tmp_path, trace)
    found, left_out = of_export(tmp_path)
    assert left_out == 0 and found.about.origin == "served" and found.about.temperature == 0.6
    np.testing.assert_array_equal(found.output_tokens, trace.output_tokens)
    whole = visited & (trace.left() > 3)
    np.testing.assert_array_equal(found.accepted[whole], trace.accepted[whole])
    np.testing.assert_allclose(found.features[whole], trace.features[whole])
    assert "of anchors visited" in found.about.note and "as far as a run visited it" in found.about.text()


def without(position):
    return lambda rows: [row for row in rows if row["position"] != position]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"drafts": lambda rows: [row | {"admitted": row["position"] < 1} for row in rows]},
            "not verify every",
        ),
        ({"drafts": without(0)}, "missing or doubled"),
        ({"drafts": lambda rows: rows[:2]}, "No request of the run has all its drafts"),
        ({"requests": lambda rows: [rows[0] | {"top_k": 5}, *rows[1:]]}, "2 samplings"),
        ({"runs": lambda rows: [rows[0] | {"config": '{"drafts": "sampled"}'}]}, "a sample of its drafts"),
        ({"runs": lambda rows: [rows[0] | {"config": "{"}]}, "cannot be read"),
        (
            {"runs": lambda rows: [rows[0] | {"drafter": "ngram:prompt_lookup_max=4"}]},
            "may find nothing to draft",
        ),
    ],
)
def test_a_run_that_cannot_be_one_is_one_sentence(tmp_path, changes, sentence):
    exported(tmp_path, made_up(texts=4), **changes)
    with pytest.raises(TraceError) as refused:
        of_export(tmp_path)
    assert sentence in str(refused.value) and str(refused.value).endswith(".")
