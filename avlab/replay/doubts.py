"""What a reader should know before believing a trace on a machine: sentences."""

from avlab.machines import PROFILED, Machine
from avlab.replay.about import PARAMETRIC, About


def doubts(machine: Machine, about: About) -> list[str]:
    """What is odd about the machine's table, and where its costs and the trace are of two models."""
    found = list(machine.notes)
    if machine.about.trust == PROFILED and about.origin != PARAMETRIC and machine.about.model != about.target:
        found.append(
            f"The costs were timed here with {machine.about.model}, and the trace is {about.target}'s, drafted by "
            f"{about.drafter}: what a step costs and what a draft is worth belong to two models."
        )
    return found


def drawn_again(requests: int, served: float, texts: int) -> str:
    """Where a repeat at so many requests serves more texts than the trace has; else nothing."""
    if served <= texts:
        return ""
    return (
        f"The trace is short for {requests:,} requests: a repeat serves {served:,.0f} texts and the trace has "
        f"{texts:,}, so texts are drawn again, {served / texts - 1:.1f} times each on average; a trace of "
        f"{served:,.0f} texts would not be."
    )
