"""What a step spends on everything but the forward passes of target and drafter, as the worker's ledger has it."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import schedule, spread
from avlab.speculation.sampling import MODELS_OWN

WASHOUT = 2  # steps at the head of a block that are not counted
PHASES = ("draft", "verify", "sample", "decide", "report")
PARTS = ("feature", "predict", "budget and allocate", "observe and refit")
BARS = (
    Bar("overhead", "all but forward passes, of the step", "%", 15.0, "<="),
    Bar("overhead-top-p", "the same with top-p 0.95", "%", 15.0, "<="),
    Bar("estimation", "feature + predict + budget + allocate + observe, of the step", "%", 2.0, "<="),
)


class Wire:
    """Stands for the worker's outbox: frames are encoded as for sending, steps are kept.

    The loop asks for commands before every step; `turn` is called then, and ends the run by returning True.
    """

    lost = ""

    def __init__(self, turn: Callable[[], bool]):
        self.steps: list = []
        self.turn = turn
        self.over = threading.Event()

    def put(self, frame) -> None:
        from avlab.wire import codec, frames

        codec.encode(codec.Envelope("bench", 0, frame))
        if isinstance(frame, frames.Steps):
            self.steps += frame.steps

    def commands(self) -> list:
        if self.turn():
            self.over.set()
        return []

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def instrument(engine) -> dict[int, dict[str, float]]:
    """Time the adaptive policy's parts from now on: milliseconds by step and part, growing as the engine serves."""
    spent: dict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PARTS, 0.0))

    def add(part: str, ms: float) -> None:
        spent[engine.step_number - 1][part] += ms  # the engine counts a step as it begins

    def timed(owner, name: str, part: str) -> None:
        method = getattr(owner, name)

        def run(*given):
            began = time.perf_counter()
            try:
                return method(*given)
            finally:
                add(part, (time.perf_counter() - began) * 1e3)

        setattr(owner, name, run)

    names = ("decide", "estimate", "admit", "observe", "end_step")
    for name, part in zip(names, (PARTS[2], PARTS[1], PARTS[2], PARTS[3], PARTS[3]), strict=True):
        timed(engine.policy, name, part)
    propose = engine.drafter.propose

    def noted(*given):
        drafts = propose(*given)
        add(PARTS[0], drafts.feature_ms)
        return drafts

    engine.drafter.propose = noted
    return spent


def serve(lab, blocks: list[float], steps: int, progress: Callable[[float, float], None]) -> list:
    """The worker's own loop, top-p switched every `steps` steps as `blocks` say; the rows of its ledger."""
    from avlab.workers.intake import open_traffic
    from avlab.workers.reporting import StepReporter
    from avlab.workers.run_clock import RealClock
    from avlab.workers.serving import Server

    engine, config = (
        lab.engine,
        lab.config.changed(arrival="closed:16", policy="adaptive", **MODELS_OWN._asdict()),
    )
    first: list[int] = []  # step of the first block, once it has begun

    def turn() -> bool:
        if not first and engine.running and all(s.decoding for s in engine.sequences):
            first.append(engine.step_number)  # every prompt is in the cache: the first block begins
        place = (engine.step_number - first[0]) // steps if first else 0
        top_p = blocks[min(place, len(blocks) - 1)]
        if server.config.top_p != top_p:
            server.config = server.config.changed(top_p=top_p)
        for sequence in engine.sequences:
            sequence.request.top_p = top_p
        progress(place, len(blocks))
        return place >= len(blocks)

    wire = Wire(turn)
    order: Any = SimpleNamespace(  # what the loop uses of an `Order`
        config=config,
        outbox=wire,
        clock=RealClock(),
        asked_to_stop=wire.over,
        event=lambda *given: None,
        state="",
        step=0,
    )
    report = StepReporter(order.outbox.put, order.clock, engine.K, config.drafts, config.recorded_features)
    server = Server(order, engine, lab.text, open_traffic(config), report)
    server.run()
    return [step for step in wire.steps if first[0] <= step.step < first[0] + steps * len(blocks)]


def measure(context: Context) -> Result:
    """The worker's own loop at 16 requests, in alternating blocks with and without top-p."""
    from avlab.bench.lab import Lab

    lab = Lab(context)
    engine, drafter = lab.engine, lab.need_drafter()
    lab.begin(16, "adaptive", MODELS_OWN)
    lab.learn(context.pick(40, 200), lambda done, total: context.progress("learning", done, total))
    lab.clear()
    rounds, length = context.pick(3, 7), context.pick(24, 40)
    blocks = [top_p for _, top_p in schedule((1.0, 0.95), rounds)]
    spent = instrument(engine)
    try:
        steps = serve(
            lab, blocks, length, lambda done, total: context.progress("the worker's steps", done, total)
        )
    finally:
        del drafter.propose  # the class's own again
    ledger = np.array([[getattr(step, f"{phase}_ms") for phase in PHASES] for step in steps])
    ledger = ledger.reshape(len(blocks), length, len(PHASES))[:, WASHOUT:]  # [blocks, steps, phases]
    parts = np.array([[spent[step.step][name] for name in PARTS] for step in steps])
    parts = parts.reshape(len(blocks), length, len(PARTS))[:, WASHOUT:]
    total = ledger.sum((1, 2))  # [blocks]
    share = 100 * ledger[:, :, 2:].sum((1, 2)) / total
    estimation = 100 * parts.sum((1, 2)) / total
    cut = np.array(blocks) < 1
    rows = [
        [
            name,
            *np.median(ledger[which].mean(1), 0).round(2).tolist(),
            spread(share[which]),
            spread(estimation[which]),
        ]
        for name, which in (("temperature 1", ~cut), ("with top-p 0.95", cut))
    ]
    columns = ["sampling", *PHASES, "sample + decide + report, %", "estimation, %"]
    title = f"Ledger of a step, ms: adaptive, 16 requests, {rounds} rounds of blocks of {length} steps"
    inside = Table(
        "Estimation inside `decide`, ms a step", list(PARTS), [parts.mean((0, 1)).round(3).tolist()]
    )
    values = {
        "overhead": float(np.median(share[~cut])),
        "overhead-top-p": float(np.median(share[cut])),
        "estimation": float(np.median(estimation)),
    }
    notes = [
        "`draft` is the drafter's pass with its sequential part and the draws of draft tokens; `report` encodes every "
        "frame in the loop itself, where a worker's sending thread would."
    ]
    return Result(values, [Table(title, columns, rows), inside], notes)


MEASURES = (Measure("overhead", "what is not a forward pass", BARS, measure, 20),)
