"""The pages of experiments: set one up, watch it, read what it says."""

import pytest
from dashboard import charts, opened, page, said, until

from avlab.config import RunConfig
from avlab.experiments import frontier
from avlab.experiments.frontier import make_frontier
from avlab.experiments.plan import make_plan
from avlab.report import report
from avlab.ui import host
from store import queries


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with an A/B and then a frontier in it: its path and their ids."""
    path, runs = tmp_path_factory.mktemp("lab") / "lab.duckdb", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AVLAB_SIMULATED_TIME", "1")  # a verdict must not depend on how busy the machine is
        return _recorded(path, runs)


def _recorded(path, runs):
    config = RunConfig.make(policy="none", slots=16, workload="verse")
    quick = {"block": "6steps", "washout": 1, "learn": 10, "order_seed": 5}
    with opened(path) as lab:
        for made in (
            make_plan(config, ["fixed:5", "none"], rounds=9, **quick),
            make_frontier(config, ["fixed:5", "none"], (1, 4), 2, **quick),
        ):
            runs.append(lab.run(*made))
            assert lab.supervisor.wait(120) and not lab.supervisor.status().error
    return path, *runs


def press(app, label):
    return next(button for button in app.button if button.label == label).click().run()


def test_an_ab_on_its_page_and_in_its_report(database):
    path, run, _ = database
    with opened(path):
        app = page("ab", run)
        assert not app.exception and not app.main.error
        assert charts(app) == 3
        assert "none is " in said(app) and "faster than fixed:5 at 16 requests." in said(app)
        assert list(app.dataframe[0].value["arm"]) == ["fixed:5", "none"]
        assert "**Switchback.**" in said(app) and "**Isolated.**" in said(app)
        assert "drafts explored" in list(app.dataframe[1].value["per 1,000 output tokens"])
        app.text_input(key="slo").set_value("p95_tpot_ms=100000").run()
        assert not app.exception and "Within p95_tpot_ms ≤ 100000 ms, none is the fastest" in said(app)
        linked = page("ab", run, slo="p50_tpot_ms=100000")
        assert "Within p50_tpot_ms ≤ 100000 ms, none is the fastest" in said(linked)
        app.text_input(key="slo").set_value("soon").run()
        assert "cannot be read" in said(app)
        with host.connection() as con:
            text = report(con, run, ("p95_tpot_ms", 1e5))
        assert "faster than fixed:5 at 16 requests." in text and str(path) not in text
        assert "Within p95_tpot_ms ≤ 100000 ms, none is the fastest" in text and "seed 5" in text
        live = page("live", run)
        assert not live.exception and charts(live) == 7


def test_a_frontier_on_its_page_with_a_published_one_over_it(database, monkeypatch):
    path, run, other = database
    with opened(path):
        app = page("frontier", other)
        assert not app.exception and charts(app) == 1
        assert "is on the frontier at" in said(app)
        app.text_input(key="slo").set_value("p95_tpot_ms=100000").run()
        assert "Fastest within p95_tpot_ms ≤ 100000 ms" in said(app)
        app.selectbox(key="overlay").select_index(1).run()
        assert not app.exception and "published, scaled so that its none with 1 request lies on ours" in said(
            app
        )
        assert "both axes are logarithmic" in said(app)
        app.segmented_control(key="axes").set_value("linear").run()
        assert not app.exception and "both axes are logarithmic" not in said(app)
        monkeypatch.setattr(frontier, "shared_loads", lambda published, own: [])
        app.run()
        assert not app.exception and "lies on ours" not in said(app)
        assert "The published frontier is not drawn" in said(app)
        monkeypatch.undo()
        app = page("ab", other)
        assert "has no A/B in it" in said(app)
        app = press(app, "Show the last A/B")
        assert not app.exception and charts(app) == 3
        app = page("frontier", run)
        assert "measured no frontier" in said(app)


def test_starting_an_ab_from_the_page(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        app = page("ab")
        app.text_input(key="ab-washout").set_value("50")
        app = press(app, "Start the A/B")
        assert "no longer than its wash-out of 50 steps" in app.error[0].value
        app.text_input(key="ab-washout").set_value("1")
        app.text_input(key="ab-learn").set_value("10")
        app.text_input(key="ab-block-switchback").set_value("5steps")
        app = press(app, "Start the A/B")
        assert not app.exception and lab.supervisor.status().alive

        def rounds():
            with lab.database.cursor() as con:
                return len(queries.rounds(con, lab.supervisor.status().run))

        until(lambda: rounds() >= 2)
        app = page("ab")
        assert not app.exception and charts(app) == 3
        assert "too few rounds to say anything" in said(app) or "no difference is declared" in said(app)
        assert next(button for button in app.button if button.label == "Start the A/B").disabled
        lab.stop()
        assert "Left out: round" in said(page("ab"))
