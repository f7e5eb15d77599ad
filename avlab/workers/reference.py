"""The reference engine's worker: `python -m avlab.workers.reference`, its order as JSON on standard input.

torch is imported here and nowhere above, after the supervisor has chosen threads and spin count.
"""

import os
import platform
import sys
import time
from typing import Any

import psutil

from avlab import plugins
from avlab.about import code_version, installed, processor
from avlab.config import RunConfig
from avlab.engine.fetch import target_folder
from avlab.wire import frames
from avlab.workers.entry import Order, work
from avlab.workers.intake import open_traffic
from avlab.workers.reporting import StepReporter
from avlab.workers.serving import Server


def serve(order: Order[RunConfig]) -> str:
    """Build the engine, greet, serve to the end. Errors of ours are raised with one sentence."""
    config = order.config
    workload = open_traffic(config)  # a malformed prompt file or a missing target is found before torch loads
    target_folder(config.target)
    order.progress("starting torch", 0, 0)
    from avlab.engine.build import build
    from avlab.engine.checkpoint_files import CheckpointError
    from avlab.workers.building import build_settings

    built = build(build_settings(config), order.progress)
    engine, costs = built.engine, built.costs
    if not engine.K:  # no drafter fits: the record says what serves
        config = config.changed(drafter="none", policy=str(engine.policy.arm))
    order.outbox.put(
        frames.Hello(
            kind="reference",
            pid=os.getpid(),
            wall=time.time() - order.clock(),
            config=config.model_dump(mode="json"),
            target=built.target_name,
            target_hash=built.target_hash,
            drafter=built.drafter_name,
            drafter_hash=built.drafter_hash,
            K=engine.K,
            code=code_version(),
            machine=machine(str(engine.target.device), built.dtype),
            features=[name for name in config.recorded_features if name in engine.features],
        )
    )
    order.outbox.put(
        frames.CostProfile(
            source=costs.source,
            draft_samples=list(costs.draft),
            verify_samples=list(costs.verify),
            draft_table=costs.table.by_depth(engine.K).tolist(),
            verify_table=costs.table.verify.tolist(),
            cost_hash=costs.hash,
        )
    )
    for note in built.notes:
        order.event("info", "note", note)
    for warning in built.warnings:
        order.event("warning", "note", warning)
    report = StepReporter(order.outbox.put, order.clock, engine.K, config.drafts, config.recorded_features)
    return Server(order, engine, built.text, workload, report, (CheckpointError,)).run()


def machine(device: str, dtype: str) -> dict[str, Any]:
    """What a run ran on: processor, memory (GB), device, dtype, native operations or why not, threads, versions."""
    import torch

    from avlab.engine.native import products, why_not

    return {
        "processor": processor(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "dtype": dtype,
        "native": not (reason := why_not(getattr(torch, dtype, None), torch.device(device))),
        "not_native": reason,
        "products": products(getattr(torch, dtype, None), torch.device(device)),
        "threads": torch.get_num_threads(),
        "spin": int(os.environ.get("GOMP_SPINCOUNT", -1)),
        "system": platform.platform(),
        "plugins": plugins.described(),
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in PACKAGES}},
    }


PACKAGES = ("torch", "numpy", "tokenizers", "avlab")


if __name__ == "__main__":
    sys.exit(work(serve))
