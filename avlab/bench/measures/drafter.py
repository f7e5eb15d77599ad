"""How often the target keeps what the drafter proposes: facts for the drafter's card."""

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.speculation.sampling import MODELS_OWN

TEMPERATURES = (0.0, 0.6, 1.0)
OWN, HELD_OUT = "self-generated chat", "held-out mixed workload"
BARS = (
    Bar("acceptance", "conditional acceptance at position 0, own chat, temperature 1", "", 0.55),
    Bar("tokens-per-step", "tokens a step with fixed:7, own chat, temperature 1", "", 2.0),
    Bar("acceptance-mixed", "conditional acceptance at position 0, mixed workload, temperature 1", ""),
    Bar("tokens-per-step-mixed", "tokens a step with fixed:7, mixed workload, temperature 1", ""),
)


class Tally:
    """Counts labels by position, and tokens of request-steps that verified drafts."""

    def __init__(self, K: int):
        self.labelled, self.accepted = np.zeros(K, dtype=np.int64), np.zeros(K, dtype=np.int64)
        self.steps = self.tokens = 0

    def add(self, report) -> None:
        slots = report.slots
        if slots is None:
            return
        self.labelled += (slots.label >= 0).sum(0)
        self.accepted += (slots.label == 1).sum(0)
        drafted = set(slots.request.tolist())
        emitted = [len(new) for request, new in report.emitted if request.id in drafted]
        self.steps, self.tokens = self.steps + len(emitted), self.tokens + sum(emitted)

    @property
    def acceptance(self) -> np.ndarray:
        """Conditional acceptance by position, nan where there is no label, [K]."""
        return self.accepted / np.where(self.labelled, self.labelled, np.nan)


def measure(context: Context) -> Result:
    """Serve with the full length at three temperatures, the target's own chat and the held-out prompts."""
    from avlab.bench.lab import Lab

    lab = Lab(context)
    lab.need_drafter()
    K, wanted = lab.engine.K, context.pick(250, 2000)
    own = lab.questions(
        context.pick(16, 128), lambda done, total: context.progress("questions", min(done, total), total)
    )
    sources = {OWN: own, HELD_OUT: lab.prompts}
    rows, tallies = [], {}
    for source, prompts in sources.items():
        for temperature in context.pick((1.0,), TEMPERATURES) if source == HELD_OUT else TEMPERATURES:
            lab.prompts = prompts
            lab.begin(16, f"fixed:{K}", MODELS_OWN._replace(temperature=temperature))
            tally = tallies[source, temperature] = Tally(K)
            while tally.labelled[0] < wanted:
                tally.add(lab.step()[0])
                done = min(int(tally.labelled[0]), wanted)
                context.progress(f"{source}, temperature {temperature:g}", done, wanted)
            kept = tally.acceptance.round(3).tolist()
            rows.append([source, temperature, tally.steps, round(tally.tokens / tally.steps, 3), *kept])
    columns = [
        "prompts",
        "temperature",
        "request-steps",
        "tokens a step",
        *(f"position {k}" for k in range(K)),
    ]
    table = Table(f"Conditional acceptance by position under fixed:{K}", columns, rows)
    values = {}
    for (name, per_step), source in (
        (("acceptance", "tokens-per-step"), OWN),
        (("acceptance-mixed", "tokens-per-step-mixed"), HELD_OUT),
    ):
        tally = tallies[source, 1.0]
        values[name], values[per_step] = float(tally.acceptance[0]), tally.tokens / tally.steps
    return Result(values, [table])


MEASURES = (Measure("drafter", "the drafter's acceptance", BARS, measure, 65),)
