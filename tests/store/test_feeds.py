"""What pages read: once, then only what is new; what they have equals what a fresh reading would give."""

import dashboard
import numpy as np
import pytest
import store_frames as frames

from avlab.store import feeds, queries
from avlab.store.feeds import Feed
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.ui import host


@pytest.fixture
def recorder(tmp_path):
    with Recorder(tmp_path / "lab.duckdb", flush_seconds=0) as found:
        yield found


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setattr(feeds, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(feeds, "STEP_POINTS", 16)
    monkeypatch.setattr(feeds, "POSITION_POINTS", 16)
    monkeypatch.setattr(feeds, "WINDOWS", 4)


def same(mine, table):
    assert set(mine) == set(table.column_names)
    for name, column in mine.items():
        np.testing.assert_array_equal(column, table[name].to_numpy())


def test_a_trace_that_is_continued_equals_one_read_anew(recorder):
    run, feed, sequence = new_run_id(), None, 0
    rng = np.random.default_rng(0)
    for part in range(8):
        batch = [frames.hello(), frames.block(0)] if part == 0 else []
        batch += [frames.steps(7 * part, 7 * part + 7), frames.refit(part, step=7 * part)]
        batch += [frames.calibration(frames.sums_of(rng), window=part), frames.request(part)]
        for envelope in frames.envelopes(batch, run, sequence):
            recorder.record(envelope)
        sequence += len(batch)
        recorder.flush()
        with recorder.database.cursor() as con:
            feed = feed or Feed(run)
            feed.refresh(con)
            same(feed.steps, queries.steps_since(con, run, -1, 16))
            same(feed.positions(con), queries.positions_since(con, run, -1, 16))
            same(feed.calibration(con), queries.calibration_rows(con, run, max_windows=4))
            same(feed.refits(con), queries.refits_since(con, run))
            same(feed.requests(con), queries.requests_since(con, run))
            assert feed.last_step() == 7 * part + 6


def test_history_is_not_read_again(recorder, monkeypatch):
    run = new_run_id()
    for envelope in frames.envelopes([frames.hello(), frames.block(0), frames.steps(0, 10)], run):
        recorder.record(envelope)
    recorder.flush()
    asked = []
    whole = queries.steps_since

    def watched(con, run, after, points):
        asked.append(after)
        return whole(con, run, after, points)

    monkeypatch.setattr(queries, "steps_since", watched)
    feed = Feed(run)
    with recorder.database.cursor() as con:
        for _ in range(3):
            feed.refresh(con)
    assert asked == [-1, 9, 9]


def test_a_runs_end_is_read_though_its_last_second_was_read_a_moment_ago(recorder, monkeypatch):
    monkeypatch.setattr(feeds, "FRESH_SECONDS", 1e9)
    run, asked = new_run_id(), []

    def record(first, *batch):
        for envelope in frames.envelopes(batch, run, first):
            recorder.record(envelope)
        recorder.flush()

    feed = Feed(run)
    with recorder.database.cursor() as con:
        record(0, frames.hello(), frames.block(0), frames.steps(0, 10))
        feed.refresh(con)
        assert feed.now_and_then("last", feed.last_step) == 9
        record(3, frames.steps(10, 12))
        feed.refresh(con)
        assert feed.last_step() == 9  # one reading for several browsers
        feed.refresh(con, live=False)
        assert feed.last_step() == feed.now_and_then("last", feed.last_step) == 11
        monkeypatch.setattr(queries, "steps_since", lambda *_: asked.append(1))
        feed.refresh(con, live=False)
        assert not asked


def test_the_dashboard_knows_when_a_run_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "FRESH_SECONDS", 1e9)
    with dashboard.opened(tmp_path / "lab.duckdb") as lab:
        run = lab.run({"workload": "code", "K": 4, "max_new_tokens": 40})
        dashboard.until(lambda: dashboard.steps_of(lab) > 5)
        seen = host.feed(run).last_step()  # as a tick does
        dashboard.until(lambda: dashboard.steps_of(lab) > seen + 5)
        assert host.feed(run).last_step() == seen
        lab.stop()
        assert host.feed(run).last_step() + 1 == dashboard.steps_of(lab)


def test_only_the_last_requests_are_kept(recorder, monkeypatch):
    monkeypatch.setattr(feeds, "REQUESTS_KEPT", 5)
    run = new_run_id()
    batch = [frames.hello(), frames.block(0), *(frames.request(number) for number in range(12))]
    for envelope in frames.envelopes(batch, run):
        recorder.record(envelope)
    recorder.flush()
    with recorder.database.cursor() as con:
        assert Feed(run).requests(con)["request"].tolist() == [7, 8, 9, 10, 11]


def test_lists_of_runs_and_blocks_agree_with_the_counted_ones(recorder):
    runs = [new_run_id() for _ in range(2)]
    for run in runs:
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
    recorder.flush()
    with recorder.database.cursor() as con:
        listed = queries.run_list(con)
        assert [run["run_id"] for run in listed] == [run["run_id"] for run in queries.runs(con)]
        assert {run["state"] for run in listed} == {"finished"}
        light, counted = queries.block_list(con, runs[0]), queries.blocks(con, runs[0])
        assert light == [{name: block[name] for name in light[0]} for block in counted]
        assert queries.calibration_classes(con, runs[0]) == [("chat", 1.0)]
        lengths = queries.admitted_lengths(con, runs[0], 5)
        assert set(lengths["scheduled"].to_pylist()) == {3} and set(lengths["admitted"].to_pylist()) == {2}
        step = queries.last_stored_step(con, runs[0])
        assert step["step"] == 9 and step["survival"] == [0.5] * 3
        assert queries.last_stored_step(con, new_run_id()) is None
