"""Frontier and A/B where they replay: no run is needed, each speed bears its badge, and a change is redrawn."""

import time

import pytest
from dashboard import charts, finished_run, opened, page, said

from avlab.escaping import JOINER
from avlab.experiments.replay_cells import serve
from avlab.experiments.replay_sweep import Case
from avlab.figures import replay as figures
from avlab.ui import replays

BADGE = "emulated: B300 × 4, DeepSeek-V4-Flash's costs"
CASE = Case("reasoning", "b300-deepseek-v4-flash-tp4")
MOST_SECONDS = 90


@pytest.fixture
def lab(tmp_path):
    with opened(tmp_path / "lab.duckdb") as found:
        yield found


@pytest.fixture
def kept():
    """Cells as if they had been replayed before: the page then shows them at once."""
    trace, machine = CASE.opened()
    wanted = [(arm, load) for load in (1, 16) for arm in ("none", "fixed:2", "adaptive")]
    for arm, load in wanted:
        replays._cells[replays._key(CASE), (arm, load)] = serve(trace, machine, arm, load)
    yield wanted
    replays._cells.clear()


def test_a_frontier_is_replayed_without_a_run(lab, kept):
    app = page("frontier", **{"frontier-how": "Replay"})
    app.multiselect(key="frontier-replay-arms").set_value(["none", "fixed:2", "adaptive"])
    app.multiselect(key="frontier-replay-loads").set_value(["1", "16"]).run()
    assert not app.exception and charts(app) == 1
    words = said(app)
    assert BADGE in words and "What to set" in words and "K = 7, policy adaptive" in words
    assert "Every speed here is emulated" in words and "Nothing was recorded yet" not in words
    assert list(app.dataframe[0].value["requests"]) == [1, 1, 1, 16, 16, 16]


def test_an_ab_is_replayed_without_a_run(lab, kept):
    app = page("ab", **{"ab-how": "Replay"})
    app.multiselect(key="ab-replay-arms").set_value(["none", "fixed:2", "adaptive"]).run()
    assert not app.exception and charts(app) == 1
    words = said(app).replace(JOINER, "").replace("\\", "")  # as a reader sees them
    assert "adaptive is 3." in words and "faster than fixed:2" in words and BADGE in words


def test_an_arm_that_cannot_be_is_said_under_its_field(lab):
    app = page("frontier", **{"frontier-how": "Replay"})
    app.multiselect(key="frontier-replay-arms").set_value(["fixed:9"]).run()
    assert not app.exception and "asks for 9 draft tokens" in said(app) and charts(app) == 0
    replays.give_up(next(iter(replays._jobs), ""))


def test_a_change_gives_up_what_was_asked_before_and_keeps_what_it_found():
    replays._cells.clear()
    first, second = [("none", 64), ("fixed:2", 64)], [("none", 64), ("fixed:3", 64)]
    replays.seen("reader", CASE, first)
    end = time.monotonic() + MOST_SECONDS
    while not replays.seen("reader", CASE, first).done:
        assert time.monotonic() < end
        time.sleep(0.05)
    job = replays._jobs["reader"]
    seen = replays.seen("reader", CASE, second)
    assert [cell.arm for cell in seen.cells] == ["none"] and not seen.done
    assert replays._jobs["reader"] is not job and replays._jobs["reader"].wanted == {("fixed:3", 64)}
    replays.give_up("reader")
    replays._cells.clear()


def test_the_figure_bears_its_badge_and_tells_measured_points_apart(kept):
    cells = [replays._cells[replays._key(CASE), each] for each in kept]
    measured = [figures.PublishedPoint("none", 1, 500.0, 100.0)]
    figure = figures.frontier(cells, CASE.emulation, measured)
    assert "emulated" in figure.layout.annotations[0].text
    names = [trace.name for trace in figure.data]
    assert names == ["none, replayed", "fixed:2, replayed", "adaptive, replayed", "none, measured"]
    assert figure.data[-1].marker.symbol == "square-open" != figure.data[0].marker.symbol


def test_the_budget_page_asks_another_machine(lab):
    run = finished_run(lab)
    app = page("budget", run)
    app.selectbox(key="budget-machine").set_value("b300-deepseek-v4-flash-tp4").run()
    assert not app.exception and charts(app) > 2
