"""Percentiles from vLLM's histograms: as Prometheus' `histogram_quantile` gives them, and infinite buckets said."""

import json
import math

import pytest
from typer.testing import CliRunner
from vllm_stand_in import metrics_text, serving

from avlab.commands.cli import app
from avlab.vllm import histograms
from avlab.vllm.metrics import between, read

INF = math.inf


def test_quantiles_lie_on_a_straight_line_within_their_bucket():
    buckets = histograms.of_bounds({0.1: 10.0, 0.2: 30.0, 0.4: 40.0, INF: 40.0})
    assert buckets == ((0.0, 0.1, 10.0), (0.1, 0.2, 20.0), (0.2, 0.4, 10.0), (0.4, INF, 0.0))
    for q, seconds in ((0.25, 0.1), (0.5, 0.15), (0.75, 0.2), (0.875, 0.3), (1.0, 0.4)):
        found = histograms.quantile(buckets, q)
        assert found.seconds == pytest.approx(seconds) and not found.beyond
    assert histograms.quantile((), 0.5) is None
    assert histograms.quantile(histograms.of_bounds({0.1: 0.0, INF: 0.0}), 0.5) is None


def test_what_lies_in_the_infinite_bucket_is_said():
    found = histograms.percentiles(histograms.of_bounds({0.1: 60.0, 2.5: 90.0, INF: 100.0}))
    assert found["p50_ms"] == pytest.approx(1e2 * 50 / 60) and found["p95_ms"] == 2500.0 == found["beyond_ms"]


def test_intervals_are_differences_and_other_bounds_say_nothing():
    before, after = histograms.of_bounds({0.1: 5.0, INF: 8.0}), histograms.of_bounds({0.1: 9.0, INF: 14.0})
    assert histograms.since(before, after) == ((0.0, 0.1, 4.0), (0.1, INF, 2.0))
    assert histograms.since((), after) == histograms.since(before, histograms.of_bounds({0.2: 9.0})) == ()


@pytest.mark.parametrize(
    "text",
    [None, "", "[", "[]", '{"first_token": 3}', '{"first_token": [[1]]}', '{"first_token": [[0, 1, -3]]}',
     '{"first_token": [[0, "x", 3]]}', '{"first_token": [[2, 1, 3]]}', '{"first_token": [[0, 1, 1e300]]}', "[" * 9999],
)  # fmt: skip
def test_a_stored_text_that_cannot_be_is_passed_over(text):
    assert histograms.read(text) == {}


def test_a_stored_text_is_read_back():
    found = {"first_token": histograms.of_bounds({0.1: 5.0, 0.5: 5.0, INF: 8.0})}
    assert histograms.read(histograms.told(found)) == {"first_token": ((0.0, 0.1, 5.0), (0.5, INF, 3.0))}
    assert histograms.told({}) is None


def text_of(fast, slow):
    """So many first tokens below 50 ms, so many between 1 and 2.5 s."""
    labels = 'engine="0",model_name="some/model"'
    name = "vllm:time_to_first_token_seconds_bucket"
    rows = {"0.05": fast, "1.0": fast, "2.5": fast + slow, "+Inf": fast + slow}
    text = metrics_text(10 * (fast + slow))
    text = "\n".join(line for line in text.splitlines() if name not in line) + "\n"
    return text + "".join(f'{name}{{{labels},le="{bound}"}} {count}.0\n' for bound, count in rows.items())


def test_a_reading_has_the_histograms_and_an_interval_their_differences():
    [before], [after] = (read(text_of(*each)).engines.values() for each in ((100, 0), (130, 10)))
    found = between(before, after).latencies["first_token"]
    assert [count for *_, count in found] == [30.0, 0.0, 10.0, 0.0]
    assert histograms.quantile(found, 0.95).seconds == pytest.approx(1.0 + 1.5 * (38 - 30) / 10)


def test_the_command_shows_percentiles_of_what_came_while_it_watched(tmp_path):
    path = str(tmp_path / "lab.duckdb")
    with serving() as server:
        looks = 0

        class Growing(dict):
            def get(self, name, default=None):
                nonlocal looks
                if name != "/metrics":
                    return super().get(name, default)
                looks += 1
                return text_of(1000 + 30 * looks, 10 * looks)

        server.answers = Growing(server.answers)
        words = ["attach", server.url, "--interval", "0.2", "--tokens", "1000", "--database", path]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    assert "p50 33.3, p95 2,200.0, p99" in result.stdout
    told = json.loads(CliRunner().invoke(app, ["show", "last", "--json", "--database", path]).stdout)[
        "watched"
    ]
    assert told["percentiles"]["first_token"]["p50_ms"] == pytest.approx(100 / 3)
    assert told["engines"][0]["percentiles"]["first_token"] == told["percentiles"]["first_token"]
