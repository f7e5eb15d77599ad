"""A sweep of draft lengths and loads as command lines: one server a length, one benchmark a load, one import of all.

The client is that of vLLM's own adaptive-verification benchmark (vLLM blog, 2026-08-14): a closed loop at full request
rate, on whatever data set is named to it. Its results come back with `avlab interchange results`.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from avlab.vllm import VllmError
from avlab.vllm.serve_line import SPECULATIVE, ServeLine

MAX_SEQS, GRAPHS = "max-num-seqs", "compilation-config"
PROMPTS_A_STREAM, LEAST_PROMPTS = 8, 64  # of a cell: chosen here
MOST_K, MOST_LOAD = 64, 1 << 16


class PlanError(VllmError):
    """A sweep that cannot be planned. The message is one sentence."""


@dataclass(frozen=True)
class ServerPlan:
    """One server of a sweep: its arm, its command, and the benchmark of each load with the file it leaves."""

    arm: str
    serve: str
    benches: tuple[str, ...]
    files: tuple[str, ...]


def capture_size(K: int, requests: int) -> int:
    """Tokens of the largest graph that keeps every verification batch captured: each request's drafts and one more."""
    return (K + 1) * requests


def plan(line: ServeLine, lengths: Sequence[int], loads: Sequence[int]) -> list[ServerPlan]:
    """A server for each length, 0 without speculation. Raises PlanError."""
    if not lengths or not loads:
        raise PlanError("A sweep needs a length and a load.")
    if not all(0 <= K <= MOST_K for K in lengths) or not all(1 <= load <= MOST_LOAD for load in loads):
        raise PlanError(f"Lengths are 0 to {MOST_K}, loads 1 to {MOST_LOAD:,}.")
    if any(lengths) and not line.speculative:
        raise PlanError(
            "The command does not speculate: give --speculative-config with a method, whose length is then varied."
        )
    return [_server(line, K, sorted(set(loads))) for K in dict.fromkeys(lengths)]


def _server(line: ServeLine, K: int, loads: Sequence[int]) -> ServerPlan:
    arguments = {name: value for name, value in line.arguments.items() if name != SPECULATIVE}
    arguments.setdefault(MAX_SEQS, loads[-1])
    if K:
        arguments[SPECULATIVE] = {**line.speculative, "num_speculative_tokens": K}
    if GRAPHS not in arguments and not arguments.get("enforce-eager"):
        arguments[GRAPHS] = {"max_cudagraph_capture_size": capture_size(K, loads[-1])}
    arm = f"fixed:{K}" if K else "none"
    if K and line.speculative.get("enable_adaptive_verification"):
        arm = f"adaptive-of-{K}"
    files = tuple(f"{arm.replace(':', '-')}-c{load}.json" for load in loads)
    benches = tuple(
        shlex.join(
            [
                "vllm", "bench", "serve", "--model", line.model, "--max-concurrency", str(load), "--num-prompts",
                str(max(PROMPTS_A_STREAM * load, LEAST_PROMPTS)), "--request-rate", "inf", "--save-result",
                "--result-filename", file,
            ]
        )
        for load, file in zip(loads, files, strict=True)
    )  # fmt: skip
    return ServerPlan(arm, ServeLine(line.model, arguments, line.environment).shell(), benches, files)


def importing(servers: Sequence[ServerPlan]) -> str:
    """The command that lays all results on the Frontier page."""
    words = ["avlab", "interchange", "results"]
    for server in servers:
        for file in server.files:
            words += ["--arm", f"{server.arm}={file}"]
    return shlex.join([*words, "-o", "own.csv"])
