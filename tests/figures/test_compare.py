"""Runs over each other: their rates, and the settings in which they differ."""

import numpy as np

from avlab.figures import compare


def steps(rate):
    time = np.arange(1, 31) * 0.5
    return {
        "time": time, "seconds": np.full(30, 0.5), "paused": np.zeros(30), "tokens": np.full(30, rate * 0.5),
        "step": np.arange(30),
    }  # fmt: skip


def test_each_run_is_a_line_of_its_own_rate():
    figure = compare.overlay({"one": steps(10.0), "two": steps(30.0), "empty": {}})
    assert [trace.name for trace in figure.data] == ["one", "two"]
    for trace, rate in zip(figure.data, (10.0, 30.0), strict=True):
        np.testing.assert_allclose(np.asarray(trace.y), rate)
    assert not compare.overlay({"empty": {}}).data


def test_only_what_differs_is_listed_without_the_database():
    one = {"seed": 1, "policy": "none", "database": "a"}
    two = {"seed": 2, "policy": "none", "database": "b", "K": 7}
    assert compare.differences({"x": one, "y": two}) == [
        {"setting": "seed", "x": "1", "y": "2"},
        {"setting": "K", "x": None, "y": "7"},
    ]
    assert compare.differences({"x": one, "y": one}) == []
