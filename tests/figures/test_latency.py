"""Latencies over time: percentiles of enough requests, from the times that were recorded."""

import numpy as np

from avlab.figures import latency


def requests(count):
    """One ends each tenth of a second; the i-th waits i % 100 ms for its first token, then 10 tokens 5 ms apart."""
    arrival = 0.1 * np.arange(count)
    first = arrival + 1e-3 * (np.arange(count) % 100)
    return {
        "request": np.arange(count), "arrival": arrival, "first_token": first, "last_token": first + 0.05,
        "output_tokens": np.full(count, 11),
    }  # fmt: skip


def test_percentiles_are_those_of_the_requests():
    figure = latency.first_token(requests(1000))
    lines = {trace.name: np.asarray(trace.y) for trace in figure.data}
    assert set(lines) == {"50 %", "95 %", "99 %"}
    assert abs(np.median(lines["99 %"]) - 98) < 2
    assert all(lines["99 %"].min() >= lines["50 %"].min() for _ in lines)
    between = latency.between_tokens(requests(1000))
    np.testing.assert_allclose(np.asarray(between.data[0].y), 5.0, rtol=1e-6)


def test_a_percentile_is_drawn_only_where_enough_requests_ended():
    names = [trace.name for trace in latency.first_token(requests(30)).data]
    assert names == ["50 %", "95 %"]
    assert latency.percentiles(np.zeros(0), np.zeros(0)) == {}


def test_what_never_came_is_left_out():
    rows = requests(50)
    rows["first_token"][::2] = np.nan
    rows["output_tokens"][:] = 1
    assert len(latency.first_token(rows).data)
    assert not latency.between_tokens(rows).data
    assert not latency.first_token({}).data
