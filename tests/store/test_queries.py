"""What the store answers: run summaries with known numbers, and traces that never re-read history."""

import json
from dataclasses import replace

import numpy as np
import pytest
import store_frames as frames
from answers import ab_answer, seen
from places import ROOT
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from avlab.experiments import control_variate
from avlab.experiments.answers import AgainstFixed
from avlab.experiments.reasons import why
from avlab.figures import ab as figures_ab
from avlab.figures.base import gaps_of
from avlab.speculation.calibration import bin_sums, scores
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.errors import UnknownRun
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import frames as fr


@pytest.fixture
def lab(tmp_path):
    """A function that records frames as one run and gives (cursor, run id)."""
    with Database(tmp_path / "lab.duckdb") as database, Recorder(database) as recorder:

        def record(*sent, run=None, first=0):
            run = run or new_run_id()
            for envelope in frames.envelopes(sent, run, first):
                recorder.record(envelope)
            recorder.flush()
            return database.cursor(), run

        yield record


def test_headline_rates_count_only_what_was_served(lab):
    cancelled = frames.request(4, tokens=101, block=1, finish="cancelled")  # cut off by the run's end: counts
    windowed = frames.request(5, tokens=201, block=2)
    con, run = lab(*frames.whole_run()[:-1], cancelled, windowed, frames.bye())
    summary = queries.run_summary(con, run)
    # 20 served steps of 0.1 s with 8 tokens each; the wash-out and the window (400 tokens a step) do not
    assert summary["tokens_per_s"] == pytest.approx(80.0)
    assert summary["tokens_per_step"] == pytest.approx(2.0)
    assert (summary["steps"], summary["tokens"], summary["requests"]) == (20, 160, 3)
    assert (summary["refused"], summary["cancelled"]) == (0, 1)
    assert summary["tokens_per_s_per_user"] == pytest.approx(17.5)  # of 10, 15, 20 and 50
    assert summary["ledger_ms"] == {
        "draft": 10.0, "verify": 60.0, "sample": 15.0, "decide": 5.0, "report": 2.0, "idle": 8.0
    }  # fmt: skip
    assert (summary["workload"], summary["arrival"]) == ("chat", "closed:4")
    assert summary["policy"] == queries.run_list(con)[0]["policy"] == "A/B of adaptive, fixed:2"
    assert queries.run_summary(con, run, "adaptive")["policy"] == "adaptive"
    assert (summary["state"], summary["reason"], summary["duration_s"]) == ("finished", "done", 9.0)
    assert (summary["run_id"], summary["started"]) == (run, 1_780_000_000.0)
    assert (summary["target"], summary["drafter"], summary["K"]) == ("tiny-target", "tiny-drafter", 3)
    assert [b["tokens"] for b in summary["blocks"]] == [80, 160, 4000]
    assert [e["kind"] for e in summary["events"]] == ["note from worker", "finished"]


def test_the_list_counts_what_the_summary_counts(lab):
    ends = ["end", "length", "length", "refused", "refused", "refused", "cancelled"]
    done = [frames.request(10 + n, block=1, finish=finish) for n, finish in enumerate(ends)]
    beside = [frames.request(20, block=0), frames.request(21, block=2, finish="refused")]
    con, run = lab(*frames.whole_run()[:-1], *done, *beside, frames.bye())
    listed, summary = queries.runs(con)[0], queries.run_summary(con, run)
    assert (summary["requests"], summary["refused"], summary["cancelled"]) == (6, 3, 1)
    for name in ("steps", "tokens", "requests", "refused", "cancelled", "duration_s"):
        assert listed[name] == summary[name], name


def test_coefficients_are_those_of_the_last_refit(lab):
    con, run = lab(
        frames.hello(), frames.block(0), *(frames.refit(i, 0.5 + i / 10, 100 * i) for i in range(4))
    )
    summary = queries.run_summary(con, run)
    assert (summary["slope"], summary["refits"]) == (0.8, 3)
    assert summary["intercepts"] == [-0.2, -0.3, -0.4]


def test_a_slope_that_is_stuck_is_counted(lab):
    con, run = lab(frames.hello(), frames.block(0), *(frames.refit(i, 0.5, 100 * i) for i in range(5)))
    assert queries.run_summary(con, run)["dropped_slope_steps"] == 4
    con, run = lab(frames.hello(), frames.block(0), *(frames.refit(i, 0.5 + i, 100 * i) for i in range(5)))
    assert queries.run_summary(con, run)["dropped_slope_steps"] == 0


def test_positions_say_the_three_acceptances_apart(lab):
    con, run = lab(*frames.whole_run())
    first, second, third = queries.run_summary(con, run)["positions"]
    assert {name: first[name] for name in ("position", "scheduled", "admitted", "accepted", "labelled")} == {
        "position": 0, "scheduled": 80, "admitted": 80, "accepted": 60, "labelled": 80
    }  # fmt: skip
    assert [p["conditional_acceptance"] for p in (first, second, third)] == [0.75, 1.0, 0.0]
    assert [p["admitted"] for p in (first, second, third)] == [80, 40, 20]


def test_calibration_measures_equal_those_of_the_slots_themselves(lab):
    rng = np.random.default_rng(5)
    log_odds = rng.normal(0.4, 2.0, (3000, frames.K))
    label = (rng.random((3000, frames.K)) < 1 / (1 + np.exp(-0.7 * log_odds - 0.2))).astype(int)
    halves = [bin_sums(log_odds[i::2], label[i::2]) for i in range(2)]
    raw = bin_sums(2 * log_odds, label)
    con, run = lab(
        frames.hello(),
        frames.block(0, kind="window"),
        frames.calibration(raw, "online", 0),  # not served: must not count
        frames.block(1),
        frames.calibration(halves[0], "online", 1, 1),
        frames.calibration(halves[1], "online", 1, 2),
        frames.calibration(raw, "raw", 1, 1),
        frames.steps(0, 3, 1),
    )
    summary = queries.run_summary(con, run)
    p, y = 1 / (1 + np.exp(-log_odds)), label
    assert summary["log_loss"] == pytest.approx(log_loss(y.ravel(), p.ravel()), rel=1e-9)
    assert summary["brier"] == pytest.approx(brier_score_loss(y.ravel(), p.ravel()), rel=1e-9)
    assert summary["auc"] == pytest.approx(roc_auc_score(y.ravel(), p.ravel()), abs=1e-3)
    for k, position in enumerate(summary["positions"]):
        assert position["log_loss"] == pytest.approx(log_loss(y[:, k], p[:, k]), rel=1e-9)
        assert position["auc"] == pytest.approx(roc_auc_score(y[:, k], p[:, k]), abs=1e-3)
        assert position["ece"] == pytest.approx(scores(halves[0][k] + halves[1][k]).ece)
    assert summary["raw_ece"] == pytest.approx(scores(raw.sum(axis=0)).ece)
    assert summary["raw_ece"] > 2 * summary["ece"]


@pytest.mark.parametrize(
    "policy, expected", [("adaptive", 1), ("adaptive:head", 2), ("adaptive:raw+depth", 3), ("fixed:3", None)]
)
def test_measures_are_of_the_source_that_the_policy_decides_by(lab, policy, expected):
    sums = {i: frames.sums_of(np.random.default_rng(i)) for i in (1, 2, 3)}
    con, run = lab(
        frames.hello(),
        frames.block(0, policy),
        *(frames.calibration(sums[i], source) for i, source in ((1, "online"), (2, "head"), (3, "raw"))),
    )
    wanted = None if expected is None else scores(sums[expected].sum(axis=0)).log_loss
    assert queries.run_summary(con, run)["log_loss"] == (wanted if wanted is None else pytest.approx(wanted))
    assert queries.run_summary(con, run)["raw_ece"] is not None


def test_what_a_policy_does_not_define_is_null_and_json_holds_all(lab):
    con, run = lab(frames.hello(drafter=None, drafter_hash=None, K=0), frames.block(0, "none"))
    empty = queries.run_summary(con, run)
    undefined = (
        "tokens_per_s", "tokens_per_s_per_user", "tokens_per_step", "slope", "intercepts", "refits", "ece",
        "log_loss", "brier", "auc", "raw_ece", "duration_s",
    )  # fmt: skip
    assert {name: empty[name] for name in undefined} == dict.fromkeys(undefined)
    assert empty["positions"] == [] and empty["state"] == "running"
    assert set(empty["ledger_ms"].values()) == {None}
    nothing = float("nan")
    vectors = {"scheduled": (), "admitted": (), "accepted": (), "labelled": ()}
    steps = frames.steps(0, 3, expected_ms=nothing, expected_tokens=nothing, drafted=0, **vectors)
    one = frames.request(1, tokens=1, last=1.0)  # a single token has no rate
    con, run = lab(frames.hello(), frames.block(0, "none"), steps, one, frames.bye())
    summary = queries.run_summary(con, run)
    assert summary["tokens_per_s"] == pytest.approx(80.0)
    assert summary["tokens_per_s_per_user"] is None and summary["positions"] == []
    assert empty["exploration"] is None
    for answer in (empty, summary, queries.runs(con), queries.describe(con, run)):
        json.dumps(answer, allow_nan=False)


def test_what_exploration_cost_is_summed_over_what_was_served(lab):
    none = frames.steps(5, 9, 1, explored=0, explored_ms=0.0)
    con, run = lab(
        frames.hello(),
        frames.block(0),
        frames.steps(0, 5),
        frames.block(1, "fixed:3", step=5, time=0.5),
        none,
    )
    assert queries.run_summary(con, run, "adaptive")["exploration"] == {
        "explored": 10, "admitted": 35, "steps": 5, "explored_ms": 7.5
    }  # fmt: skip
    assert queries.run_summary(con, run, "fixed:3")["exploration"] is None
    trace = queries.steps_since(con, run, max_points=2).to_pydict()
    assert (sum(trace["explored"]), sum(trace["explored_ms"])) == (10, 7.5)


def test_a_summary_of_one_arm_of_several(lab):
    con, run = lab(
        frames.hello(config={"policy": "adaptive"}),
        frames.block(0),
        frames.steps(0, 10, 0),
        frames.refit(1, 0.9),
        frames.block(1, "fixed:3", step=10, time=1.0),
        frames.steps(10, 20, 1, tokens=4),
        frames.block(2, step=20, time=2.0),
        frames.steps(20, 30, 2),
        frames.request(1, block=0),
        frames.request(2, block=1, tokens=11),
    )
    adaptive, fixed = (queries.run_summary(con, run, arm) for arm in ("adaptive", "fixed:3"))
    assert (adaptive["tokens_per_s"], fixed["tokens_per_s"]) == (pytest.approx(80.0), pytest.approx(40.0))
    assert (adaptive["tokens_per_s_per_user"], fixed["tokens_per_s_per_user"]) == (10.0, 5.0)
    assert (adaptive["slope"], fixed["slope"]) == (0.9, None)
    both = queries.run_summary(con, run)
    assert both["policy"] == "adaptive, fixed:3" and both["tokens_per_s"] == pytest.approx(200 / 3)
    assert [p["scheduled"] for p in adaptive["positions"]] == [80] * 3


def test_a_ledger_tells_apart_no_time_and_time_that_is_not_told(lab):
    untold = dict.fromkeys(("draft_ms", "verify_ms", "sample_ms", "decide_ms"), float("nan"))
    untold |= {"target_tokens": None, "expected_ms": float("nan")}
    undrafted = dict.fromkeys(("scheduled", "admitted", "accepted", "labelled"), (0, 0, 0))
    con, run = lab(
        frames.hello(),
        fr.Block(0, "adaptive", "serve", 0, 0.0, "chat", 0),
        frames.steps(0, 10),
        fr.Block(1, "none", "serve", 10, 1.0, "chat", 0),
        frames.steps(10, 20, block=1, **untold, **undrafted),
        fr.RoundDone(0, True, "", 2.0, 20),
    )
    told = queries.arm_ledger(con, run)
    parts = ("draft_ms", "verify_ms", "sample_ms", "decide_ms")
    assert [getattr(told["none"], part) for part in parts] == [None] * 4
    whole = pytest.approx(12_500)  # 0.1 s for eight tokens
    assert told["none"].other_ms == told["none"].total_ms == whole
    assert sum(getattr(told["adaptive"], part) for part in (*parts, "other_ms")) == whole
    per_step = 1000 / 8  # tokens
    assert (told["adaptive"].explored, told["adaptive"].explored_ms) == (2 * per_step, 1.5 * per_step)
    told = {arm: control_variate.with_prompts(entry, 0.0, 0.0) for arm, entry in told.items()}
    told["adaptive"] = replace(told["adaptive"], draft_ms=0.0, saved_ms=5000.0, expected_ms=None)
    told["none"] = replace(told["none"], total_ms=12_000.0)
    answer = ab_answer(
        arms={arm: seen(ledger=each, tokens_per_s=len(arm)) for arm, each in told.items()},
        adaptive=[AgainstFixed("adaptive", [], False, None, None, ["none"], [])],
    )
    (reason,) = why(answer, {})
    assert reason.term == "not told" and "none goes" in reason.text
    bars = {trace.name: trace for trace in figures_ab.ledger(answer).data}
    assert list(bars["verification"].x) == [0.0, pytest.approx(7500)]


def test_runs_are_listed_newest_first_and_found_by_part_of_the_id(lab):
    old, new = new_run_id(1_700_000_000.0), new_run_id(1_780_000_000.0)
    lab(*frames.whole_run(), run=new)
    con, _ = lab(frames.hello(config={"policy": "fixed:2", "workload": "code"}), run=old)
    first, second = queries.runs(con)
    assert (first["run_id"], second["run_id"]) == (new, old)
    assert (first["steps"], first["tokens"], first["requests"]) == (20, 160, 3)
    assert (second["state"], second["policy"], second["workload"], second["steps"]) == (
        "running",
        "fixed:2",
        "code",
        0,
    )
    assert queries.find_run(con, "last") == new
    assert (
        queries.find_run(con, old)
        == queries.find_run(con, old[:10])
        == queries.find_run(con, old[-8:])
        == old
    )
    for text, sentence in (
        ("01", "2 runs answer"),
        ("nonsense", "No run answers to 'nonsense' among the 2"),
        ("", "No"),
    ):
        with pytest.raises(UnknownRun, match=sentence):
            queries.find_run(con, text)
    with pytest.raises(UnknownRun, match="There is no run"):
        queries.run_summary(con, new_run_id())


# --- traces


def test_a_trace_is_bucketed_to_its_limit_and_loses_nothing(lab):
    con, run = lab(frames.hello(), frames.block(0), frames.steps(0, 1000))
    trace = queries.steps_since(con, run, max_points=100).to_pandas()
    assert 50 <= len(trace) <= 100 and set(trace["width"]) == {16}
    assert trace["tokens"].sum() == 8000 and trace["steps"].sum() == 1000
    assert trace["seconds"].sum() == pytest.approx(100.0)
    np.testing.assert_allclose(trace["tokens_per_s"], 80.0)
    np.testing.assert_allclose(trace["tokens_per_step"], 2.0)
    assert trace["step"].is_monotonic_increasing and trace["step"].iloc[-1] == 999
    positions = queries.positions_since(con, run, max_points=100).to_pandas()
    assert len(positions) == frames.K * len(trace)
    assert positions.groupby("position")["admitted"].sum().tolist() == [4000, 2000, 1000]
    assert queries.last_step(con, run) == 999


def test_following_a_trace_gives_the_same_as_reading_it_at_once(lab):
    con, run = lab(frames.hello(), frames.block(0))
    points, width, seen, read = {}, None, -1, 0
    for number in range(60):
        lab(frames.steps(7 * number, 7 * (number + 1), tokens=number), run=run, first=2 + number)
        fresh = queries.steps_since(con, run, seen, max_points=50).to_pylist()
        if fresh[0]["width"] != width:
            fresh, points = queries.steps_since(con, run, max_points=50).to_pylist(), {}
            width = fresh[0]["width"]
        else:
            read += len(fresh)
            assert len(fresh) <= 8, "history was read again"
        points |= {row["bucket"]: row for row in fresh}
        seen = fresh[-1]["step"]
    assert list(points.values()) == queries.steps_since(con, run, max_points=50).to_pylist()
    assert len(points) <= 50 and read > 0
    assert [row["bucket"] for row in queries.steps_since(con, run, seen, max_points=50).to_pylist()] == [416]


@pytest.mark.parametrize(
    "last, points, width", [(-1, 10, 1), (9, 10, 1), (10, 10, 2), (19, 10, 2), (20, 10, 4)]
)
def test_bucket_width(last, points, width):
    assert queries.bucket_width(last, points) == width
    assert last // width + 1 <= points


def test_time_that_a_pause_took_is_told_and_time_between_blocks_is_no_steps(lab):
    late = [frames.step(10 + i, time=61.1 + 0.1 * i) for i in range(5)]
    later = [frames.step(15 + i, block=1, time=121.1 + 0.1 * i) for i in range(5)]
    con, run = lab(
        frames.hello(), frames.block(0), frames.steps(0, 10), fr.Event("info", "paused", "Serving is held.", 1.0, 10),
        fr.Event("info", "serving", "Serving goes on.", 61.0, 10), fr.Steps(late),
        frames.block(1, "none", step=15, time=121.0), fr.Steps(later),
    )  # fmt: skip
    trace = queries.steps_since(con, run, max_points=100).to_pydict()
    assert trace["paused"] == [0.0] * 10 + [pytest.approx(60.0)] + [0.0] * 9
    assert trace["seconds"][10] == pytest.approx(60.1) and trace["seconds"][15] == pytest.approx(0.1)
    gaps = gaps_of({name: np.array(trace[name]) for name in ("time", "seconds", "paused")})
    assert np.flatnonzero(gaps).tolist() == [9, 14]
    wide = queries.steps_since(con, run, max_points=5).to_pydict()
    assert sum(wide["paused"]) == pytest.approx(60.0) and sum(wide["seconds"]) == pytest.approx(62.0)


def test_buckets_do_not_mix_blocks(lab):
    con, run = lab(
        frames.hello(), frames.block(0), frames.steps(0, 10), frames.block(1, "fixed:3", step=10, time=1.0),
        frames.steps(10, 32, 1, tokens=4),
    )  # fmt: skip
    trace = queries.steps_since(con, run, max_points=4).to_pylist()
    assert [(t["bucket"], t["block"], t["steps"], t["tokens"]) for t in trace] == [
        (0, 0, 8, 64), (8, 0, 2, 16), (8, 1, 6, 24), (16, 1, 8, 32), (24, 1, 8, 32)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "question, frame, rows",
    [
        (queries.refits_since, frames.refit(1), frames.K),
        (queries.events_since, frames.event(), 1),
        (queries.requests_since, frames.request(1, prompt="secret"), 1),
    ],
)
def test_only_what_came_after_the_last_row_is_read(lab, question, frame, rows):
    lab(frames.hello(), frame)  # another run's rows do not count
    con, run = lab(frames.hello(), frame)
    first = question(con, run)
    assert first.num_rows == rows and "prompt" not in first.column_names
    seen = max(first["row"].to_pylist())
    assert question(con, run, seen).num_rows == 0
    lab(frame, run=run, first=2)
    later = question(con, run, seen)
    assert later.num_rows == rows and min(later["row"].to_pylist()) > seen


def test_calibration_rows_are_filtered_and_add_up(lab):
    sums = frames.sums_of(np.random.default_rng(0))
    con, run = lab(
        frames.hello(),
        frames.block(0),
        frames.block(1, kind="window"),
        frames.block(2, kind="audit"),
        frames.calibration(sums, "online", 0, 1, kind="code", temperature=0.0),
        frames.calibration(sums, "online", 1, 2),
        frames.calibration(sums, "raw", 0, 3),
        frames.calibration(sums, "raw", 2, 4),
    )
    slots = int(sums[..., 0].sum())

    def windows(**filters):
        found = queries.calibration_rows(con, run, **filters).to_pandas()
        assert (found.groupby("window")["count"].sum() == slots).all()
        return sorted(set(found["window"]))

    assert windows() == [1, 2, 3]
    assert windows(source="raw") == [3]
    assert windows(after_window=1) == [2, 3]
    assert windows(workload="code") == windows(temperature=0.0) == [1]
    assert windows(kinds=("window",)) == [2]
    assert windows(kinds=("audit", "window")) == [2, 4]
    pairs = queries.calibration_rows(con, run, kinds=("serve", "window", "audit"), max_windows=3).to_pandas()
    assert pairs.groupby(["bucket", "source"])["count"].sum().to_dict() == {
        (0, "online"): slots, (2, "online"): slots, (2, "raw"): slots, (4, "raw"): slots
    }  # fmt: skip
    assert set(pairs["width"]) == {2} and pairs["window"].max() == 4
    again = queries.calibration_rows(con, run, after_window=2, max_windows=3).to_pandas()
    assert again["bucket"].min() == 2, "the bucket that holds the next window comes whole"


def test_costs_profiled_and_measured(lab):
    con, run = lab(
        frames.hello(),
        frames.cost_profile(),
        fr.CostProfile("later", [(1, 3, 5.0)], [(1, 50.0)], [[0.0, 5.0]] * 2, [0.0, 50.0], "dd"),
        frames.block(0),
        frames.steps(0, 3, verify_ms=50.0),
        frames.steps(3, 4, verify_ms=900.0),
        frames.steps(4, 5, prompt_tokens=9, verify_ms=400.0),
        frames.steps(5, 6, running=2, drafted=1, target_tokens=4, draft_ms=3.0),
    )
    profile = queries.cost_profile(con, run).to_pylist()
    assert {row["source"] for row in profile} == {"later"}
    assert [(r["phase"], r["size"], r["depth"], r["ms"]) for r in profile if r["form"] == "sample"] == [
        ("draft", 1, 3, 5.0), ("verify", 1, None, 50.0)
    ]  # fmt: skip
    table = [
        (r["size"], r["depth"], r["ms"]) for r in profile if (r["form"], r["phase"]) == ("table", "draft")
    ]
    assert table == [(0, 0, 0.0), (0, 1, 5.0), (1, 0, 0.0), (1, 1, 5.0)]
    assert queries.describe(con, run)["cost_hash"] == "dd"
    measured = [tuple(row.values()) for row in queries.cost_medians(con, run).to_pylist()]
    assert measured == [
        ("draft", 2, 1, 3.0, 1), ("draft", 4, 3, 10.0, 5), ("verify", 4, None, 60.0, 1),
        ("verify", 11, None, 50.0, 4),
    ]  # fmt: skip
    late = queries.cost_medians(con, run, after_step=3).to_pylist()
    assert [(row["phase"], row["size"]) for row in late] == [("draft", 2), ("draft", 4), ("verify", 4)]


def test_last_heartbeat(lab):
    con, run = lab(frames.hello())
    assert queries.last_heartbeat(con, run) is None
    lab(frames.heartbeat(1.0), frames.heartbeat(2.0), run=run, first=1)
    assert queries.last_heartbeat(con, run) == {
        "time": 2.0, "state": "serving", "step": 9, "rss_mb": 512.0, "drafts_dropped": 3
    }  # fmt: skip


def test_questions_do_not_load_torch_or_pandas():
    import subprocess
    import sys

    code = "import sys, avlab, avlab.store.queries, avlab.store.recorder, avlab.store.retention, avlab.store.export\n"
    code += "print([m for m in ('torch', 'vllm', 'pandas', 'streamlit') if m in sys.modules])"
    root = ROOT
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert said.stdout.strip() == "[]"
