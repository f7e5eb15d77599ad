"""How predictable the target's answers are, by kind of prompt."""

from unittest.mock import patch

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.speculation.sampling import MODELS_OWN
from avlab.workloads import kinds

BARS = tuple(Bar(f"entropy-{name}", f"output entropy of {name}, temperature 1", "nats") for name in kinds())


def _by_kind(context: Context, lab, seen: list) -> tuple[dict[str, float | None], list[list]]:
    """Values and rows of the table; seen: the entropies [N] of every call since it was cleared."""
    wanted, rows = context.pick(300, 8000), []
    values: dict[str, float | None] = {}
    for name, kind in kinds().items():
        lab.prompts = lab.workload(name)
        lab.begin(context.pick(8, 32), sampling=MODELS_OWN)
        found: list[float] = []
        while len(found) < wanted:
            seen.clear()
            report, _ = lab.step()
            entropy = [value for rows_ in seen for value in rows_.tolist()]
            if len(entropy) == len(report.emitted):  # one row a request: nothing was drafted
                found += entropy
            context.progress(name, min(len(found), wanted), wanted)
        values[f"entropy-{name}"] = float(np.mean(found))
        low, middle, high = np.quantile(found, [0.25, 0.5, 0.9])
        rows.append([name, kind.rung, len(found), *np.round([np.mean(found), low, middle, high], 3).tolist()])
    return values, rows


def measure(context: Context) -> Result:
    """Mean entropy of the distribution each token was drawn from, no speculation."""
    import torch

    from avlab.bench.lab import Lab

    lab = Lab(context)
    target, plain = lab.built.target, lab.built.target.logits
    seen: list[torch.Tensor] = []

    def logits(states: torch.Tensor) -> torch.Tensor:
        rows = plain(states)
        log_p = rows.log_softmax(-1)
        seen.append(-(log_p.exp() * log_p).sum(-1))
        return rows

    with patch.object(target, "logits", logits):
        values, rows = _by_kind(context, lab, seen)
    columns = ["kind", "rung", "tokens", "mean", "lower quartile", "median", "upper decile"]
    return Result(
        values, [Table("Entropy of the target's distribution by generated token, nats", columns, rows)]
    )


MEASURES = (Measure("entropy", "output entropy by kind", BARS, measure, 90),)
