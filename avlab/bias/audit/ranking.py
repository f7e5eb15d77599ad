"""How well scores of a draft token rank acceptance: the AUC of each at the first position, on the same labels.

At one position the online estimator is a rising function of the maximum, and so has the maximum's AUC.
"""

from collections.abc import Sequence

import numpy as np

from avlab.bias.audit.audit import Audit
from avlab.bias.audit.rules import PREDICTORS, parse, scores
from avlab.engine.drafters.block import HEAD, BlockDrafter
from avlab.engine.drafts import Drafts
from avlab.engine.report import StepReport
from avlab.engine.sampler import LogitRows
from avlab.engine.target import Target
from avlab.speculation.calibration import exact_auc

CONTINUATIONS = 384  # of each prompt


def rank(
    target: Target,
    drafter: BlockDrafter,
    prompts: Sequence[list[int]],
    temperature: float = 1.0,
    count: int = CONTINUATIONS,
) -> tuple[dict[str, float], int]:
    """The AUC of every predictor over the first drafts of fresh continuations, and how many drafts these are.

    Behind one prompt all first drafts come from one row: several prompts are needed to rank rows. Every draft is
    verified, so that no predictor chooses what it is judged on.
    """
    known = PREDICTORS if HEAD in drafter.features else tuple(kind for kind in PREDICTORS if kind != "head")
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in known}
    labels: list[np.ndarray] = []

    def look(report: StepReport, drafts: Drafts | None, rows: LogitRows) -> None:
        slots = report.slots
        if slots is None or drafts is None:
            return
        labelled = slots.label[:, 0] >= 0
        labels.append(slots.label[labelled, 0])
        for kind, values in found.items():
            values.append(scores(kind, drafts)[labelled, 0])

    for prompt in prompts:
        audit = Audit(target, drafter, prompt, parse(f"fixed:{drafter.K}"), temperature, observer=look)
        for _ in audit.continuations(count):
            pass
    label = np.concatenate(labels)
    return {kind: exact_auc(np.concatenate(values), label) for kind, values in found.items()}, len(label)
