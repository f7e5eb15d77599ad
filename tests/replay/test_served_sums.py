"""A trace drawn from a record's sums has its rates, its ranking and its reliability, and says that it is parametric."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traces import made_up

from avlab.replay.about import TraceError
from avlab.replay.rates import rates_of
from avlab.replay.served import visits
from avlab.replay.served_sums import drawn, of_record
from avlab.speculation.calibration import BINS, bin_sums, scores


def sums_of(trace, rows):
    """What a server's record holds of these anchors, all their drafts verified: [K, BINS, 5]."""
    accepted, K = trace.accepted[rows], trace.about.K
    slot = np.arange(K)
    label = slot < accepted[:, None]
    labelled = (slot <= accepted[:, None]) & (slot < trace.left()[rows][:, None])
    return bin_sums(trace.features[rows, :, 0].astype(np.float64), label, labelled)


def exported(folder, sums, admitted=3, source="raw", finish="length", K=3):
    run = {"kind": "vllm", "K": K, "target": "m", "drafter": "d", "config": "{}"}
    block = {"block": 0, "scheduled": [4, 4, 4], "admitted": [4, 4, 4][:admitted], "accepted": [3, 2, 1]}
    position, number = np.nonzero(sums[:, :, 0])
    cells = [
        {"source": source, "block": 0, "position": int(k), "bin": int(b)}
        | {"count": int(sums[k, b, 0]), "positives": int(sums[k, b, 1])}
        for k, b in zip(position, number, strict=True)
    ] or [{"source": "none", "block": 0, "position": 0, "bin": 0, "count": 1, "positives": 1}]
    requests = [{"finish": finish, "prompt_tokens": 7, "output_tokens": 400} for _ in range(40)]
    tables = {"runs": [run], "steps": [block], "calibration": cells, "requests": requests}
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


def test_rates_ranking_and_reliability_are_the_runs(tmp_path):
    trace = made_up(texts=400)
    sums = sums_of(trace, np.flatnonzero(visits(trace, 3)))
    exported(tmp_path, sums)
    found = of_record(tmp_path)
    assert found.about.origin == "parametric" and "run of vllm" in found.about.text()
    assert found.texts == 40 and (found.output_tokens == 400).all() and found.about.K == 3
    seen, count = sums[:, :, 1].sum(1) / sums[:, :, 0].sum(1), found.anchors
    np.testing.assert_allclose(rates_of(found), seen, atol=4 * 0.5 / np.sqrt(count * 0.2))
    again = sums_of(found, np.arange(count))
    for k in range(3):
        there, here = scores(sums[k]), scores(again[k])
        assert here.auc == pytest.approx(there.auc, abs=0.02) and here.ece == pytest.approx(
            there.ece, abs=0.02
        )


def test_a_position_that_was_seldom_reached_ends_the_draft(tmp_path):
    sums = sums_of(made_up(texts=400), np.arange(3000))
    sums[2] *= 0.001
    exported(tmp_path, np.floor(sums))
    assert of_record(tmp_path).about.K == 2
    with pytest.raises(TraceError, match="let it serve 30 or more"):
        drawn(np.ones((1, BINS, 2)) / BINS, np.array([(5, 9)]), "m", "d", 0, "")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"admitted": 2}, "no stretch in which every draft was verified"),
        ({"source": "online"}, "no sums of its drafts"),
        ({"K": 0}, "no stretch"),
    ],
)
def test_a_record_that_holds_too_little_is_one_sentence(tmp_path, changes, sentence):
    exported(tmp_path, sums_of(made_up(texts=400), np.arange(3000)), **changes)
    with pytest.raises(TraceError, match=sentence):
        of_record(tmp_path)


def test_lengths_that_a_watched_server_does_not_tell_are_made_up(tmp_path):
    exported(tmp_path, sums_of(made_up(texts=400), np.arange(3000)), finish="cancelled")
    found = of_record(tmp_path)
    assert found.texts == 200 and (found.output_tokens == 256).all()
    assert json.loads(json.dumps(found.about.note)) and "drafts" in found.about.note
