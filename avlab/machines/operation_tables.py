"""Machines from NVIDIA's operation tables: dense models with an EAGLE-3 head, as TOML files beside this script.

The tables give the time of each kernel of a decode step by its size, as measured. In an environment of its own:

    python -m venv build/machines && build/machines/bin/pip install -r requirements-machines.txt
    build/machines/bin/python avlab/machines/operation_tables.py

A pass of T tokens is every operation but attention at T tokens, plus attention of the step's requests, fitted as
base + slope x cached tokens. No table of operations knows an engine: launching, sampling, scheduling are not in them.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from aiconfigurator_core.sdk.engine import EngineHandle  # type: ignore[import-not-found]

SOURCE = "NVIDIA operation tables, PyPI aiconfigurator-core 0.12.0, {system}, vLLM's kernels, bfloat16"
TOKENS = (
    1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 2048, 3072, 4096, 6144, 8192,
)  # fmt: skip
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
CACHED = (128, 256, 512, 1024, 2048)  # of a request, for the fit of attention
DEPTHS = (1, 7)  # drafts are one pass of the head after another, so depths between lie on the line
DRAFT_CACHED = 512  # tokens that a drafting request holds
HEAD_VOCABULARY = (
    32_000  # of the EAGLE-3 heads published for both models; all of them scale the target's last product
)
ONCE = (
    "embedding",
    "logits_gemm",
    "embedding_ar",
    "p2p",
)  # of a pass; every other operation is in each layer


@dataclass(frozen=True)
class Made:
    """A machine to make. layers, vocabulary: of the target. gpu: as a reader calls it; system: as the tables do."""

    name: str
    title: str
    model: str
    path: str
    layers: int
    gpu: str
    system: str
    gpus: int
    vocabulary: int = 128_256


MACHINES = (
    Made(
        "h200-llama-3.1-70b-tp4",
        "H200 × 4, Llama-3.1-70B's costs",
        "Llama-3.1-70B with EAGLE-3",
        "meta-llama/Meta-Llama-3.1-70B",
        80,
        "H200",
        "h200_sxm",
        4,
    ),
    Made(
        "rtx-pro-6000-llama-3.1-8b",
        "RTX PRO 6000, Llama-3.1-8B's costs",
        "Llama-3.1-8B with EAGLE-3",
        "meta-llama/Meta-Llama-3.1-8B",
        32,
        "RTX PRO 6000",
        "rtx_pro_6000_server",
        1,
    ),
)


class Operations:
    """The operations of a decode step of one target on one system, in milliseconds."""

    def __init__(self, made: Made):
        self.made = made
        self.engine = EngineHandle.compile(made.path, made.system, "vllm", tp_size=made.gpus)
        self.names = [
            name.removeprefix("generation_") for name, *_ in self.engine.decode_step_per_op(8, 256, 2)
        ]

    def _sum(self, wanted, requests: int, cached: int, tokens: int) -> float:
        indices = [i for i, name in enumerate(self.names) if wanted(name)]
        found = self.engine.evaluate_generation_ops(indices, batch_size=requests, s=cached, x=tokens)
        return sum(milliseconds for _, milliseconds, *_ in found)

    def shared(self, tokens: int) -> float:
        """All but attention, of a pass of so many tokens."""
        return self._sum(lambda name: name != "attention", tokens, 1, tokens)

    def attention(self, requests: int, cached: int) -> float:
        """Attention of requests that each hold so many tokens."""
        return self._sum(lambda name: name == "attention", requests, cached, requests)

    def head(self, requests: int) -> float:
        """One position of an EAGLE-3 head: a layer as the target's, and the last product over its vocabulary."""
        layer = self._sum(lambda name: name not in ONCE, requests, DRAFT_CACHED, requests) / self.made.layers
        last = self._sum(lambda name: name == "logits_gemm", requests, 1, requests)
        return layer + last * HEAD_VOCABULARY / self.made.vocabulary

    def attention_line(self) -> tuple[float, float]:
        """Base, and milliseconds a cached token: least squares of relative errors."""
        points = [(r * c, self.attention(r, c)) for r in REQUESTS for c in CACHED]
        cached, milliseconds = np.array(points).T
        columns = np.stack([1 / milliseconds, cached / milliseconds], axis=1)
        base, slope = np.linalg.lstsq(columns, np.ones(len(points)), rcond=None)[0]
        return float(base), float(slope)


def text_of(made: Made) -> str:
    """The machine's file."""
    operations = Operations(made)
    base, slope = operations.attention_line()
    verify = [(tokens, operations.shared(tokens) + base) for tokens in TOKENS]
    draft = [(r, depth, depth * operations.head(r)) for depth in DEPTHS for r in REQUESTS]
    return f"""\
# Made by operation_tables.py. Kernel times alone: an engine adds what launching, sampling and scheduling take (against
# a fit to vLLM on an H100 they are 22 % below at 512 tokens). No sizes are padded here. Attention of prompts is not in.
# Drafting is one layer as the target's and a last product over 32,000 tokens a position; launching its small kernels
# may cost as much again.
title = "{made.title}"
model = "{made.model}"
gpu = "{made.gpu}"
gpus = {made.gpus}
engine = "kernels of vLLM, no engine"
source = "{SOURCE.format(system=made.system)}"
licence = "Apache-2.0"
trust = "operation tables"

most_requests = 256
most_tokens = 8192
step_ms = 0.0         # the tables know no engine
prefill_tokens = 8192 # chosen here: vLLM's default for a server

[draft]
by_depth = true
samples = [  # requests, depth, ms
{_rows(draft)}
]

[verify]
cached_ms = {slope:.3e}  # a token in the cache
samples = [  # tokens in the target's pass, ms
{_rows(verify)}
]
"""


def _rows(samples) -> str:
    each = ["[" + ", ".join(map(str, sizes)) + f", {ms:.3f}]" for *sizes, ms in samples]
    return "\n".join("    " + ", ".join(each[i : i + 8]) + "," for i in range(0, len(each), 8))


def main() -> None:
    """Write every machine's file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where the files go")
    folder = parser.parse_args().folder
    for made in MACHINES:
        (folder / f"{made.name}.toml").write_text(text_of(made), encoding="utf-8")


if __name__ == "__main__":
    main()
