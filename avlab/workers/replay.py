"""The worker that replays: `python -m avlab.workers.replay`, its order as JSON on standard input. No torch."""

import hashlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from typing import Any

from avlab import plugins
from avlab.about import code_version, installed, processor
from avlab.kinds.replay import ReplayConfig
from avlab.machines import Fit, Machine
from avlab.replay.doubts import doubts
from avlab.replay.emulation import EMULATED
from avlab.replay.server import ReplayServer
from avlab.replay.traces import content_hash
from avlab.replay.workload import TextNumbers
from avlab.wire import frames
from avlab.workers.entry import Order, work
from avlab.workers.intake import open_traffic
from avlab.workers.replay_engine import ReplayEngine
from avlab.workers.reporting import StepReporter
from avlab.workers.run_clock import EmulatedClock
from avlab.workers.serving import Server

PACKAGES = ("numpy", "pyarrow", "avlab")


def serve(order: Order[ReplayConfig]) -> str:
    """Read trace and machine, greet, serve to the end on that machine's clock."""
    config = order.config
    order.progress("reading the trace", 0, 0)
    trace, machine = config.recorded, config.emulated
    workload = open_traffic(config)
    server = ReplayServer(
        trace,
        machine,
        config.arm,
        config.max_num_seqs,
        config.seed,
        kv_tokens=config.kv_tokens,
        prefill_tokens=config.prefill_tokens,
        new_request=config.new_request,
    )
    clock = EmulatedClock(config.speed, lambda: order.outbox.held)
    order.clock = clock
    engine = ReplayEngine(server, clock)
    features, about = trace.about.features, trace.about
    sampling = {"temperature": about.temperature, "top_k": about.top_k, "top_p": about.top_p}
    order.outbox.put(
        frames.Hello(
            kind=ReplayConfig.kind,
            pid=os.getpid(),
            wall=time.time(),
            config=config.model_dump(mode="json") | sampling,
            target=about.target,
            target_hash="",
            drafter=about.drafter,
            drafter_hash=None,
            K=engine.K,
            code=code_version(),
            machine=_about(config),
            features=list(features),
        )
    )
    order.outbox.put(_costs(machine, engine.K))
    for note in doubts(machine, config.about):
        order.event("info", "note", note)
    report = StepReporter(order.outbox.put, clock, engine.K, config.drafts, features)
    reason = Server(order, engine, TextNumbers(), workload, report).run()
    _say_rounds(order, engine)
    return reason


def _about(config: ReplayConfig) -> dict[str, Any]:
    """What was emulated, and on what it was computed."""
    about = config.emulated.about
    return {
        "plugins": plugins.described(),
        EMULATED: config.emulation,
        "trace": asdict(config.about) | {"name": config.trace, "sha256": content_hash(config.trace)},
        "device": about.title,
        "model": about.model,
        "gpu": f"{about.gpu} × {about.gpus}",
        "engine": about.engine,
        "source": about.source,
        "licence": about.licence,
        "trust": about.trust,
        "computed_on": processor(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in PACKAGES}},
    }


def _costs(machine: Machine, K: int) -> frames.CostProfile:
    about, table = machine.about, machine.table()
    requests = [size for size in _sizes(about.most_requests) if size < len(table.draft)]
    draft, verify = about.draft, about.verify
    drafts = (
        [(n, depth, float(machine.draft[n, depth])) for n in requests for depth in (1, K)]
        if isinstance(draft, Fit)
        else [(n, min(depth, K), ms) for n, depth, ms in draft.samples]
    )
    passes = (
        [(n, float(machine.verify[n])) for n in _sizes(len(machine.verify) - 1)]
        if isinstance(verify, Fit)
        else list(verify.samples)
    )
    return frames.CostProfile(
        source=machine.name,
        draft_samples=drafts,
        verify_samples=passes,
        draft_table=table.by_depth(K).tolist(),
        verify_table=table.verify.tolist(),
        cost_hash=hashlib.sha256(json.dumps([drafts, passes]).encode()).hexdigest()[:16],
    )


def _sizes(most: int) -> list[int]:
    """1, 2, 4, ... up to so many."""
    return [1 << power for power in range(most.bit_length())]


def _say_rounds(order: Order[ReplayConfig], engine: ReplayEngine) -> None:
    """How often the texts were served, where that was more than once."""
    served, texts = engine.texts.total(), len(engine.texts)
    if served > texts:
        said = f"{served:,} requests met {texts:,} texts of the trace, each {served / texts:.1f} times on average."
        order.event("info", "texts", said)


if __name__ == "__main__":
    sys.exit(work(serve, ReplayConfig.kind))
