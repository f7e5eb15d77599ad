"""Timing the engine's own parts: what a draft and a verification cost by size, before the first request."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from avlab.cost_file import CostError, read_samples, text_of
from avlab.engine.cache import KVCache
from avlab.engine.drafters.base import Drafter, DraftInput
from avlab.engine.target import Target
from avlab.speculation.costs import CostTable

CONTEXT = 256  # tokens already cached by each timed request; the middle of what the shipped workloads reach
REPLAYS = 5  # as vLLM
ENOUGH_MS = 300.0  # large sizes vary little; a start should not take longer than it must
TOKENS_PER_REQUEST = 3  # of a timed verification: about what adaptive verification admits, plus one


@dataclass(frozen=True, slots=True)
class Costs:
    """draft: (requests, depth, ms); verify: (tokens, ms); and the table made of them. source: where they come from."""

    draft: list[tuple[int, int, float]]
    verify: list[tuple[int, float]]
    table: CostTable
    source: str

    @property
    def hash(self) -> str:
        """Names the table in a run's record: 16 hex digits."""
        return hashlib.sha256(json.dumps([self.draft, self.verify]).encode()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write the samples as a file that `--costs` reads."""
        path.write_text(text_of(self.draft, self.verify), encoding="utf-8")


def make_costs(draft, verify, K: int, most_requests: int, tokens: int, source: str) -> Costs:
    """Tables up to `most_requests` requests and `tokens` tokens from samples.

    Without a drafter (K = 0) drafting costs 0."""
    if K:
        table = CostTable.linear(draft, verify, most_requests, tokens, K=K)
    else:
        table = CostTable.linear([(1, 0.0)], verify, most_requests, tokens)
    return Costs(draft, verify, table, source)


def read_costs(path: Path, K: int, most_requests: int, tokens: int) -> Costs:
    """Costs from a cost file. Raises CostError."""
    draft, verify = read_samples(path)
    try:
        return make_costs(draft, verify, K, most_requests, tokens, str(path))
    except ValueError as error:
        raise CostError(f"{path} does not fit this run: {error}.") from None


def profile(
    target: Target,
    drafter: Drafter | None,
    cache: KVCache,
    most_requests: int,
    tokens: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Costs:
    """Time drafts by requests and depth, and target passes by tokens, on random tokens. The cache must be idle."""
    request_sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < most_requests] + [most_requests]
    most = min(tokens, 512, most_requests * target.length)
    token_sizes = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384) if n < most]
    token_sizes.append(most)
    depths = sorted({1, (drafter.K + 1) // 2, drafter.K}) if drafter else []
    jobs = [(n, 0, _verify_job(target, cache, n, most_requests)) for n in token_sizes]
    if drafter:
        jobs += [(n, d, _draft_job(target, drafter, cache, n, d)) for n in request_sizes for d in depths]
    draft, verify = [], []
    for done, (n, depth, run) in enumerate(jobs):
        progress(done, len(jobs))
        for ms in _time(run, target.device):
            if depth:
                draft.append((n, depth, ms))
            else:
                verify.append((n, ms))
    progress(len(jobs), len(jobs))
    if drafter:
        for row in range(most_requests):
            drafter.forget(row)  # what a drafter remembers of the timed requests
    return make_costs(draft, verify, drafter.K if drafter else 0, most_requests, tokens, "profiled")


def _time(run: Callable[[], object], device: torch.device) -> list[float]:
    """Milliseconds of some runs after a first one: REPLAYS, or fewer (at least 2) once they have taken long enough."""
    run()
    times: list[float] = []
    while len(times) < 2 or (len(times) < REPLAYS and sum(times) < ENOUGH_MS):
        began = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - began) * 1e3)
    return times


@torch.inference_mode()
def _verify_job(target: Target, cache: KVCache, n: int, most_requests: int) -> Callable[[], object]:
    requests = min(most_requests, max(1, round(n / TOKENS_PER_REQUEST), -(-n // target.length)))
    counts = [n // requests + (i < n % requests) for i in range(requests)]
    rows = torch.arange(n, device=target.device) % target.config.vocabulary
    at = min(CONTEXT, target.length - max(counts))

    @torch.inference_mode()
    def run():
        batch = target.batch(range(requests), [at] * requests, counts)
        return target.logits(target.forward(rows, batch, cache)[0])

    return run


@torch.inference_mode()
def _draft_job(target: Target, drafter: Drafter, cache: KVCache, n: int, depth: int) -> Callable[[], object]:
    at, device = min(CONTEXT, target.length - drafter.K), target.device
    width = (1 + len(drafter.state_layers)) * target.config.hidden
    inputs = DraftInput(
        cache_rows=list(range(n)),
        starts=[at] * n,
        newest=torch.zeros(n, dtype=torch.long, device=device),
        states=torch.randn(n, width, dtype=target.dtype, device=device),
        temperature=torch.ones(n, device=device),
        uniforms=torch.from_numpy(np.random.default_rng(0).random((n, drafter.K))).to(device),
        cache=cache,
        history=[[0] * (at + 1) for _ in range(n)],
    )

    def run():
        # an autoregressive drafter goes on from what it knows; timed as in serving, with one new token each
        for row in range(n):
            drafter.assume_read(row, at)
        return drafter.propose(inputs, depth)

    return run
