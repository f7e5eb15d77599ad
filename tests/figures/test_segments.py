"""A run by segments: what each policy gave, its interval, and beside what it may be put."""

import numpy as np
import pytest

from avlab.figures import segments

BLOCKS = [
    {"block": 0, "arm": "adaptive", "kind": "serve", "time": 0.0, "workload": "code"},
    {"block": 1, "arm": "fixed:7", "kind": "serve", "time": 10.0, "workload": "code"},
    {"block": 2, "arm": "fixed:7", "kind": "serve", "time": 20.0, "workload": "code"},
    {"block": 3, "arm": "fixed:7", "kind": "window", "time": 20.1, "workload": "code"},
]


def steps():
    """Ten steps a second: 8 tokens each in the first block, 2 in the second, then one step between two changes."""
    time = np.append(0.1 * np.arange(1, 201), [20.05, 21.0])
    block = np.append(np.repeat([0, 1], 100), [2, 3])
    seconds = np.full(202, 0.1)
    rows = {"time": time, "block": block, "seconds": seconds, "paused": np.zeros(202), "step": np.arange(202)}
    rows |= {"steps": np.ones(202, int), "emitting": np.full(202, 4), "admitted": np.full(202, 12)}
    noise = np.random.default_rng(0).normal(0, 0.5, 202)
    rows["tokens"] = np.choose(block, [8, 2, 99, 99]) + noise
    rows["running"] = np.choose(block, [8.0, 8.2, 8.0, 8.0])
    return rows


def test_each_segment_has_its_rate_and_an_interval_that_holds_it():
    first, second = segments.segments(steps(), BLOCKS)
    assert first["policy"] == "adaptive" and second["policy"] == "fixed:7"
    for row, rate in ((first, 80), (second, 20)):
        assert row["tokens_per_s"] == pytest.approx(rate, rel=0.02)
        assert row["low"] < row["tokens_per_s"] < row["high"] < 1.2 * rate
        assert row["step_ms"] == pytest.approx(100) and row["verified"] == 3.0


def test_the_table_compares_only_at_about_the_same_load():
    rows = segments.segments(steps(), BLOCKS)
    table = segments.shown(rows)
    assert table[0]["× before"] is None and table[1]["× before"] == pytest.approx(0.25, rel=0.03)
    rows[1]["requests"] = 64.0
    assert segments.shown(rows)[1]["× before"] is None
    assert "another load" in segments.change(rows)


def test_a_change_is_told_in_a_sentence():
    rows = segments.segments(steps(), BLOCKS)
    told = segments.change(rows)
    assert told.startswith(
        "Means over the whole run, all 2 segments together. Since 10 s: fixed:7, 8 requests"
    )
    assert segments.change(rows, "last minute").startswith("Means over the last minute. Since")
    assert "0.25 × what adaptive" in told
    assert segments.change(rows[:1]) == ""


def test_too_short_a_segment_has_no_interval_and_a_run_without_steps_no_segment():
    few = {name: column[:3] for name, column in steps().items()}
    assert segments.segments(few, BLOCKS) == []
    few = {name: column[:8] for name, column in steps().items()}
    (row,) = segments.segments(few, BLOCKS)
    assert row["low"] is not None
    assert segments.segments({}, BLOCKS) == []
    rounds = [block | {"round": 1} for block in BLOCKS]
    assert segments.segments(steps(), rounds) == []
