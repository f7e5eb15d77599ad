"""The pages of experiments: set one up, watch it, read what it says."""

import pytest
from answers import ab_answer
from dashboard import charts, opened, page, said, steps_of, until

from avlab.config import RunConfig
from avlab.experiments import published
from avlab.experiments.analysis import analyse
from avlab.experiments.answers import Comparison
from avlab.experiments.frontier_plan import make_frontier
from avlab.experiments.plan import make_plan
from avlab.figures import ab
from avlab.figures import frontier as figures_frontier
from avlab.formats import unbroken
from avlab.report import report
from avlab.store import queries
from avlab.ui import host


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with an A/B and then a frontier in it: its path and their ids."""
    path, runs = tmp_path_factory.mktemp("lab") / "lab.duckdb", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AVLAB_SIMULATED_TIME", "1")  # a verdict must not depend on how busy the machine is
        return _recorded(path, runs)


def _recorded(path, runs):
    config = RunConfig.make(policy="none", max_num_seqs=16, workload="verse")
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
        assert not live.exception and charts(live) == 9


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
        monkeypatch.setattr(published, "shared_loads", lambda published, own: [])
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
        assert "too few rounds for an interval" in said(app) or "no difference declared" in said(app)
        assert next(button for button in app.button if button.label == "Start the A/B").disabled
        lab.stop()
        assert "Left out: round" in said(page("ab"))


def test_an_ab_that_was_stopped_before_its_first_round_does_not_claim_to_run(tmp_path):
    config = RunConfig.make(policy="none", max_num_seqs=16, workload="verse")
    made = make_plan(
        config, ["adaptive", "none"], rounds=30, concurrency=1, block="6steps", washout=1, learn=10**5
    )
    with opened(tmp_path / "lab.duckdb") as lab:
        run = lab.run(*made)
        until(lambda: steps_of(lab) > 20)

        def analysed():
            with lab.database.cursor() as con:
                return analyse(con, run) if run in queries.experiment_runs(con) else None

        until(analysed)
        running = analysed()
        lab.stop()
        app = page("ab", run)
        assert not app.exception and "1 request, blocks of" in said(app)
        assert "stopped after 0 of 30 rounds" in said(app)
        assert "None" not in str(app.dataframe[0].value["95 %, watched"].tolist())
        assert app.dataframe[0].value["95 %, watched"].tolist() == ["–", "baseline"]
        assert app.dataframe[0].proto.placeholder == "–"
        ended = analysed()
        assert "These numbers leave out learning, wash-out, windows of full verification" in said(
            page("live", run)
        )
    for draw in (ab.ratios, ab.ledger):
        assert "under way" in written(draw(running)) and "under way" not in written(draw(ended))
        assert "It ended before a round was complete" in written(draw(ended))
    assert "No arm has drafted yet." in written(ab.drafts(running))
    assert "No arm drafted in a round that counts." in written(ab.drafts(ended))
    assert "yet" not in written(figures_frontier.frontier([]))
    assert "No cell is complete yet" in written(figures_frontier.frontier([], live=True))


def written(figure):
    """What a figure without data says."""
    return figure.layout.annotations[0].text.replace("<br>", " ")


def test_a_frontier_that_was_stopped_says_how_far_it_came_and_how_sure_it_is(tmp_path):
    config = RunConfig.make(policy="none", max_num_seqs=16, workload="verse")
    quick = {"block": "6steps", "washout": 1, "learn": 10}
    with opened(tmp_path / "lab.duckdb") as lab:
        run = lab.run(*make_frontier(config, ["fixed:5", "none"], (1, 4), 100, **quick))

        def rounds():
            with lab.database.cursor() as con:
                return len(queries.rounds(con, run))

        until(lambda: rounds() >= 3)
        lab.stop()
        done = lab.frontier(run).cells[0]
        app = page("frontier", run)
        assert not app.exception
        assert f"Stopped, with {done} of 400 cells measured: the same form goes on from there." in said(app)
        assert "closed:1, 4 ·" in said(app)  # the head of the page
        table = app.dataframe[0].value
        assert all(" to " in each for name in ("tokens/s", "one user") for each in table[f"{name}, 95 %"])


def test_arms_and_loads_are_looked_at_where_they_are_typed(tmp_path):
    with opened(tmp_path / "lab.duckdb") as lab:
        app = page("ab")
        app.multiselect(key="ab-arms").set_value(["fixed:5", "nonsense"]).run()
        assert "there is no policy 'nonsense'" in said(app).replace("\\", "") and not app.main.error
        app = press(app, "Start the A/B")
        assert "there is no policy 'nonsense'" in app.main.error[0].value
        app.multiselect(key="ab-arms").set_value(["fixed:0", "none"]).run()
        assert "none#2 is none again (fixed:0 is none): comparing an arm" in said(app)
        app = page("frontier")
        app.multiselect(key="frontier-loads").set_value(["4", "24", "1"]).run()
        assert "24 cells, each served 3 times" in said(app)
        app.multiselect(key="frontier-loads").set_value(["4", "0"]).run()
        assert "A load is '0': give a whole number from 1 to 4,096." in said(app).replace("\\", "")
        app = press(app, "Start the frontier")
        assert app.main.error[0].value.startswith("A load is '0'") and not lab.supervisor.status().alive


def test_percent_signs_stay_with_their_numbers_and_no_ratio_is_below_nothing():
    said = "adaptive is 12 % [8, 16] faster; between −3 and +30 %; ± 2 % of 5 %."
    assert unbroken(said) == said.replace(" %", "\u00a0%")
    by_round = {f"{name}_by_round": (0.05, 3.0) for name in ("low", "estimate", "high", "ratio")}
    result = Comparison(arm="none", rounds=2, low=0.01, high=3.0, **by_round)
    answer = ab_answer(results=[result], state="running")
    assert ab.ratios(answer).layout.yaxis.range[0] == -100
