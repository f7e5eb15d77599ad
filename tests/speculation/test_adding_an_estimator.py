"""An estimator is one file of `speculation/estimators`: `adaptive:NAME` is parsed, listed, served and recorded."""

import sys

import numpy as np
import pytest
from draft_features import features_of
from serving_loop import quick, serve  # noqa: F401  (quick is a fixture)
from tiny_models import make_engine, write_block_drafter, write_llama
from tiny_models import serve as serve_all

import avlab.speculation.estimators
from avlab.config import RunConfig
from avlab.engine.request import Request
from avlab.experiments.plan import make_plan
from avlab.figures import palette, sums
from avlab.modules import import_all
from avlab.policies.arm import Arm, PolicyError, grammar, labels
from avlab.speculation.estimators import base
from avlab.speculation.features import DEFAULT_FEATURES
from avlab.wire import frames

FILE = '''
"""The share accepted so far at each position, whatever the draft says; one of the entropy; one that peeks."""

import numpy as np

from avlab.speculation.estimators.base import Estimator, register
from avlab.speculation.features import log_odds


@register
class Share(Estimator):
    name, title, reads, learns = "share", "share accepted so far", ("max_log_odds",), True

    def __init__(self, K, interval=100):
        self.accepted, self.seen = np.ones(K), np.full(K, 2.0)

    def predict(self, features):
        known = np.isfinite(features["max_log_odds"])
        return np.where(known, log_odds(self.accepted / self.seen), np.nan)

    def observe(self, features, estimate, labels):
        self.accepted += (labels.label * labels.labelled).sum(0)
        self.seen += labels.labelled.sum(0)


@register
class Certain(Estimator):
    name, title, reads = "certain", "exponential of the negative entropy", ("negative_entropy",)

    def predict(self, features):
        assert features.names == self.reads, "it is given what it says it reads, and nothing else"
        return log_odds(np.exp(features["negative_entropy"]))


@register
class Peeking(Certain):
    name, title, reads = "peeking", "the drawn token", ("drawn_log_odds",)
'''


@pytest.fixture
def share(tmp_path, monkeypatch):
    """The file in the package, for the time of a test."""
    package = avlab.speculation.estimators
    (tmp_path / "share.py").write_text(FILE)
    monkeypatch.setattr(base, "_known", dict(base._known))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    import_all("avlab.speculation.estimators")
    yield
    del sys.modules["avlab.speculation.estimators.share"]


def test_an_arm_names_it(share):
    arm = Arm.parse("adaptive:share+depth")
    assert (str(arm), arm.source, arm.learns, arm.reads) == (
        "adaptive:share+depth",
        "share",
        True,
        ("max_log_odds",),
    )
    assert labels(["adaptive:share", "adaptive"]) == ["adaptive:share", "adaptive"]
    sources = grammar().partition("adaptive[:")[2].partition("]")[0].split("|")
    assert sources[0] == "online" and {"certain", "share", "head", "raw"} <= set(sources)
    assert sums.title("share") == "share accepted so far" and palette.source("share").startswith("#")


def test_one_that_looks_at_drawn_tokens_is_refused(share):
    with pytest.raises(PolicyError, match=r"'peeking' looks at drawn tokens.*online, certain, .*share\.$"):
        Arm.parse("adaptive:peeking")
    assert "peeking" not in grammar()


def test_the_engine_serves_it(share, tmp_path):
    target = write_llama(tmp_path / "target")
    engine = make_engine(target, "block", write_block_drafter(tmp_path / "drafter", target), "adaptive:share")
    _, reports = serve_all(engine, [Request(i, [i + 1, 2], 12, seed=i) for i in range(3)])
    accepted, seen = np.ones(engine.K), np.full(engine.K, 2.0)
    for slots in (report.slots for report in reports if report.slots is not None):
        due = np.tile(accepted / seen, (len(slots.request), 1))
        np.testing.assert_allclose(slots.estimates.probability, due, rtol=1e-12)
        accepted, seen = accepted + (slots.label == 1).sum(0), seen + (slots.label >= 0).sum(0)
    assert {report.arm for report in reports} == {"adaptive:share"} and seen.sum() > 2 * engine.K


def test_a_run_records_how_well_it_is_calibrated(share):
    """And no coefficients, as it has none."""
    wire, server = serve(tokens=1000, policy="adaptive:share")
    assert server.run() == "done"
    assert {block.arm for block in wire.of(frames.Block)} == {"adaptive:share"} and not wire.of(frames.Refit)
    counts = {
        source: sum(sum(each.count) for each in wire.of(frames.Calibration) if each.source == source)
        for source in ("share", "raw")
    }
    assert counts["share"] == counts["raw"] > 100


def test_a_run_computes_what_its_arms_read(share, tmp_path):
    """Also an arm of an A/B that does not serve first; elsewhere a sentence says what to ask for."""
    plain = RunConfig.make(policy="adaptive")
    assert plain.reading([plain.arm]) is plain
    config, _ = make_plan(plain, ["adaptive", "adaptive:certain"])
    assert config.recorded_features == (*DEFAULT_FEATURES, "negative_entropy")
    target = write_llama(tmp_path / "target")
    drafter = write_block_drafter(tmp_path / "drafter", target)
    engine = make_engine(target, "block", drafter, "adaptive:certain", features=config.recorded_features)
    _, reports = serve_all(engine, [Request(i, [i + 1, 2], 12, seed=i) for i in range(3)])
    for slots in (report.slots for report in reports if report.slots is not None):
        due = np.exp(slots.features["negative_entropy"])
        np.testing.assert_allclose(slots.estimates.probability, due, rtol=1e-12)
    with pytest.raises(PolicyError, match="reads negative_entropy, which this run does not compute"):
        make_engine(target, "block", drafter, "adaptive:certain")


def test_one_that_reads_what_does_not_exist_is_refused_at_once(share):
    with pytest.raises(ValueError, match="there is no feature 'mood'"):
        base.register(type("Moody", (base.Estimator,), {"name": "moody", "reads": ("mood",)}))


def test_where_the_drafter_does_not_tell_what_it_reads_it_is_refused():
    with pytest.raises(PolicyError, match=r"has no confidence head: .*such as adaptive\+depth"):
        Arm.parse("adaptive:head+depth").require_features(("max_log_odds",))
    Arm.parse("adaptive:head").require_features(("max_log_odds", "head_log_odds"))


@pytest.mark.parametrize("name", base.names())
def test_every_estimator_keeps_what_was_not_drafted_unknown(name):
    features = features_of([[2.0, np.nan]], [[1.0, np.nan]])
    estimate = base.named(name)(2).predict(features)
    assert np.isfinite(estimate[0, 0]) and np.isnan(estimate[0, 1]) and estimate.dtype == np.float64
