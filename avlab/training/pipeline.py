"""The stages of making a drafter, each resumable: record data, choose the draft vocabulary, train, export.

Data and gradients are made by single-threaded processes side by side: on a shared machine two threads that wait for
each other at every product are much slower than two processes that do not.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.nn import functional as F

from avlab.engine.build import choose_dtype
from avlab.engine.checkpoint import read_weights
from avlab.engine.fetch import target_folder
from avlab.engine.model_config import read_config
from avlab.engine.target import Target
from avlab.engine.text import Text
from avlab.training.data import Recordings
from avlab.training.export import export
from avlab.training.generate import LENGTH, ShardWriter, generate
from avlab.training.model import DrafterNetwork, DrafterShape
from avlab.training.prompts import conversations, headers
from avlab.training.train import Schedule, Trainer

Say = Callable[[str], None]
FAST = choose_dtype("auto", torch.device("cpu"))  # what this machine records and trains in
VOCABULARY_ROWS = 40_000  # distributions looked at to choose the draft vocabulary


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make, of what. tokens: recorded positions in all; updates: of `anchors` anchors each."""

    folder: Path
    target: str
    tokens: int
    updates: int
    workers: int
    shape: DrafterShape = field(default_factory=DrafterShape)

    @property
    def data(self) -> list[Path]:
        return [self.folder / "data" / f"part-{i}" for i in range(self.workers)]


def record(plan: Plan, part: int, say: Say) -> None:
    """Record this part's share of the data; shards already there count."""
    torch.manual_seed(1000 + part)
    folder = target_folder(plan.target)
    writer = ShardWriter(plan.data[part])
    have = sum(_tokens_in(path) for path in plan.data[part].glob("shard-*.safetensors"))
    missing = plan.tokens // plan.workers - have
    if missing <= 0:
        return
    with torch.inference_mode():
        target = Target(folder, FAST, length=LENGTH)
        text, end = Text(folder), target.config.end_tokens[0]
        opening, answer = headers(text, end)
        stream = conversations(text, opening, seed=1000 * part + writer.number)
        told = time.monotonic()

        def progress(done: int, rate: float) -> None:
            nonlocal told
            if time.monotonic() - told > 20:
                told = time.monotonic()
                say(
                    f"part {part}: {have + done} of {plan.tokens // plan.workers} tokens, {rate:.0f} a second"
                )

        generate(target, stream, answer, end, writer, missing, in_flight=64, progress=progress)


def trainer(plan: Plan) -> Trainer:
    """A trainer over all recorded data, resumed from the plan's folder if it holds a checkpoint."""
    torch.manual_seed(0)
    folder = target_folder(plan.target)
    config = read_config(folder)
    weights = read_weights(folder, torch.float32, torch.device("cpu"))
    recordings = Recordings(plan.data, config.hidden, config.kv_heads, config.head_dim)
    network = DrafterNetwork(config, plan.shape)
    network.start_from(weights)
    schedule = Schedule(updates=plan.updates, warm_up=min(60, plan.updates // 10 + 1))
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    ids = _vocabulary(plan, recordings, head)
    return Trainer(network, recordings, weights, ids, schedule, plan.folder / "training", FAST)


def train(plan: Plan, say: Say) -> None:
    """Train to the end of the plan, in this process (one of `workers` where a process group is set up)."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    work = trainer(plan)
    if work.load():
        say(f"resumed at update {work.update}")
    work.run(say if work.rank == 0 else lambda text: None, save_every=100)


def write(plan: Plan, out: Path, facts: dict) -> Path:
    """Export the trained drafter to `out`. Raises FileNotFoundError where nothing was trained yet."""
    work = trainer(plan)
    if not work.load():
        raise FileNotFoundError(f"There is no checkpoint in {work.folder}: train first.")
    dtype = str(FAST).removeprefix("torch.")
    made = {"updates": work.update, "recorded_tokens": work.recordings.tokens, "dtype": dtype}
    return export(work.network, work.vocabulary, out, made | work.evaluate(128, 16) | facts)


def in_parallel(plan: Plan, stage: str, arguments: list[str]) -> None:
    """Run a stage as `workers` processes of one thread each and wait. Raises RuntimeError if one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = []
    for i in range(plan.workers):
        rank = {"RANK": str(i), "WORLD_SIZE": str(plan.workers), "LOCAL_RANK": str(i)}
        command = [sys.executable, "-m", "avlab.training", stage, "--part", str(i), *arguments]
        processes.append(subprocess.Popen(command, env={**os.environ, **shared, **rank}))
    try:
        failed = [p.args for p in processes if p.wait()]
    finally:
        for p in processes:
            p.terminate()
    if failed:
        raise RuntimeError(
            f"The stage {stage!r} failed in {len(failed)} of {plan.workers} processes; see above."
        )


def _vocabulary(plan: Plan, recordings: Recordings, head: torch.Tensor) -> torch.Tensor:
    """The draft vocabulary: the tokens to which the target gives most mass on the recordings; fixed at the first call.

    The mean of its distributions tells rare tokens apart far better than counting what was drawn.
    """
    path = plan.folder / "vocabulary.json"
    if not path.exists():
        mass, head = torch.zeros(len(head)), head.to(FAST)
        for states in recordings.final_states(every=max(1, recordings.tokens // VOCABULARY_ROWS)):
            for rows in states.to(FAST).split(256):
                mass += F.linear(rows, head).float().softmax(-1).sum(0)
        ids = mass.argsort(descending=True, stable=True)[: plan.shape.draft_vocabulary].sort().values
        # several processes may be here at once, with the same result
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(ids.tolist()))
        part.rename(path)
    return torch.tensor(json.loads(path.read_text()))


def _tokens_in(shard: Path) -> int:
    with safe_open(shard, framework="pt") as file:
        return file.get_slice("tokens").get_shape()[0]
