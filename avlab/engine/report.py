"""What a step says of itself: the report, and its raw draft slots. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from avlab.engine.request import Finished, Request
from avlab.policies.base import Admission
from avlab.speculation.estimates import Estimates
from avlab.speculation.features import Features
from avlab.speculation.regression import Refit

if TYPE_CHECKING:  # importing these imports torch
    from avlab.engine.drafts import Drafts
    from avlab.engine.sampler import LogitRows

PHASES = ("draft", "verify", "sample", "decide")


@dataclass(slots=True)
class Slots:
    """The raw draft slots of a step, [B, K] or [B]: what happened to every scheduled draft. kind: of the requests, as
    text.

    estimates: None where the policy makes none. label: 1 accepted, 0 rejected, -1 censored.
    """

    request: np.ndarray
    kind: np.ndarray
    temperature: np.ndarray
    scheduled: np.ndarray
    admitted: np.ndarray
    accepted: np.ndarray
    features: Features
    estimates: Estimates | None
    label: np.ndarray
    tokens: np.ndarray


@dataclass(slots=True)
class StepReport:
    """Everything one step did. Milliseconds by phase; vectors by position have K entries.

    surplus: drafts accepted beyond what the acceptance probabilities of these drafts, min(1, p/q), make expected, as
    they were before an end of text cut any off; its mean is 0 whatever the policy. nan where the engine does not tell.
    counted: whether it is a step of the block under way; an engine that works by itself may tell of one before it.
    """

    step: int
    arm: str
    running: int
    waiting: int
    emitting: int = 0
    prompt_tokens: int = 0
    target_tokens: int = 0
    drafted: int = 0
    tokens: int = 0
    surplus: float = float("nan")
    admission: Admission | None = None
    slots: Slots | None = None
    emitted: list[tuple[Request, list[int]]] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    refit: Refit | None = None
    ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    counted: bool = True


# Is handed a step's report, its drafts if it made any, and the rows of logits that it sampled from.
Observer = Callable[[StepReport, "Drafts | None", "LogitRows"], None]
