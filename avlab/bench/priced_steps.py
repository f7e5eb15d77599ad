"""Steps of the engine beside what a machine's table says that they take."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from avlab.engine.profile import Costs, profile
from avlab.machines import PROFILED, Machine, machine
from avlab.machines.imported import Imported, text_of
from avlab.machines.in_serving import prompt_saving, rest_line, served_draft, served_verify
from avlab.policies.arm import Arm

if TYPE_CHECKING:
    from avlab.bench.lab import Lab

WASHOUT, LEAST_STEPS = 2, 6  # steps of a block


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step of the engine: requests that decoded, positions drafted, tokens of the target's pass, prompt tokens among
    them, output tokens; milliseconds of the draft, of the pass and of all."""

    requests: int
    depth: int
    target_tokens: int
    prompt_tokens: int
    tokens: int
    draft_ms: float
    verify_ms: float
    all_ms: float

    @property
    def rest_ms(self) -> float:
        """What it took besides draft and pass."""
        return self.all_ms - self.draft_ms - self.verify_ms


def timed_step(lab: Lab) -> TimedStep:
    """One step of the closed loop."""
    report, seconds = lab.step()
    return TimedStep(
        requests=len(report.admission.admitted) if report.admission else 0,
        depth=report.drafted,
        target_tokens=report.target_tokens,
        prompt_tokens=report.prompt_tokens,
        tokens=report.tokens,
        draft_ms=report.ms["draft"],
        verify_ms=report.ms["verify"],
        all_ms=seconds * 1e3,
    )


def block(lab: Lab, arm: str, seconds: float) -> list[TimedStep]:
    """Steps under an arm for so many seconds; the first ones, which wash the last arm out, are left out."""
    lab.engine.set_policy(Arm.parse(arm))
    spent = 0.0
    served: list[TimedStep] = []
    while spent < seconds or len(served) < LEAST_STEPS:
        served.append(timed_step(lab))
        spent += served[-1].all_ms / 1e3
    return served[WASHOUT:]


def timed_again(lab: Lab) -> Costs:
    """The engine's step costs, timed once more. The engine must be idle."""
    engine = lab.engine
    batched = engine.config.batched_tokens(engine.K)
    return profile(lab.built.target, engine.drafter, engine.cache, engine.config.max_num_seqs, batched)


def this_machine(
    timed: Sequence[Costs], steps: Sequence[TimedStep], most_requests: int, prefill_tokens: int, K: int
) -> Machine:
    """The machine of some profiles, and of what these steps took besides: as `avlab machine import` makes one."""
    rest = []
    decoding = [step for step in steps if not step.prompt_tokens]
    for rows in sorted({step.target_tokens for step in decoding}):
        those = [step.rest_ms for step in decoding if step.target_tokens == rows]
        rest.append((rows, float(np.median(those)), len(those)))
    base, each = rest_line(rest)
    drafts = [(step.requests, step.depth, step.draft_ms, 1) for step in decoding if step.depth]
    passes = [(step.target_tokens, step.prompt_tokens, step.verify_ms, 1) for step in steps]
    draft = served_draft([sample for costs in timed for sample in costs.draft], drafts)
    verify = served_verify([sample for costs in timed for sample in costs.verify], passes)
    table = Imported(draft or [(1, 1, 0.0)], verify, True, "avlab")
    text = text_of(
        table,
        "this machine",
        "the engine's own",
        "timed by the benchmark",
        gpu="this machine",
        trust=PROFILED,
        step_ms=base,
        row_ms=each,
        prompt_saves_ms=prompt_saving(verify, passes),
        prefill_tokens=prefill_tokens,
        most_requests=most_requests,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "this-machine.toml"
        path.write_text(text, encoding="utf-8")
        return machine(str(path), K)


def priced(machine: Machine, steps: Sequence[TimedStep]) -> tuple[float, float, float, float]:
    """What the machine's table says that these steps take, over what they took: all, draft, pass, the rest. A part that
    took nothing is 1."""
    said = np.array(
        [machine.milliseconds(s.requests, s.depth, s.target_tokens, prefill=s.prompt_tokens) for s in steps]
    )
    took = np.array([(s.draft_ms, s.verify_ms, s.rest_ms) for s in steps])
    parts = [float(a / b) if b > 0 else 1.0 for a, b in zip(said.sum(axis=0), took.sum(axis=0), strict=True)]
    return float(said.sum() / took.sum()), parts[0], parts[1], parts[2]
