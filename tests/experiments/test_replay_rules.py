"""Rules side by side: the oracles are limits, what is unsound says so and serves no run, and its example is exact."""

import json
from dataclasses import replace

import numpy as np
import pytest
from traces import made_up
from typer.testing import CliRunner

from avlab.bias.exact import Pair, Rule, output_distribution
from avlab.commands.cli import app
from avlab.experiments.replay_rules import AFTER, BEFORE, BEST_NOW, EXAMPLE, BestNow, rules
from avlab.machines import machine
from avlab.policies.adaptive import Adaptive
from avlab.policies.arm import Arm, PolicyError
from avlab.policies.base import PolicyContext
from avlab.replay.trace import write_trace
from avlab.speculation.stopping import Plan, worths


@pytest.fixture(scope="module")
def found():
    trace = made_up(texts=60, chance=0.4)
    blurred = trace.features + np.random.default_rng(0).normal(0, 2, trace.features.shape).astype(np.float32)
    trace = replace(trace, features=blurred, behind=None)  # the feature tells less than the true chance
    return rules(
        trace, machine("b300-deepseek-v4-flash-tp4", 3), ["adaptive+depth", "threshold:0.99"], [16], repeats=3
    )


def test_who_knows_more_serves_faster(found):
    rate = {row.rule: row.tokens_per_s for row in found}
    assert rate["threshold:0.99"] < rate["adaptive+depth"] < rate[AFTER]
    assert rate[AFTER] < rate[BEFORE] * 1.03
    regret = {row.rule: row.regret for row in found}
    assert regret[AFTER] == 0 and regret["adaptive+depth"] == 1 - rate["adaptive+depth"] / rate[AFTER]


def test_what_no_run_may_serve_says_so(found):
    sound = {row.rule: row.sound for row in found}
    assert sound["adaptive+depth"] == "yes" and sound[AFTER] == sound[BEFORE] == "limit"
    assert sound[BEST_NOW].startswith("UNSOUND: ")
    for name in (BEST_NOW, AFTER, BEFORE):
        with pytest.raises(PolicyError):
            Arm.parse(name)


def test_the_example_of_the_unsound_rule_is_exact():
    """A fair coin as target; the budget is the best by this step's survivals."""
    cost = np.array([1.0, 1.95, 2.5])
    behind = np.array([[0.9, 0.1], [0.5, 0.5]])
    pair = Pair.markov(np.full((2, 2), 0.5), behind, 2)

    def admit(step):
        survival = [np.cumprod([row.max() for row in rows]) for rows in step.rows]
        return [
            (1.0, tuple(int(((1 + np.append(0, s.cumsum())) / cost).argmax()) for s in survival))
        ]  # most tokens per millisecond

    assert output_distribution(pair, Rule(admit), (0,), 1, 1)[0] == pytest.approx(0.55, abs=1e-12)
    assert "0.55" in EXAMPLE


def test_the_best_budget_looks_at_all_slots():
    policy = BestNow(
        Adaptive("raw", stop=True), PolicyContext(2, machine("b300-deepseek-v4-flash-tp4", 2).table())
    )
    policy.deciding = type(policy.deciding)(np.zeros((5, 3)), np.array([1.0, 1.0, 2.0, 2.0, 2.0]))
    best = np.array([0.5, 0.4, 0.3])
    assert policy.count(best, Plan(2, 1.0, best), 1) == 3  # 1.2 tokens for one millisecond more
    assert policy.count(best, Plan(2, 1.3, best), 1) == 0


def test_worths_by_depth_are_those_of_every_budget():
    rng = np.random.default_rng(0)
    survival, draft, verify = (
        rng.random((3, 2)).cumprod(1),
        np.array([0, 0.2, 0.3]),
        1 + rng.random(12).cumsum(),
    )
    position = np.tile(np.arange(2), 3)
    got = worths(survival.ravel(), position, 2, draft, verify, 3, 0.4)
    for depth in range(3):
        best = np.sort(survival[:, :depth].ravel())[::-1]
        every = [best[:n].sum() - 0.4 * (draft[depth] + verify[3 + n]) for n in range(len(best) + 1)]
        assert got[depth] == pytest.approx(max(every))


def test_the_command_shows_both_figures_and_what_is_unsound(tmp_path):
    path = tmp_path / "own.parquet"
    write_trace(made_up(texts=12), path)
    given = [
        "replay",
        "rules",
        "--trace",
        str(path),
        "--concurrency",
        "4",
        "--repeats",
        "2",
        "--arms",
        "dspark:online",
    ]
    shown = CliRunner().invoke(app, given)
    words = " ".join(shown.output.split())
    assert shown.exit_code == 0 and "emulated: B300 × 4" in words and "UNSOUND" in words and "0.55" in words
    plain = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)
    assert [row["rule"] for row in plain["rows"]] == ["dspark:online", BEST_NOW, AFTER, BEFORE]
