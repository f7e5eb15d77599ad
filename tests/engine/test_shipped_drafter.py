"""The drafter in the repository belongs to the default target, is small, and leaves greedy output as it is."""

import numpy as np
import pytest
import torch
from tiny_models import costs, outputs, serve

from avlab.config import RunConfig
from avlab.engine.build import SHIPPED_DRAFTER, choose_drafter
from avlab.engine.drafters.block import BlockDrafter, read_drafter
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.fetch import fetch
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.engine.text import Text
from avlab.policies.arm import Arm

QUESTIONS = ("What is gravity?", "Name three colours.", "Write a Python function that adds two numbers.")


def test_it_is_small_and_has_its_card():
    assert sum(path.stat().st_size for path in SHIPPED_DRAFTER.iterdir()) <= 20_000_000
    tensors, card = read_drafter(SHIPPED_DRAFTER)
    assert card["shape"]["K"] == RunConfig.make().K
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    text = (SHIPPED_DRAFTER / "README.md").read_text(encoding="utf-8")
    for heading in ("Data.", "Loss.", "Acceptance", "Depth."):
        assert heading in text


@pytest.fixture(scope="module")
def target():
    return Target(fetch(), torch.float32, length=256)


@pytest.mark.model
def test_it_serves_the_default_target(target):
    chosen, why_none = choose_drafter(RunConfig.make().drafter, target.folder)
    assert (chosen.kind.name, chosen.folder, why_none) == ("block", SHIPPED_DRAFTER, "")
    text, drafter = Text(target.folder), BlockDrafter(SHIPPED_DRAFTER, target)
    prompts = [text.encode([{"role": "user", "content": question}]) for question in QUESTIONS]

    def answers(arm, temperature):
        asked = [Request(i, prompt, 40, temperature=temperature, seed=i) for i, prompt in enumerate(prompts)]
        engine = Engine(target, drafter, costs(drafter.K, 3), EngineConfig(max_num_seqs=3), Arm.parse(arm))
        return serve(engine, asked)

    plain = outputs(answers("none", 0.0)[0])
    finished, reports = answers("adaptive", 0.0)
    assert outputs(finished) == plain
    tokens = {"greedy": sum(r.tokens for r in reports) / sum(r.emitting for r in reports)}
    _, reports = answers("fixed:7", 1.0)
    first = np.concatenate([r.slots.label[:, 0] for r in reports if r.slots is not None])
    promised = min(on_the_card(temperature=1.0).values())  # a hundred labels say it to within 0.15
    assert tokens["greedy"] > 1.2 and first[first >= 0].mean() > promised - 0.15


def on_the_card(temperature):
    """Acceptance of position 0 at this temperature, by prompts, as the drafter's card has it."""
    rows = [line.split("|")[1:-1] for line in (SHIPPED_DRAFTER / "README.md").read_text().splitlines()]
    rows = [row for row in rows if len(row) == 11 and row[2].strip().isdecimal()]
    found = {row[0].strip(): float(row[4]) for row in rows if float(row[1]) == temperature}
    assert len(found) == 2, "the card has another table"
    return found
