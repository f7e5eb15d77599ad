"""What vLLM can do of a plan, as arguments of `vllm serve`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from avlab.experiments.replay_plan import Choice
from avlab.policies.arm import Arm, arm_of
from avlab.speculation.estimators.base import DEFAULT
from avlab.vllm.serve_line import SPECULATIVE, ServeLine

TOKENS, ADAPTIVE, BY_LOAD = (
    "num_speculative_tokens",
    "enable_adaptive_verification",
    "num_speculative_tokens_per_batch_size",
)
MODEL = "MODEL"  # where the reader's own command is not known


@dataclass(frozen=True, slots=True)
class Served:
    """How vLLM serves an arm. line: the command. said: what to know of it, in a sentence, or ""."""

    line: ServeLine
    said: str


def vllm_serves(arm: Arm) -> bool:
    """Whether vLLM has this policy: no speculation, a fixed length, or its own adaptive verification.

    That takes the estimates of a confidence head where the drafter has one, else the online estimator's.
    """
    return arm.fixed or (
        arm.adaptive and not arm.depth and not arm.explore and arm.source in ("online", "head")
    )


def why_not(arm: Arm) -> str:
    """Why vLLM does not serve an arm, in a sentence."""
    if arm.depth:
        return f"vLLM cannot choose the depth of drafts step by step, as {arm} does: it always drafts K."
    if arm.explore:
        return f"vLLM does not explore, as {arm} does."
    return f"vLLM has no policy {arm}."


def served(label: str, K: int, own: ServeLine | None = None) -> Served:
    """The command that serves an arm, made of the reader's own where it is known. K: positions the drafter drafts."""
    arm, own = arm_of(label), own or ServeLine(MODEL)
    arguments = {name: value for name, value in own.arguments.items() if name != SPECULATIVE}
    if not arm.drafts:
        return Served(
            ServeLine(own.model, arguments, own.environment), "Without a speculative configuration."
        )
    spec = own.speculative | {TOKENS: arm.drafted or K, ADAPTIVE: arm.adaptive}
    spec.pop(BY_LOAD, None)
    said = ""
    if arm.adaptive:
        said = (
            "vLLM takes the online estimator, for a drafter without a confidence head."
            if arm.source == DEFAULT
            else "vLLM takes the head of a drafter that has one."
        )
    return Served(ServeLine(own.model, arguments | {SPECULATIVE: spec}, own.environment), said)


def by_load(choices: Sequence[Choice], own: ServeLine | None = None) -> Served | None:
    """One command for a plan of fixed lengths: vLLM can take a length by the number of requests. None for other plans,
    and for one that is a single length."""
    if len(choices) < 2 or not all(arm_of(each.arm).fixed for each in choices):
        return None
    own, table, begin = own or ServeLine(MODEL), [], 1
    for each, following in zip(choices, [*choices[1:], None], strict=True):
        end = following.first - 1 if following else each.last
        table.append([begin, end, arm_of(each.arm).drafted])
        begin = end + 1
    spec = own.speculative | {TOKENS: max(row[2] or 0 for row in table), ADAPTIVE: False, BY_LOAD: table}
    line = ServeLine(own.model, dict(own.arguments) | {SPECULATIVE: spec}, own.environment)
    return Served(line, "One server for all loads: vLLM takes the length by the number of requests.")
