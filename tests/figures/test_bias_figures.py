"""Figures of the Sampling bias page say what their captions say."""

import numpy as np

from avlab.figures import bias as figures


def test_p_values_are_drawn_as_the_verdict_takes_them():
    history = [(1000, 0.5, 0.004, 0.03, 0.03), (2000, 1e-30, 0.4, 0.02, 0.02)]
    drawn = figures.p_values([("adaptive", history, True)], tests=4).data[0]
    np.testing.assert_allclose(drawn.y, [0.016, 1e-12])  # 0.004 alone would be below the line of 0.01
    assert figures.p_values([("adaptive", history, True)], tests=400).data[0].y[0] == 1


def test_the_noise_floor_stands_where_outputs_were_sampled():
    found = [("verify all", 0.03, True), ("drawn", 0.1, False)]
    assert not figures.variations(found).layout.shapes
    figure = figures.variations(found, 0.4)
    assert figure.layout.shapes[0].x0 == 0.4 < figure.layout.xaxis.range[1]


def test_where_a_long_text_settles_is_a_line():
    figure = figures.by_place([("again", np.array([0.5, 0.53]), False)], 0.5, 0.51049)
    settles = next(trace for trace in figure.data if trace.name == "settles at 0.5105")
    assert list(settles.y) == [0.51049] * 2
