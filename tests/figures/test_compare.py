"""Runs over each other: their rates, and the settings in which they differ."""

import numpy as np

from avlab.figures import compare

MADE = {"emitting": 10.0, "admitted": 20.0, "accepted": 5.0, "labelled": 8.0}


def steps(rate):
    time = np.arange(1, 31) * 0.5
    return {
        "time": time, "seconds": np.full(30, 0.5), "paused": np.zeros(30), "tokens": np.full(30, rate * 0.5),
        "step": np.arange(30), "steps": np.full(30, 5.0), "running": np.full(30, 8.0),
        **{name: np.full(30, value) for name, value in MADE.items()},
    }  # fmt: skip


def test_each_run_is_a_line_of_its_own_rate():
    figure = compare.overlay({"one": steps(10.0), "two": steps(30.0), "empty": {}})
    assert [trace.name for trace in figure.data] == ["one", "two"]
    for trace, rate in zip(figure.data, (10.0, 30.0), strict=True):
        np.testing.assert_allclose(np.asarray(trace.y), rate)
    assert not compare.overlay({"empty": {}}).data


def test_any_chart_of_runs_has_its_own_sums():
    wanted = {
        "Step time": 100.0,
        "Tokens per step": 0.5,
        "Draft tokens verified": 2.0,
        "Acceptance of verified drafts": 0.25,
        "Conditional acceptance": 0.625,
        "Requests under way": 8.0,
    }
    assert set(compare.OVERLAID) == {"Throughput", *wanted}
    for name, value in wanted.items():
        (trace,) = compare.overlay({"one": steps(10.0)}, name).data
        np.testing.assert_allclose(np.asarray(trace.y), value, err_msg=name)


def test_only_what_differs_is_listed_without_the_database():
    one = {"seed": 1, "policy": "none", "database": "a"}
    two = {"seed": 2, "policy": "none", "database": "b", "K": 7}
    assert compare.differences({"x": one, "y": two}) == [
        {"setting": "seed", "x": "1", "y": "2"},
        {"setting": "K", "x": None, "y": "7"},
    ]
    assert compare.differences({"x": one, "y": one}) == []
