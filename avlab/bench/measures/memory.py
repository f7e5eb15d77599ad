"""How much memory the engine's process needs beside the keys and values of its requests."""

import numpy as np
import psutil

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.policies.arm import Arm

REQUESTS = 64
ADAPTIVE_STEPS = 2000
BAR = Bar("memory", "worker's memory beside its KV cache, 64 requests", "GB", 2.5, "<=")
WHOLE = Bar(
    "memory-adaptive",
    f"worker's memory after {ADAPTIVE_STEPS:,} adaptive steps, 64 requests",
    "GB",
    1.6,
    "<=",
)


def measure(context: Context) -> Result:
    """Resident memory after every step, less the cache pages that requests have filled so far."""
    from avlab.bench.lab import Lab

    lab = Lab(context, own_costs=not context.quick)  # timing steps is part of what a worker does
    engine, process = lab.engine, psutil.Process()
    built = process.memory_info()
    shape = engine.cache.keys[0].shape  # [rows, kv_heads, length, head_dim]
    position = 2 * len(engine.cache.keys) * shape[1] * shape[3] * engine.cache.keys[0].element_size()
    filled = np.zeros(shape[0], dtype=np.int64)
    lab.concurrency = min(REQUESTS, lab.config.max_num_seqs)
    worst, whole, rows = 0.0, None, []
    drafting = engine.drafter is not None
    arms = ["adaptive", f"fixed:{engine.K}"] if drafting else ["none"]
    lab.begin(lab.concurrency, arms[0])
    for arm, steps in zip(arms, context.pick((60, 4), (ADAPTIVE_STEPS, 20)), strict=False):
        engine.set_policy(Arm.parse(arm))
        peak = beside = 0.0
        for done in range(steps):
            lab.step()
            for s in engine.sequences:
                filled[s.cache_row] = max(filled[s.cache_row], min(len(s.tokens) + engine.K, shape[2]))
            resident = process.memory_info().rss / 1e9
            peak = max(peak, resident)
            beside = max(beside, resident - filled.sum() * position / 1e9)
            context.progress(f"steps under {arm}", done + 1, steps)
        rows.append([arm, steps, *np.round([peak, filled.sum() * position / 1e9, beside], 2).tolist()])
        worst = worst or beside  # the bars are for the adaptive policy
        whole = peak if whole is None else whole
    columns = ["policy", "steps", "peak resident GB", "KV cache filled GB", "resident beside it GB"]
    notes = [
        f"A cached position takes {position / 1e3:.1f} kB; the cache grows as requests fill it.",
        f"With the engine built and nothing served yet: {built.rss / 1e9:.2f} GB resident, of which "
        f"{built.shared / 1e9:.2f} GB are files (libraries, a checkpoint that is mapped).",
    ]
    return Result(
        {BAR.name: worst, WHOLE.name: whole},
        [Table(f"Memory, {lab.concurrency} requests", columns, rows)],
        notes,
    )


MEASURES = (Measure("memory", "the worker's memory", (BAR, WHOLE), measure, 70, alone=True),)
