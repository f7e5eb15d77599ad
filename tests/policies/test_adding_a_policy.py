"""A policy is one file of `avlab/policies`: it is parsed, shown in the help, served and recorded under its own name."""

import subprocess
import sys

import pytest
from serving_loop import quick, serve  # noqa: F401  (quick is a fixture)
from tiny_models import make_engine, write_block_drafter, write_llama
from tiny_models import serve as serve_all

import avlab.policies
from avlab.config import RunConfig
from avlab.engine.request import Request
from avlab.modules import import_all
from avlab.policies import arm as arms
from avlab.policies.arm import Arm, PolicyError, Unknown, arm_of, grammar, labels
from avlab.wire import frames

FILE = '''
"""`stairs:k` drafts and verifies 0, 1, ... k draft tokens in turn."""

from dataclasses import dataclass

import numpy as np

from avlab.policies.arm import Arm, register
from avlab.policies.base import Admission
from avlab.speculation.decision import Decision


@register
@dataclass(frozen=True, slots=True)
class Stairs(Arm):
    kinds = ("stairs",)
    k: int

    @classmethod
    def forms(cls):
        return ("stairs:k",)

    @classmethod
    def read(cls, written, K):
        return cls(int(written.value)) if (written.value or "").isdigit() and not written.options else None

    def __str__(self):
        return f"stairs:{self.k}"

    def make(self, context):
        return Climber(self)


class Climber:
    estimator = None

    def __init__(self, arm):
        self.arm, self.step = arm, 0

    def decide(self, offer):
        depth = self.step % (self.arm.k + 1)
        budget = int(np.minimum(offer.scheduled, depth).sum())
        return Decision(depth, depth, budget, np.zeros(offer.requests, dtype=bool))

    def estimate(self, features):
        return None

    def admit(self, decision, estimates, offer):
        return Admission(offer.scheduled, decision.budget)

    def observe(self, features, estimates, labels):
        pass

    def end_step(self):
        self.step += 1
'''


@pytest.fixture
def stairs(tmp_path, monkeypatch):
    """The file in the package, for the time of a test."""
    (tmp_path / "stairs.py").write_text(FILE)
    monkeypatch.setattr(arms, "_families", dict(arms._families))
    monkeypatch.setattr(avlab.policies, "__path__", [*avlab.policies.__path__, str(tmp_path)])
    import_all("avlab.policies")
    yield tmp_path
    del sys.modules["avlab.policies.stairs"]


def test_it_is_parsed_labelled_and_listed(stairs):
    arm = Arm.parse("stairs:2")
    assert (
        str(arm) == "stairs:2" and arm == Arm.parse(" stairs:2 ") and hash(arm) == hash(Arm.parse("stairs:2"))
    )
    assert (arm.drafts, arm.adaptive, arm.learns, arm.fixed) == (True, False, False, False)
    assert labels(["stairs:2", "none", "stairs:2"]) == ["stairs:2", "none", "stairs:2#2"]
    assert RunConfig.make(policy="stairs:2").arm == arm
    assert grammar().endswith(" or stairs:k")
    with pytest.raises(PolicyError, match="stairs:k"):
        Arm.parse("stairs:x")


def test_the_help_names_it(stairs):
    code = (
        "import sys, avlab.policies\n"
        "from avlab.modules import import_all\n"
        f"avlab.policies.__path__.append({str(stairs)!r})\n"
        "import_all('avlab.policies')\n"
        "from avlab.config import RunConfig\n"
        "assert 'torch' not in sys.modules\n"
        "print(RunConfig.model_fields['policy'].description)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "stairs:k" in told.stdout


def test_the_engine_serves_it(stairs, tmp_path):
    target = write_llama(tmp_path / "target")
    engine = make_engine(target, "block", write_block_drafter(tmp_path / "drafter", target), "stairs:3")
    finished, reports = serve_all(engine, [Request(i, [i + 1, 2], 12, seed=i) for i in range(3)])
    assert len(finished) == 3 and {report.arm for report in reports} == {"stairs:3"}
    drafted = [report.drafted for report in reports if report.admission]
    assert set(drafted) == {0, 1, 2, 3}
    for report in reports:
        if report.slots is not None:
            assert report.slots.admitted.tolist() == report.slots.scheduled.tolist()


def test_a_run_records_it(stairs):
    wire, server = serve(tokens=200, policy="stairs:2")
    assert server.run() == "done"
    assert {block.arm for block in wire.of(frames.Block)} == {"stairs:2"}
    assert {step.drafted for step in wire.steps} == {0, 1, 2} and not wire.of(frames.Refit)


def test_an_arm_whose_file_is_gone_tells_nothing():
    arm = arm_of("stairs:2@16")
    assert arm == Unknown("stairs:2") and str(arm) == "stairs:2"
    assert not arm.adaptive and not arm.learns and arm.source == ""
