"""What a reader should know of a machine's table before believing it."""

from __future__ import annotations

import numpy as np

from avlab.machines.description import Description, Fit
from avlab.speculation.costs import medians

FEW = 256  # tokens: what a step verifies on most machines
SAME = 1.02  # costs this near each other are the same, chosen here: what timings of one size differ by
JAGGED = 1.05  # over the line between its neighbours, chosen here


def notes(about: Description, verify: np.ndarray) -> list[str]:
    """Sentences: a table that is flat, inert, falling or jagged, and what its source leaves out.

    verify: [tokens + 1] milliseconds of the target's pass.
    """
    found, few = [], verify[1 : min(len(verify), FEW + 1)]
    if few.max() <= few.min() * SAME:
        found.append(
            f"Flat: the target's pass costs the same for 1 token and for {len(few)}: verifying everything always pays."
        )
    falls = np.maximum.accumulate(verify) - verify
    if falls.max() > (SAME - 1) * verify.max():
        found.append(
            f"Falling: the target's pass is not monotone; some sizes cost {falls.max():.1f} ms less than a smaller one."
        )
    if worst := _jag(about):
        found.append(f"Jagged: {worst}.")
    free = (
        about.draft.base_ms + about.draft.token_ms == 0
        if isinstance(about.draft, Fit)
        else not any(ms > 0 for *_, ms in about.draft.samples)
    )
    if free:
        found.append("Inert: drafts cost nothing here, so drafting always pays.")
    if about.trust == "operation tables":
        found.append(
            "Kernel times alone: what an engine adds to a step, and to each small pass of a draft head, is not in them."
        )
    return found


def _jag(about: Description) -> str:
    """The sampled size that lies farthest above the line between its neighbours, up to the largest captured size."""
    if isinstance(about.verify, Fit):
        return ""
    samples = [each for each in about.verify.samples if not about.captured or each[0] <= about.captured]
    if not samples:
        return ""
    sizes, costs = medians(samples)
    if len(sizes) < 3:
        return ""
    line = costs[:-2] + (costs[2:] - costs[:-2]) * (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
    above = costs[1:-1] / np.maximum(line, 1e-9)
    worst = int(above.argmax())
    if above[worst] < JAGGED:
        return ""
    percent = 100 * (above[worst] - 1)
    return f"a pass of {sizes[worst + 1]:.0f} tokens costs {percent:.0f} % more than the line between its neighbours"
