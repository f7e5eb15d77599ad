"""Timing the engine's own parts: what a draft and a verification cost by size, before the first request."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
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
# Runs of a timed size, chosen here so that a start takes no longer than it must
RUNS = 7
LEAST_RUNS, MOST_RUNS = 3, 20
ENOUGH_MS = 300.0  # in all runs of a size: large ones vary little
AGREEMENT = 1.05  # of the two quickest runs of a size; beyond it one of them was held up
MOST_SECONDS = 20.0  # after which one run of a size must do
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


def make_costs(
    draft,
    verify,
    K: int,
    most_requests: int,
    tokens: int,
    source: str,
    padded: Callable[[int], int] = lambda rows: rows,
) -> Costs:
    """Tables up to `most_requests` requests and `tokens` tokens from samples.

    Without a drafter (K = 0) drafting costs 0. padded: how many rows a pass of so many computes (`Target.padded`);
    where that is more, tokens up to the next size cost the same."""
    most = padded(tokens)
    if K:
        table = CostTable.convex(draft, verify, most_requests, most, K=K)
    else:
        table = CostTable.convex([(1, 0.0)], verify, most_requests, most)
    steps = [padded(n) for n in range(tokens + 1)]
    return Costs(draft, verify, CostTable(table.draft, table.verify[steps]), source)


def read_costs(
    path: Path, K: int, most_requests: int, tokens: int, padded: Callable[[int], int] = lambda rows: rows
) -> Costs:
    """Costs from a cost file; padded: as `make_costs` takes it. Raises CostError."""
    draft, verify = read_samples(path)
    try:
        return make_costs(draft, verify, K, most_requests, tokens, str(path), padded)
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
    """Time drafts by requests and depth, and target passes by tokens, on random tokens. The cache must be idle.

    Every sample is kept; the table is the convex curve beneath them (`speculation.costs`)."""
    request_sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < most_requests] + [most_requests]
    most = min(tokens, 512, most_requests * target.length)
    token_sizes = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256) if n < most]
    token_sizes.append(most)
    depths = sorted({1, (drafter.K + 1) // 2, drafter.K}) if drafter else []
    taps = drafter.state_layers if drafter else ()
    jobs = [(n, 0, _verify_job(target, cache, n, most_requests, taps)) for n in token_sizes]
    if drafter:
        jobs += [(n, d, _draft_job(target, drafter, cache, n, d)) for n in request_sizes for d in depths]
    times = time_interleaved([run for *_, run in jobs], clock_of(target.device), progress)
    draft = [(n, d, ms) for (n, d, _), found in zip(jobs, times, strict=True) if d for ms in found]
    verify = [(n, ms) for (n, d, _), found in zip(jobs, times, strict=True) if not d for ms in found]
    if drafter:
        for row in range(most_requests):
            drafter.forget(row)  # what a drafter remembers of the timed requests
    K = drafter.K if drafter else 0
    return make_costs(draft, verify, K, most_requests, tokens, "profiled", target.padded)


def clock_of(device: torch.device) -> Callable[[], float]:
    """Seconds, once the device has done what it was given."""

    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return clock


def time_interleaved(
    jobs: Sequence[Callable[[], object]],
    clock: Callable[[], float],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[list[float]]:
    """Milliseconds of each job's runs, by job: all jobs in turn, again and again.

    So a machine that is busy for a while holds up one run of many jobs and not every run of one. A job is run until its
    two quickest runs agree, at least `RUNS` times or until it has taken long enough. First runs count, as the cost of
    a size is that of its quickest runs.
    """
    times: list[list[float]] = [[] for _ in jobs]
    order, began, done, least = np.random.default_rng(0), clock(), 0, len(jobs) * LEAST_RUNS
    progress(0, least)
    while waiting := [i for i, found in enumerate(times) if not _enough(found, clock() - began)]:
        for i in order.permutation(waiting):
            start = clock()
            jobs[i]()
            times[i].append((clock() - start) * 1e3)
            done += 1
            progress(min(done, least), least)
    return times


def _enough(times: list[float], seconds: float) -> bool:
    """Whether a job was timed often enough, in a profile that has taken so many seconds."""
    if seconds > MOST_SECONDS:
        return len(times) > 0
    if len(times) < LEAST_RUNS or len(times) >= MOST_RUNS:
        return len(times) >= MOST_RUNS
    quickest, second = sorted(times)[:2]
    often = len(times) >= RUNS or len(times) * quickest >= ENOUGH_MS
    return often and second <= quickest * AGREEMENT


@torch.inference_mode()
def _verify_job(
    target: Target, cache: KVCache, n: int, most_requests: int, taps: tuple[int, ...]
) -> Callable[[], object]:
    """A pass as a step makes it, with the states of the layers that the drafter reads (`taps`)."""
    requests = min(most_requests, max(1, round(n / TOKENS_PER_REQUEST), -(-n // target.length)))
    counts = [n // requests + (i < n % requests) for i in range(requests)]
    rows = torch.arange(n, device=target.device) % target.config.vocabulary
    at = min(CONTEXT, target.length - max(counts))

    @torch.inference_mode()
    def run():
        batch = target.batch(range(requests), [at] * requests, counts)
        final, tapped = target.forward(rows, batch, cache, taps)
        return target.logit_rows(final), torch.cat([final, *tapped], 1)

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
