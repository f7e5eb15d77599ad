"""Answers as JSON and back: what `--json` prints and the lab's socket carries."""

import json

import pytest
from answers import ab_answer, seen

from avlab.config import RunConfig
from avlab.experiments.analysis import analyse
from avlab.experiments.answers import ABAnswer, Comparison, FrontierAnswer
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.experiments.frontier_plan import Rest
from avlab.experiments.plan import make_plan
from avlab.experiments.values import AnswerError, from_values, to_values
from avlab.sample import FOLDER
from avlab.store.database import Database
from avlab.store.export import import_run
from avlab.store.queries import experiment_runs


def through_json(answer):
    return json.loads(json.dumps(to_values(answer), allow_nan=False))


@pytest.mark.parametrize(
    ("name", "analyse", "kind"), [("ab", analyse, ABAnswer), ("frontier", analyse_frontier, FrontierAnswer)]
)
def test_answers_of_the_shipped_runs_come_back_as_they_were(tmp_path, name, analyse, kind):
    with Database(tmp_path / "lab.duckdb") as database:
        import_run(database, FOLDER / name)
        with database.cursor() as con:
            (run,) = experiment_runs(con, frontier=name == "frontier")
            answer = analyse(con, run, ("p95_tpot_ms", 80.0))
    assert from_values(kind, through_json(answer)) == answer


def test_what_nothing_is_known_of_is_left_out():
    answer = ab_answer(results=[Comparison(arm="none", rounds=0)], arms={"none": seen()})
    values = through_json(answer)
    assert values["results"] == [
        {"arm": "none", "ratio": None, "low": None, "high": None, "rounds": 0, "declared": False}
    ]
    assert values["arms"] == {"none": {"tokens_per_s": None, "ledger": None}}
    assert from_values(ABAnswer, values) == answer


def test_a_plan_for_the_rest_comes_back():
    _, plan = make_plan(RunConfig.make(policy="none"), ["fixed:5", "none"])
    for rest in (Rest([], plan), Rest(["one"], None)):
        assert from_values(Rest, through_json(rest)) == rest


@pytest.mark.parametrize("values", [None, {}, {"runs": "one", "plan": None}])
def test_an_answer_of_another_version_is_refused_with_a_sentence(values):
    with pytest.raises(AnswerError, match="run both from one install"):
        from_values(Rest, values)
