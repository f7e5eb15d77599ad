"""A feature is one entry of the registry: from there it goes by its name to the database of a run."""

import numpy as np
import pytest
import store_frames as frames
from serving_loop import quick, serve  # noqa: F401  (quick is a fixture)
from stand_in_engine import Words
from tiny_models import make_engine, write_block_drafter, write_llama

import avlab
from avlab.config import ConfigError, RunConfig
from avlab.speculation.features import FEATURES, Feature
from avlab.store.recorder import Recorder


@pytest.fixture
def mass(monkeypatch):
    """A feature that nobody knows but its entry: the probability of the drawn row's maximum."""
    entry = Feature(
        "mass", "maximum", "the maximum itself", lambda weights, drawn, xp=np: xp.amax(weights, -1)
    )
    monkeypatch.setitem(FEATURES, "mass", entry)
    return "mass"


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("drafter", ["block", "llama"])
def test_a_new_entry_is_found_in_the_database(tmp_path, monkeypatch, mass, drafter, native, temperature):
    if not native:
        for place in ("target", "rows", "linear", "drafters.draws"):
            monkeypatch.setattr(f"avlab.engine.{place}.native_for", lambda dtype, device: None)
    write_llama(tmp_path / "target")
    folder = tmp_path / drafter
    write_block_drafter(folder, tmp_path / "target") if drafter == "block" else write_llama(folder, seed=3)
    config = RunConfig.make(features="mass, head_log_odds,max_log_odds")
    engine = make_engine(tmp_path / "target", drafter, folder, "adaptive", features=config.recorded_features)
    wire, server = serve(
        engine=engine, text=Words(20), features=config.features, drafts="all", tokens=200, temperature=temperature,
    )  # fmt: skip
    assert server.run() == "done"
    names = [name for name in config.recorded_features if name in engine.features]
    assert ("head_log_odds" in names) == (drafter == "block"), "what a drafter never gives is left out"

    path = tmp_path / "lab.duckdb"
    with Recorder(path) as recorder:
        for envelope in frames.envelopes([frames.hello(features=names), *wire.frames, frames.bye()]):
            recorder.record(envelope)
    with avlab.open(path) as lab:
        drafts = lab.run().drafts
    assert drafts.columns.tolist()[4 : 4 + len(names)] == names and len(drafts) > 100
    assert drafts[names].notna().all().all()
    odds = drafts["max_log_odds"].clip(-30, 30)
    np.testing.assert_allclose(drafts["mass"], 1 / (1 + np.exp(-odds)), atol=1e-5)


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(
        ConfigError, match="there is no feature 'mood'; known are max_log_odds, negative_entropy"
    ):
        RunConfig.make(features="max_log_odds,mood")
