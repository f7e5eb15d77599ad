"""The Estimators page: it judges what is chosen, says whose speeds it shows, and needs no run."""

from dashboard import charts, opened, page, said


def test_it_judges_and_replays(tmp_path, monkeypatch):
    monkeypatch.setattr("avlab.experiments.estimator_learning.STEPS", 100)
    monkeypatch.setattr("avlab.experiments.estimator_losses.LEARN", 100)
    with opened(tmp_path / "lab.duckdb"):
        app = page("estimators")
        assert not app.exception and charts(app) == 0 and "emulated" in said(app)
        app.multiselect(key="chosen").set_value(["raw", "head"]).run()
        app.button(key="judge").click().run(timeout=120)
        assert not app.exception and charts(app) == 4
        assert list(app.dataframe[0].value["estimator"]) == ["raw", "head"]
        app.button(key="replay").click().run(timeout=120)
        assert not app.exception and charts(app) == 5 and "Emulated tokens/s" in said(app)
