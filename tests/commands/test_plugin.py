"""A researcher's own file: the documents' example is judged, replayed and served; faults are sentences."""

import json
import re

import numpy as np
import pytest
from places import ROOT
from tiny_models import make_engine, write_block_drafter, write_llama
from tiny_models import serve as serve_all
from typer.testing import CliRunner

from avlab import plugins
from avlab.commands.cli import app, plugin_first
from avlab.config import ConfigError, RunConfig
from avlab.engine.request import Request
from avlab.kinds.replay import ReplayConfig
from avlab.policies import arm as arms
from avlab.policies.arm import Arm, PolicyError
from avlab.speculation.estimators import base
from avlab.speculation.features import FEATURES

PAGE = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a file of these lines; what it adds is gone after the test."""
    registries = FEATURES, base.registered(), arms.registered()
    before = [dict(each) for each in registries]
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setenv(plugins.VARIABLE, "")

    def write(text, name="twice.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    yield write
    for each, was in zip(registries, before, strict=True):
        each.clear()
        each.update(was)


def test_the_documents_example_is_short(plugin):
    lines = [line for line in EXAMPLE.splitlines() if line.strip()]
    assert len(lines) <= 20


def test_it_is_judged_and_replayed(plugin):
    path = str(plugin(EXAMPLE))
    judge = ["--plugin", path, "lab", "judge", "--trace", "card", "--estimators", "lower", "--json"]
    found = CliRunner().invoke(app, judge)
    assert found.exit_code == 0, found.output
    (lower,) = json.loads(found.stdout)["estimators"]
    assert lower["sound"] and lower["overall"]["auc"]["value"] > 0.7
    quick = ["--repeats", "1", "--concurrency", "4", "--arms", "none,adaptive:lower+depth"]
    shown = CliRunner().invoke(app, ["--plugin", path, "replay", "frontier", *quick])
    assert shown.exit_code == 0 and "adaptive:lower+depth" in shown.stdout, shown.output


def test_the_engine_serves_one_that_is_declared_sound(plugin, tmp_path):
    without_head = EXAMPLE.replace(', "head_log_odds")', ",)").replace("head_log_odds", "max_log_odds")
    plugins.load(plugin(without_head))
    target = write_llama(tmp_path / "target")
    engine = make_engine(target, "block", write_block_drafter(tmp_path / "drafter", target), "adaptive:lower")
    _, reports = serve_all(engine, [Request(i, [i + 1, 2], 12, seed=i) for i in range(3)])
    slots = [report.slots for report in reports if report.slots is not None]
    assert slots and all(np.isfinite(each.estimates.probability).any() for each in slots)
    assert RunConfig.make(policy="adaptive:lower").policy == "adaptive:lower"


def test_one_that_is_not_declared_sound_is_replayed_and_not_served(plugin):
    plugins.load(plugin(EXAMPLE.replace("SOUND = True", "SOUND = False")))
    arm = Arm.parse("adaptive:lower")
    assert ReplayConfig.make(policy="adaptive:lower").policy == "adaptive:lower"
    with pytest.raises(PolicyError, match="may be judged and replayed but not served: write SOUND = True"):
        arm.require_declared()
    with pytest.raises(ConfigError, match="does not declare itself sound"):
        RunConfig.make(policy="adaptive:lower")


RULE = """
from dataclasses import dataclass
from typing import ClassVar
from avlab.policies.arm import Arm, register
from avlab.policies.fixed import FixedLength

@register
@dataclass(frozen=True, slots=True)
class Half(Arm):
    kinds: ClassVar = ("half",)

    @classmethod
    def read(cls, written, K):
        return cls()

    def __str__(self):
        return "half"

    def make(self, context):
        return FixedLength(self, context.K // 2, context.K // 2)
"""


def test_a_rule_of_ones_own(plugin):
    path = str(plugin(RULE))
    quick = ["--repeats", "1", "--concurrency", "4", "--arms", "none,half"]
    shown = CliRunner().invoke(app, ["--plugin", path, "replay", "frontier", *quick])
    assert shown.exit_code == 0 and "half" in shown.stdout, shown.output
    assert not Arm.parse("half").declared


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "adds nothing"),
        ("def broken(:\n", "fails in line 1 with SyntaxError"),
        ("x = 1\ny = 1 / 0\n", r"fails in line 2 with ZeroDivisionError \(division by zero\)"),
        ("import sys\nsys.exit(3)\n", "fails in line 2 with SystemExit"),
        (EXAMPLE.replace('"lower"', '"cut"', 1), "names a estimator 'cut', which is taken|'cut', which is taken"),
        (EXAMPLE.replace('"head_log_odds")', '"mood")', 1), "there is no feature 'mood'"),
    ],
)  # fmt: skip
def test_a_file_with_a_fault_is_one_sentence_and_leaves_nothing(plugin, text, said):
    before = set(base.judged()), set(FEATURES), set(arms.registered())
    with pytest.raises(plugins.PluginError, match=said) as caught:
        plugins.load(plugin(text))
    assert "\n" not in str(caught.value)
    assert (set(base.judged()), set(FEATURES), set(arms.registered())) == before


def test_what_is_no_file_is_one_sentence(tmp_path):
    with pytest.raises(plugins.PluginError, match=r"cannot be read \(No such file"):
        plugins.load(tmp_path / "missing.py")
    with pytest.raises(plugins.PluginError, match="is a Python file, and"):
        plugins.load(tmp_path / "data.csv")


def test_it_may_stand_anywhere_in_a_command():
    assert plugin_first(["lab", "judge", "--plugin", "a.py", "--json"]) == [
        "--plugin",
        "a.py",
        "lab",
        "judge",
        "--json",
    ]
    assert plugin_first(["run", "--plugin=a.py"]) == ["--plugin=a.py", "run"]
    assert plugin_first(["doctor", "--", "vllm", "--plugin", "x"]) == [
        "doctor",
        "--",
        "vllm",
        "--plugin",
        "x",
    ]
