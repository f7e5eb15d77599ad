"""A drafter is one file: its kind is known by its folder, and made from there."""

import json

import numpy as np
import pytest
from tiny_models import outputs, serve, write_llama, write_tokenizer

from avlab.engine.build import BuildSettings, build
from avlab.engine.drafters import base
from avlab.engine.drafters.base import DrafterContext, DrafterKind, kind_of
from avlab.engine.drafts import Drafts
from avlab.engine.engine import EngineConfig
from avlab.engine.request import Request
from avlab.policies.arm import Arm
from avlab.speculation.features import Features


class Parrot:
    """Says the newest token again."""

    name, state_layers, features = "parrot", (), ("max_log_odds",)

    def __init__(self, context: DrafterContext):
        self.K = min(context.K, json.loads((context.folder / "parrot.json").read_text())["patience"])

    def propose(self, inputs, depth):
        tokens = inputs.newest[:, None].expand(-1, depth)
        nothing = np.full((*tokens.shape, 1), np.nan)
        return Drafts(tokens, draft_probs=None, vocabulary=None, features=Features(self.features, nothing))

    def assume_read(self, cache_row, tokens):
        pass

    def forget(self, cache_row):
        pass


@pytest.fixture
def parrot(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_kinds", dict(base._kinds))
    base.register(DrafterKind("parrot", "a parrot", "parrot.json", Parrot))
    folder = tmp_path / "polly"
    folder.mkdir()
    (folder / "parrot.json").write_text(json.dumps({"patience": 2}))
    return folder


def test_a_kind_that_is_registered_is_built_and_serves(tmp_path, parrot):
    target, costs = write_llama(tmp_path / "target"), tmp_path / "costs.json"
    write_tokenizer(target)
    costs.write_text(json.dumps({"draft": [[1, 1, 0.1]], "verify": [[1, 1.0], [64, 2.0]]}))
    asked = {"dtype": "float32", "costs": costs, "serving": EngineConfig(max_num_seqs=2)}
    built = build(BuildSettings(str(target), str(parrot), K=4, arm=Arm.parse("fixed:2"), **asked))
    assert built.drafter_name == "parrot:polly" and built.engine.K == 2
    requests = [Request(i, [3, 5, 7], 12, temperature=0.0) for i in range(3)]
    finished, reports = serve(built.engine, requests)
    assert {report.drafted for report in reports if report.slots is not None} == {2}
    plain = build(BuildSettings(str(target), "none", K=4, arm=Arm.parse("none"), **asked)).engine
    assert outputs(finished) == outputs(serve(plain, requests)[0]), "the drafter changes no greedy output"


def test_a_folder_that_no_kind_knows_is_told_what_would_do(tmp_path, parrot):
    assert kind_of(parrot).make is Parrot and kind_of(parrot).fits(parrot, None)
    with pytest.raises(
        base.CheckpointError, match=r"drafter.json nor config.json nor parrot.json: .* a parrot"
    ):
        kind_of(tmp_path)
