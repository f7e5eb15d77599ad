"""Why an arm lost: the term of the cost that explains it, from the ledger per 1,000 output tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from avlab.experiments.answers import ABAnswer, Ledger, Reason
from avlab.policies.arm import arm_of
from avlab.speculation.calibration import COUNT, POSITIVES, SUM_P

FLAT = 0.02  # of the time, saved by trimming: below it, verifying everything would have cost the same
TABLE_OFF = 0.15  # measured against expected step cost: beyond it budgets were chosen with wrong costs
MISJUDGED, ENOUGH_SLOTS = 0.05, 300  # mean estimate against accepted share, over so many labelled slots
FLAT_SHARE = 0.5  # of the lost time, that drafting or exploring must explain to be named first
PARTS = {
    "prompt_ms": "computing prompts",
    "draft_ms": "drafting",
    "verify_ms": "verification",
    "sample_ms": "sampling",
    "decide_ms": "deciding",
    "other_ms": "everything else",
}


@dataclass(frozen=True, slots=True)
class Position:
    """A draft position: the mean estimate of its labelled slots, and the share of these that was accepted."""

    position: int
    estimate: float
    accepted: float
    slots: float


def by_position(sums: np.ndarray) -> list[Position]:
    """The positions with labelled slots, from calibration sums [K, 128, 5]."""
    count, positives, predicted = (sums[..., field].sum(axis=1) for field in (COUNT, POSITIVES, SUM_P))
    return [Position(k, predicted[k] / n, positives[k] / n, n) for k, n in enumerate(count) if n]


def why(answer: ABAnswer, positions: Mapping[str, Sequence[Position]]) -> list[Reason]:
    """For each adaptive arm that another has beaten, why the fastest of these did. positions: by adaptive arm."""
    found = []
    for row in answer.adaptive:
        beaten = [
            (seen.tokens_per_s or 0.0, arm) for arm, seen in answer.arms.items() if arm in row.beaten_by
        ]
        if not beaten:
            continue
        winner = max(beaten, key=lambda each: each[0])[1]
        mine, other = answer.arms[row.arm].ledger, answer.arms[winner].ledger
        if mine and other:
            term, text = Loss(row.arm, winner, mine, other, positions.get(row.arm, [])).explained()
            found.append(Reason(row.arm, winner, term, text))
    return found


@dataclass(frozen=True, slots=True)
class Loss:
    """An adaptive arm and the arm that has beaten it. mine, other: their ledgers. positions: of the adaptive arm.

    Each term's method gives its sentence where the ledger shows it, else nothing; `explained` asks in the order of
    what is surest.
    """

    arm: str
    winner: str
    mine: Ledger
    other: Ledger
    positions: Sequence[Position]

    def explained(self) -> tuple[str, str]:
        """The term that explains the loss, and its sentence."""
        for term, sentence in (
            ("exploration", self.exploration),
            ("draft cost already spent", self.drafting),
            ("wrong cost table", self.wrong_costs),
            ("poor calibration", self.poor_calibration),
            ("nothing trimmed", self.nothing_trimmed),
            ("flat cost curve", self.flat_costs),
            ("not in the totals", self.not_in_the_totals),
            ("not told", self.not_told),
        ):
            if text := sentence():
                return term, text
        return self.largest_part()

    @property
    def lost(self) -> float:
        """Milliseconds for 1,000 output tokens."""
        return self.mine.total_ms - self.other.total_ms

    @property
    def decides(self) -> bool:
        """Whether costs decide anything: drafts are trimmed, or their depth is chosen."""
        return self.mine.trimmed > 0 or arm_of(self.arm).depth

    @property
    def costs_off(self) -> float:
        """Measured over expected step cost, less 1."""
        expected = self.mine.expected_ms
        return (self.mine.measured_ms or 0.0) / expected - 1 if expected else 0.0

    def more(self, part: str) -> float:
        """By how much a line of the ledger is larger than the winner's."""
        return (self.mine.line(part) or 0.0) - (self.other.line(part) or 0.0)

    def exploration(self) -> str:
        exploring = self.more("explored_ms")
        if self.lost <= 0 or exploring < max(FLAT_SHARE * self.lost, self.more("draft_ms")):
            return ""
        return (
            f"Exploration: {self.arm} verifies {self.mine.explored or 0.0:,.0f} draft tokens beyond its budget per "
            f"1,000 tokens. By its cost table they take {self.mine.explored_ms or 0.0:.0f} ms, of {self.lost:.0f} ms "
            "that it loses in all; that is an upper bound, since some are accepted. Explore less."
        )

    def drafting(self) -> str:
        drafting = self.more("draft_ms")
        if self.lost <= 0 or drafting < FLAT_SHARE * self.lost:
            return ""
        return (
            f"Draft cost already spent: {self.arm} takes {drafting:.0f} ms more for drafting than {self.winner} per "
            f"1,000 tokens, of {self.lost:.0f} ms that it loses in all. Drafting is paid for, however little is "
            "verified."
        )

    def wrong_costs(self) -> str:
        if not self.decides or abs(self.costs_off) <= TABLE_OFF:
            return ""
        return (
            f"Wrong cost table: {self._off()}, so budgets were chosen with wrong costs. Time the steps again under "
            "this load."
        )

    def poor_calibration(self) -> str:
        judged = [row for row in self.positions if row.slots >= ENOUGH_SLOTS]
        worst = max(judged, key=lambda row: abs(row.estimate - row.accepted), default=None)
        if not self.decides or not worst or abs(worst.estimate - worst.accepted) <= MISJUDGED:
            return ""
        return (
            f"Poor calibration at position {worst.position}: estimated {worst.estimate:.2f}, accepted "
            f"{worst.accepted:.2f} over {worst.slots:,.0f} draft tokens, so the budget went to the wrong ones."
        )

    def nothing_trimmed(self) -> str:
        if self.decides:
            return ""
        off = abs(self.costs_off) > TABLE_OFF and self.more("explored_ms") == 0
        perhaps = f" It may trim too little: {self._off()}." if off else ""
        return (
            f"Nothing trimmed: {self.arm} verified every draft token, as a fixed length does, and deciding costs "
            f"{self.mine.decide_ms or 0.0:.0f} ms per 1,000 tokens.{perhaps}"
        )

    def flat_costs(self) -> str:
        saved, total = self.mine.saved_ms or 0.0, self.mine.total_ms
        if self.mine.trimmed <= 0 or saved >= FLAT * total:
            return ""
        return (
            f"Flat cost curve: verifying every draft token would have cost {saved:.0f} ms more per 1,000 tokens, "
            f"{100 * saved / total:.1f} % of the time. Trimming gains little, and deciding costs "
            f"{self.mine.decide_ms or 0.0:.0f} ms."
        )

    def not_in_the_totals(self) -> str:
        if self.lost > 0:
            return ""
        return (
            f"Over all rounds together {self.arm} takes no longer than {self.winner} per 1,000 tokens. It loses most "
            "rounds and gains in a few, so no term of the ledger explains it: look at the rounds."
        )

    def not_told(self) -> str:
        ledgers = ((self.arm, self.mine), (self.winner, self.other))
        untold = [arm for arm, ledger in ledgers if any(ledger.line(part) is None for part in PARTS)]
        if not untold:
            return ""
        return (
            f"{self.arm} loses {self.lost:.0f} ms to {self.winner} per 1,000 tokens. The engine does not tell where "
            f"the time of {' and '.join(untold)} goes."
        )

    def largest_part(self) -> tuple[str, str]:
        """The line of the ledger that is longer by most, and its sentence."""
        part = max(PARTS, key=self.more)
        return PARTS[part], (
            f"The largest part of the loss is {PARTS[part]}: {self.more(part):.0f} ms more than {self.winner} per "
            f"1,000 tokens, of {self.lost:.0f} ms in all."
        )

    def _off(self) -> str:
        measured, expected = self.mine.measured_ms or 0.0, self.mine.expected_ms or 0.0
        return (
            f"steps took {100 * abs(self.costs_off):.0f} % {'more' if self.costs_off > 0 else 'less'} than {self.arm} "
            f"expects ({measured:.1f} ms, not {expected:.1f} ms)"
        )
