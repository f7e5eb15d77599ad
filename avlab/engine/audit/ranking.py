"""How well scores of draft slots rank acceptance: the AUC of each, on the same labelled slots."""

import numpy as np

from avlab.engine.audit.audit import Audit
from avlab.engine.audit.rules import PREDICTORS, parse, scores
from avlab.engine.audit.shared import SharedDrafter, SharedTarget
from avlab.engine.report import StepReport
from avlab.engine.target import Target
from avlab.speculation.calibration import exact_auc

CONTINUATIONS = 4096  # verified in full: an AUC's standard error is then below 0.01


def rank(
    target: Target,
    drafter: SharedDrafter,
    prompt: list[int],
    temperature: float = 1.0,
    shared: SharedTarget | None = None,
    count: int = CONTINUATIONS,
) -> tuple[dict[str, float], int]:
    """The AUC of every predictor on the labelled slots of fresh continuations, and how many slots these are.

    Every draft is verified, so that no predictor chooses the slots that it is judged on.
    """
    audit = Audit(target, drafter, prompt, parse(f"fixed:{drafter.K}"), temperature, shared=shared)
    known = PREDICTORS if drafter.has_head else tuple(kind for kind in PREDICTORS if kind != "head")
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in known}
    labels: list[np.ndarray] = []

    def look(report: StepReport) -> None:
        slots = report.slots
        if slots is None:
            return
        labelled = slots.label >= 0
        labels.append(slots.label[labelled])
        for kind, values in found.items():
            values.append(scores(kind, drafter, slots.head)[labelled])

    audit.watch = look
    for _ in audit.continuations(count):
        pass
    label = np.concatenate(labels)
    return {kind: exact_auc(np.concatenate(values), label) for kind, values in found.items()}, len(label)
