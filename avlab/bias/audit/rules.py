"""Rules under audit: the engine's own policies, rules of the row, and UNSOUND ones that exist only here.

adaptive, adaptive:head, adaptive:raw, fixed:k, verify:k, none       what serving can be set to
maximum:t, entropy:t, margin:t, head:t, budget:earlier               sound
drawn:t, budget:same-step                                            UNSOUND: they look at coming draws
noise:correction                                                     UNSOUND: noise used twice
"""

from dataclasses import dataclass

import numpy as np
import torch

from avlab.bias.audit.shared_drafter import WatchedDrafter
from avlab.bias.audit.shared_rows import SharedDrafts
from avlab.bias.trimming import by_cost
from avlab.engine import noise
from avlab.engine.drafters.block import HEAD
from avlab.engine.drafts import Drafts
from avlab.engine.engine import Engine
from avlab.policies.arm import Arm, PolicyError, Unknown
from avlab.policies.base import Admission
from avlab.policies.fixed import FixedLength
from avlab.speculation.budget import survival
from avlab.speculation.decision import Decision, Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators.base import Estimator
from avlab.speculation.features import Features, probability
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Refit

SOUND = ("maximum", "entropy", "margin", "head")
PREDICTORS = (*SOUND, "drawn")  # scores of a draft slot; the last looks at the drawn token
RANKS_AS: dict[tuple[str, ...], str] = {
    ("max_log_odds",): "maximum",
    ("head_log_odds",): "head",
}  # by what is read
GRAMMAR = (
    "adaptive[:head|raw], fixed:k, verify:k, none, maximum:t, entropy:t, margin:t, head:t, budget:earlier, and "
    "UNSOUND: "
    "drawn:t, budget:same-step, noise:correction"
)


class AuditError(RuntimeError):
    """An audit that cannot be made. The message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class AuditRule:
    """A rule by its text. kind, value: its parts. arm: the serving policy that it is, or None."""

    text: str
    kind: str
    value: str
    arm: Arm | None

    @property
    def sound(self) -> bool:
        return self.arm is not None or self.kind in SOUND or self.text == "budget:earlier"

    @property
    def predictor(self) -> str | None:
        """Which of `PREDICTORS` the rule trims by; None where it trims by none.

        The online estimator is a rising function of the maximum at each position, and ranks as it does there.
        """
        if self.kind in PREDICTORS:
            return self.kind
        if self.kind == "budget":
            return "maximum"
        return RANKS_AS.get(self.arm.reads) if self.arm else None

    @property
    def uniforms(self) -> noise.Uniforms:
        """The source of the engine's draws under this rule."""
        return recovered_shares_noise if self.kind == "noise" else noise.uniforms

    @property
    def label(self) -> str:
        """How the rule is named wherever its runs appear."""
        return self.text if self.sound else f"UNSOUND {self.text}"


def parse(text: str) -> AuditRule:
    """The rule that a text names. Raises AuditError."""
    text = text.strip()
    kind, _, value = text.partition(":")
    if kind in PREDICTORS:
        try:
            if 0 <= float(value) <= 1:
                return AuditRule(text, kind, value, None)
        except ValueError:
            pass
        raise AuditError(f"The rule {text!r} needs a threshold from 0 to 1, such as {kind}:0.5.")
    if text in ("budget:earlier", "budget:same-step", "noise:correction"):
        return AuditRule(text, kind, value, None)
    try:
        return AuditRule(text, "serving", "", Arm.parse(text))
    except PolicyError:
        raise AuditError(f"There is no rule {text!r} to audit; a rule is {GRAMMAR}.") from None


def install(rule: AuditRule, engine: Engine, drafter: WatchedDrafter) -> None:
    """Have this audit's engine decide by the rule. Only an audit's engine is ever given one that is not sound.

    A rule with a budget needs `ByBudget.set_cost` before it decides.
    """
    if rule.arm is not None:
        engine.set_policy(rule.arm)
    elif rule.kind == "noise":
        engine.policy = FixedLength(Unknown(rule.label), engine.K, engine.K)
    else:
        engine.policy = ByRow(rule, drafter) if rule.kind != "budget" else ByBudget(rule, drafter)


class ByRow:
    """Verifies every request's slots up to the first that scores below the threshold."""

    estimator: Estimator | None = None

    def __init__(self, rule: AuditRule, drafter: WatchedDrafter):
        self.arm, self.rule, self.drafter, self.K = Unknown(rule.label), rule, drafter, drafter.K

    def decide(self, offer: Offer) -> Decision:
        return Decision(
            self.K, self.K, int(offer.scheduled.sum()), np.zeros(len(offer.scheduled), dtype=bool)
        )

    def estimate(self, features: Features) -> Estimates:
        """The scores of this step's draft rows, as if they were probabilities."""
        assert self.drafter.last is not None
        return Estimates.of_probability(scores(self.rule.kind, self.drafter.last))

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        assert estimates is not None  # every step drafts
        lengths = (estimates.probability >= float(self.rule.value)).cumprod(axis=1).sum(axis=1)
        lengths = np.minimum(lengths, offer.scheduled)
        return Admission(lengths, int(lengths.sum()))

    def observe(self, features: Features, estimates: Estimates | None, labels: Labels) -> None:
        """Nothing is learnt."""

    def end_step(self) -> Refit | None:
        return None


class ByBudget(ByRow):
    """A budget for each request by itself under a stepped cost, from this step's maxima or from the step before's."""

    def set_cost(self, all_drafts: float) -> None:
        """One draft is to cost as much as all of them: 1 without drafts, else this. Not convex."""
        self.cost = (1.0, *[all_drafts] * self.K)

    def estimate(self, features: Features) -> Estimates:
        assert self.drafter.last is not None
        return Estimates.of_probability(scores("maximum", self.drafter.last))

    def admit(self, decision: Decision, estimates: Estimates | None, offer: Offer) -> Admission:
        assert estimates is not None  # every step drafts
        earlier = np.where(np.isnan(offer.earlier), 1.0, offer.earlier)
        basis = estimates.survival if self.rule.value == "same-step" else survival(earlier)
        best = by_cost(self.cost)
        lengths = np.minimum([best(row[None]) for row in basis], offer.scheduled)
        return Admission(lengths, int(lengths.sum()))


def scores(kind: str, drafts: Drafts) -> np.ndarray:
    """Scores [B, K] of draft rows."""
    rows = drafts.draft_probs
    assert rows is not None and drafts.vocabulary is not None
    if kind == "head":
        if HEAD not in drafts.features.names:
            raise AuditError("This drafter has no confidence head: audit another rule than head:t.")
        return probability(drafts.features[HEAD])
    if isinstance(drafts, SharedDrafts):  # each distinct row is looked at once
        table, place = drafts.draft_probs, drafts.place
    else:
        B, depth, _ = rows.shape
        table, place = rows.flatten(0, 1), torch.arange(B * depth, device=rows.device).view(B, depth)
    if kind == "drawn":
        score = table[place, drafts.vocabulary.column[drafts.tokens]]
    elif kind == "maximum":
        score = table.amax(1)[place]
    elif kind == "margin":
        top = table.topk(2, dim=1).values
        score = (top[:, 0] - top[:, 1])[place]
    else:
        score = torch.special.entr(table).sum(1).neg().exp()[place]
    return score.double().cpu().numpy()


def recovered_shares_noise(seeds: np.ndarray, stream: int, counters: np.ndarray, width: int) -> np.ndarray:
    """UNSOUND: the target's token is drawn with the noise of the step's first draft token."""
    return noise.uniforms(seeds, noise.DRAFT if stream == noise.TOKEN else stream, counters, width)
