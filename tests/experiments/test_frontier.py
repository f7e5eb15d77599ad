"""The frontier: every cell, who dominates whom, and going on after a stop."""

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest
import store_frames as frames
from answers import ledger, point
from places import ROOT, SUPPORT

from avlab.commands.frontier import Sweep
from avlab.config import ConfigError, RunConfig
from avlab.experiments.frontier_analysis import analyse_frontier, dominates
from avlab.experiments.frontier_plan import Rest, earlier_runs, make_frontier
from avlab.experiments.frontier_words import best_by_load, sentences
from avlab.experiments.plan import FRONTIER_ARMS, notes
from avlab.experiments.words import LEDGER
from avlab.figures import frontier as figures_frontier
from avlab.lab.lab import Lab
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.experiments import FINISHED
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import frames as fr

WORKER = (sys.executable, str(SUPPORT / "stand_in_serving.py"))
QUICK = {"loads": (1, 4), "repeats": 2, "block": "6steps", "washout": 1, "learn": 10}
SAID = ", by the measured values, errors ignored"
BARS = (
    "They are Student's, over repeats: what differs from session to session is in them only as far as the repeats are "
    "from several."
)


def plan(arms=("adaptive", "none"), **changes):
    config = RunConfig.make(policy="none", max_num_seqs=4, workload="code")
    return make_frontier(config, arms, **(QUICK | changes))


def test_a_frontier_goes_on_where_it_was_stopped(tmp_path):
    config, whole = plan(repeats=3)
    first = plan(repeats=1)[1]
    with Lab(tmp_path / "lab.duckdb", worker_commands={"reference": WORKER}) as lab:
        assert lab.plan_frontier(config, whole) == Rest([], whole)
        one = lab.run(config, first)
        assert lab.supervisor.wait(120) and not lab.supervisor.status().error
        assert all(each.tokens_per_s_low is None for each in lab.frontier(one).points)
        rest = lab.plan_frontier(config, whole)
        assert rest.runs == [one] and rest.plan.rounds == 2
        other = lab.run(config, rest.plan)
        assert lab.supervisor.wait(120) and not lab.supervisor.status().error
        assert lab.plan_frontier(config, whole) == Rest([one, other], None)
        assert lab.plan_frontier(config.changed(temperature=0.5), whole).runs == []
        answer = lab.frontier(other, ("p95_tpot_ms", 10_000.0))
        with lab.database.cursor() as con:
            newest = queries.user_times(con, other, FINISHED)
            pooled = queries.user_times(con, [one, other], FINISHED)
    assert (answer.runs, answer.repeats, answer.cells) == ([one, other], 3, (12, 4))
    assert (answer.planned, answer.beyond) == (12, 0)
    assert {(p.arm, p.load, p.repeats) for p in answer.points} == {
        (arm, load, 3) for arm in ("adaptive", "none") for load in (1, 4)
    }
    for each in answer.points:
        assert each.tokens_per_s_low < each.tokens_per_s < each.tokens_per_s_high
        assert each.interactivity == pytest.approx(each.tokens_per_s / each.load, rel=0.5)
        assert each.ledger.steps == 3 * 6  # of all repeats, not of the newest run's two
        seen = pooled[f"{each.arm}@{each.load}"]
        assert (each.p50_tpot_ms, each.p95_tpot_ms) == (seen.p50_tpot_ms, seen.p95_tpot_ms)
        assert each.p50_ttft_ms == seen.p50_ttft_ms
    assert pooled.keys() == newest.keys() and pooled != newest
    assert f"Fastest within p95_tpot_ms ≤ 10000 ms{SAID}: " in answer.sentences[-1]


def test_dominated_means_beaten_in_both(monkeypatch):
    points = [point("a", 1, 10, 10), point("b", 1, 9, 9), point("c", 1, 11, 5), point("d", 1, 10, 10)]
    dominated = {p.arm for p in points if any(dominates(other, p) for other in points)}
    assert dominated == {"b"}


def test_the_load_at_which_the_best_arm_within_a_limit_changes():
    cells = [point("a", n, 10, 9, 5.0 * n) for n in (1, 2, 4)] + [
        point("b", n, 8, 9, 2.0 * n) for n in (1, 2, 4)
    ]
    text = best_by_load(cells, [1, 2, 4], ("p95_tpot_ms", 10.0))
    assert text == f"Fastest within p95_tpot_ms ≤ 10 ms{SAID}: a from 1 to 2 requests, b at 4 requests."
    assert "no arm from 1 to 4 requests" in best_by_load(cells, [1, 2, 4], ("p95_tpot_ms", 1.0))


def test_a_point_without_a_figure_is_neither_within_a_limit_nor_beyond_it():
    cells = [point("a", n, 10, 9, 5.0 if n > 1 else None) for n in (1, 2, 4)]
    cells += [point("b", n, 12, 9, None) for n in (1, 2, 4)]
    text = best_by_load(cells, [1, 2, 4], ("p95_tpot_ms", 10.0))
    assert text == (
        f"Fastest within p95_tpot_ms ≤ 10 ms{SAID}: not measured at 1 request, a from 2 to 4 requests. Not measured "
        "for b with 2, 4 requests."
    )


def told(*repeats):
    cells = [
        point("a", load, 10, 9, dominated=load > 1, repeats=n)
        for load, n in zip((1, 4), repeats, strict=True)
    ]
    return sentences(cells)


def test_who_is_on_the_frontier_is_said_with_what_is_known_of_its_error():
    arm, error = told(1, 1)
    assert arm == "a is on the frontier at 1 of 2 loads (with 1 request)."
    assert error == (
        f"The frontier goes{SAID[1:]}; with a single repeat a point has no error bar: at least 3 are needed."
    )
    assert "; with 2 repeats a point has no error bar: at least 3 are needed." in told(2, 1)[1]
    assert "; points with fewer than 3 repeats have no error bar." in told(2, 3)[1]
    assert told(3, 3)[1] == f"The frontier goes{SAID[1:]}; the error bars show how far to trust it. {BARS}"
    assert sentences([]) == []


def test_what_error_bars_need_is_said_beforehand():
    assert notes(plan(repeats=1)[1]) == ["With 1 repeat there are no error bars: at least 3 are needed."]
    assert notes(plan(repeats=3)[1]) == []


@contextmanager
def stored(tmp_path, *runs):
    """A cursor, the ids, and settings and plan of runs of one frontier of four cells. A run: the repeats it was asked
    for, and by round whether it was kept (None: it never ended) and how many of its cells were served.
    """
    config, whole = plan(("fixed:2", "none"), repeats=2)
    ids = [new_run_id(1_780_000_000.0 + place) for place in range(len(runs))]
    with Database(tmp_path / "lab.duckdb") as database, Recorder(database) as recorder:
        for run, (repeats, *rounds) in zip(ids, runs, strict=True):
            asked = msgspec.structs.replace(whole, rounds=repeats)
            sent = [frames.hello(config=config.model_dump(mode="json")), fr.ExperimentBegun(asked, 0.0, 0)]
            blocks = 0
            for number, (kept, cells) in enumerate(rounds):
                for arm in whole.arms[:cells]:
                    step = 10 * blocks
                    sent.append(fr.Block(blocks, arm, "serve", step, step / 10, "code", number))
                    sent.append(frames.steps(step, step + 10, block=blocks))
                    sent.append(fr.BlockRequests(blocks, [blocks], [80], [1.0]))
                    blocks += 1
                if kept is not None:
                    reason = "" if kept else "serving was paused"
                    sent.append(fr.RoundDone(number, kept, reason, float(blocks), 10 * blocks))
            for envelope in frames.envelopes(sent, run, 0):
                recorder.record(envelope)
        recorder.flush()
        yield database.cursor(), ids, config, whole


def test_a_resumed_frontier_plans_what_was_asked_for_and_counts_the_rest_beside_it(tmp_path):
    """Two repeats asked for: one and two cells of the next, then a run without a cell, then one of the repeat left."""
    with stored(tmp_path, (2, (True, 4), (None, 2)), (1,), (1, (True, 4))) as (con, ids, config, whole):
        assert earlier_runs(con, config.model_dump(mode="json"), whole) == [ids[0], ids[2]]
        first, none, last = (analyse_frontier(con, run) for run in ids)
    assert (first.cells, first.planned, first.beyond) == ((6, 4), 8, 0)
    assert (none.runs, none.cells, none.planned, none.beyond) == (ids[:2], (4, 4), 8, 2)
    assert last.runs == [ids[0], ids[2]]
    assert (last.cells, last.planned, last.beyond, last.repeats) == ((8, 4), 8, 2, 2)
    assert sum(each.repeats for each in last.points) == 10
    assert last.sentences[-1] == "2 cells of repeats that were started again also count."


def test_cells_of_a_dropped_repeat_are_beyond_the_plan(tmp_path):
    with stored(tmp_path, (2, (False, 1), (True, 4), (None, 3))) as (con, ids, _, _):
        answer = analyse_frontier(con, ids[0])
    assert (answer.cells, answer.planned, answer.beyond) == ((7, 4), 8, 1)
    assert answer.sentences[-1] == "1 cell of repeats that were started again also count."


def test_a_wide_bar_does_not_crowd_the_points():
    own = [point("none", 1, 20.0, 20.0), point("none", 4, 40.0, 10.0)]
    wide = [replace(own[0], tokens_per_s_high=900.0, tokens_per_s_low=1.0), own[1]]
    assert figures_frontier.frontier(wide).layout.yaxis.range[1] < 100
    narrow = [own[0], replace(own[1], tokens_per_s_high=44.0, tokens_per_s_low=36.0)]
    assert 44 < figures_frontier.frontier(narrow).layout.yaxis.range[1] < 50
    assert figures_frontier.frontier(own).layout.xaxis.range == (0.0, 22.0)


def test_hover_tells_the_whole_ledger():
    entry = ledger(**{name: 10.0 + place for place, name in enumerate(LEDGER)}, tokens_per_step=2.5)
    whole = point("a", 4, 10, 9, repeats=3, ledger=entry, p50_ttft_ms=50.0)
    (told,) = figures_frontier.frontier([whole, replace(whole, arm="b")]).data[0].customdata
    assert all(f"{title}: {10 + place}" in told for place, title in enumerate(LEDGER.values()))
    untold = replace(whole, ledger=replace(entry, decide_ms=None))
    assert "deciding, ms: –" in figures_frontier.frontier([untold]).data[0].customdata[0]


def test_the_command_measures_what_the_page_offers():
    assert Sweep().arms.split(",") == list(FRONTIER_ARMS)
    assert Sweep().concurrency == "1,2,4,8,16,32,64"
    assert {"adaptive", "adaptive+depth"} < set(FRONTIER_ARMS)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"arms": ("adaptive",)}, "two arms or more"),
        ({"arms": ("none", "none")}, "listed twice"),
        ({"arms": ("nope",)}, "there is no policy 'nope'"),
        ({"arms": ("none", "fixed:9")}, "'fixed:9' asks for 9"),
        ({"loads": ()}, "needs loads"),
        ({"loads": (1, 64)}, "at most max_num_seqs, 4"),
        ({"block": "1steps"}, "wash-out"),
    ],
)
def test_a_frontier_that_cannot_be_is_refused_with_a_sentence(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        plan(**changes)


def test_the_command_line_and_the_report(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    monkeypatch.setenv("AVLAB_STAND_IN", "serving")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def avlab(*arguments):
        command = [sys.executable, str(SUPPORT / "stand_in_cli.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    options = [
        "--arms",
        "fixed:2,none",
        "--concurrency",
        "1,4",
        "--max-num-seqs",
        "4",
        "--block",
        "6steps",
        "--repeats",
        "1",
    ]
    ran = avlab("frontier", *options, "--json")
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert len(answer["points"]) == 4
    assert "With 1 repeat there are no error bars: at least 3 are needed." in ran.stderr
    again = avlab("frontier", *options)
    assert (
        again.returncode == 0
        and "Every repeat is there" in again.stderr
        and "on the frontier" in again.stdout
    )
    later = avlab("show", "last")
    assert later.returncode == 0 and again.stdout in later.stdout, later.stderr
    file = tmp_path / "out.html"
    assert avlab("report", "last", str(file), "--slo", "p95_tpot_ms=10000").returncode == 0
    text = file.read_text(encoding="utf-8")
    assert (
        "Throughput against interactivity" in text and "Plotly.newPlot" in text and str(tmp_path) not in text
    )
    assert "Ledger, per 1,000 output tokens" in text and "deciding, ms" in text and "drawn with seed" in text
    assert f"Fastest within p95_tpot_ms ≤ 10000 ms{SAID}: " in text
    assert "src=" not in text.partition("<script>")[0] and "default-src 'none'" in text
    refused = avlab("report", "last", str(file))
    assert refused.returncode == 1 and "is there already" in refused.stderr
