"""The recorded answer that ships with the project: what the Playground shows before anybody typed a prompt.

`python -m avlab.sample_answer` records it anew with the reference engine, half a minute.
"""

import functools
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from avlab.config import RunConfig
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerError
from avlab.policies.arm import DEFAULT_ARM
from avlab.speculation.sampling import USUAL
from avlab.wire import commands
from avlab.wire.frames import Tokens

FILE = Path(__file__).with_name("sample_answer.json")
PROMPT = "A shop sells pens at 3 for 2 euros. How much do 12 pens cost? Show each step."
LEARN_STEPS = 200  # of the workload, so that estimates are not those of the start
PATIENCE = 600.0  # seconds


class Answer(msgspec.Struct, frozen=True):
    """A prompt, the policy and sampling it was answered under, and the answer's steps."""

    prompt: str
    arm: str
    temperature: float
    top_p: float
    steps: list[Tokens]


@functools.cache
def shipped() -> Answer:
    """The answer that ships."""
    return msgspec.json.decode(FILE.read_bytes(), type=Answer)


def record(lab: Lab) -> Answer:
    """Have a prompt answered, once the estimator has learnt from other traffic. Raises WorkerError."""
    lab.run(RunConfig.make(arrival="closed:4", max_model_len=1024, max_new_tokens=200))
    _until(lab, lambda: lab.tally.snapshot()["steps"] >= LEARN_STEPS)
    asked = commands.Generate(
        [{"role": "user", "content": PROMPT}],
        80,
        arm=DEFAULT_ARM,
        temperature=USUAL.temperature,
        top_k=USUAL.top_k,
        top_p=USUAL.top_p,
        seed=1,
    )
    lab.generate(asked)

    def over() -> bool:
        lab.supervisor.send(commands.Attend())
        return not lab.generation.now.active

    _until(lab, over)
    lab.stop()
    steps = list(lab.generation.now.steps)
    return Answer(PROMPT, DEFAULT_ARM, asked.temperature, asked.top_p, steps)


def _until(lab: Lab, condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end or not lab.supervisor.status().alive:
            raise WorkerError(lab.supervisor.status().error or "The answer did not come in time.")
        time.sleep(0.2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "lab.duckdb") as lab:
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(record(lab)), indent=1) + b"\n")
    print(f"The answer is in {FILE}.", file=sys.stderr)
