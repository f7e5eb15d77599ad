"""What a step spends on everything but the forward passes of target and drafter, as the worker's ledger has it."""

import threading
import time
from collections import defaultdict
from types import SimpleNamespace

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import spread

WASHOUT = 20  # steps at the head of a block in which prompts are read
PHASES = ("draft", "verify", "sample", "decide", "report")
PARTS = ("feature", "predict", "budget and allocate", "observe and refit")
BARS = (
    Bar("overhead", "all but forward passes, of the step", "%", 15.0, "<="),
    Bar("overhead-top-p", "the same with top-p 0.95", "%", 15.0, "<="),
    Bar("estimation", "feature + predict + budget + allocate + observe, of the step", "%", 2.0, "<="),
)


class Wire:
    """Stands for the worker's outbox: frames are encoded as for sending, steps are kept."""

    lost = ""

    def __init__(self):
        self.steps = []

    def put(self, frame) -> None:
        from avlab.workers import messages as m

        m.encode(m.Envelope("bench", 0, frame))
        if isinstance(frame, m.Steps):
            self.steps += frame.steps

    def commands(self) -> list:
        return []

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def instrument(engine) -> dict[str, float]:
    """Time the adaptive policy's parts from now on; milliseconds by part, growing as the engine serves."""
    spent: dict[str, float] = defaultdict(float)

    def timed(owner, name: str, part: str) -> None:
        method = getattr(owner, name)

        def run(*given):
            began = time.perf_counter()
            try:
                return method(*given)
            finally:
                spent[part] += (time.perf_counter() - began) * 1e3

        setattr(owner, name, run)

    names = ("estimate", "admit", "observe", "end_step")
    for name, part in zip(names, (*PARTS[1:], PARTS[3]), strict=True):
        timed(engine.policy, name, part)
    propose = engine.drafter.propose

    def noted(*given):
        drafts = propose(*given)
        spent[PARTS[0]] += drafts.feature_ms
        return drafts

    engine.drafter.propose = noted
    return spent


def measure(context: Context) -> Result:
    """The worker's own loop at 16 requests, in alternating blocks with and without top-p."""
    from avlab.bench.lab import Lab
    from avlab.workers.serving import Server, open_traffic

    lab = Lab(context)
    lab.need_drafter()
    lab.begin(16, "adaptive")
    lab.learn(context.pick(40, 200), lambda done, total: context.progress("learning", done, total))
    lab.clear()
    spent = instrument(lab.engine)
    rounds, seconds = context.pick(3, 8), context.pick(4.0, 12.0)
    shares: dict[float, list[float]] = {1.0: [], 0.95: []}
    estimation: list[float] = []
    phases = {1.0: [], 0.95: []}
    parts = []
    for done, top_p in enumerate([1.0, 0.95] * rounds):
        context.progress("steps of the worker", done, 2 * rounds)
        config = lab.config.changed(
            top_p=top_p, arrival="closed:16", duration=seconds, seed=done, policy="adaptive"
        )
        began, wire = time.monotonic(), Wire()
        order = SimpleNamespace(
            config=config,
            outbox=wire,
            clock=lambda began=began: time.monotonic() - began,
            asked_to_stop=threading.Event(),
            event=lambda *given: None,
            state="",
            step=0,
        )
        spent.clear()
        Server(order, lab.engine, lab.text, open_traffic(config), lab.engine.K).run()
        ledger = np.array([[getattr(s, f"{p}_ms") for p in PHASES] for s in wire.steps])
        part = np.array([spent[name] for name in PARTS])
        estimation.append(100 * part.sum() / ledger.sum())
        counted = ledger[min(WASHOUT, len(ledger) // 2) :]
        shares[top_p].append(100 * counted[:, 2:].sum() / counted.sum())
        phases[top_p].append(counted.mean(0))
        parts.append(part / len(ledger))
    context.progress("steps of the worker", 1, 1)
    rows = [
        [f"top-p {top_p:g}", *np.median(phases[top_p], 0).round(2).tolist(), spread(shares[top_p])]
        for top_p in (1.0, 0.95)
    ]
    ledger_table = Table(
        "Ledger of a step, ms (adaptive, 16 requests, temperature 1); share of sample, decide and report",
        ["sampling", *PHASES, "% of the step"],
        rows,
    )
    parts_table = Table("Inside `decide`, ms a step", list(PARTS), [np.median(parts, 0).round(3).tolist()])
    values = {
        "overhead": float(np.median(shares[1.0])),
        "overhead-top-p": float(np.median(shares[0.95])),
        "estimation": float(np.median(estimation)),
    }
    notes = [
        "`draft` is the drafter's pass with its sequential part and the draws of draft tokens; `report` encodes every "
        "frame in the loop itself, where a worker's sending thread would."
    ]
    return Result(values, [ledger_table, parts_table], notes)


MEASURES = (Measure("overhead", "what is not a forward pass", BARS, measure, 20),)
