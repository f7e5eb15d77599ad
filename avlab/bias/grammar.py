"""The grammar of trimming rules: `drawn:0.5` verifies a draft token while its score is 0.5 or more.

    drawn | maximum | entropy | margin | head-drawn | head-prefix   with   :threshold   or   :chance
    random:share    all    none

With `:chance` the score is the probability of being verified. A rule is sound unless its score uses the drawn token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from avlab.bias.exact import Rule
from avlab.bias.trimming import (
    Score,
    by_score,
    drawn_token_probability,
    entropy_certainty,
    fixed,
    maximum_probability,
    threshold,
    top_two_margin,
)
from avlab.speculation.sampling import acceptance_probability

GRAMMAR = (
    "drawn:t, maximum:t, entropy:t, margin:t, head-drawn:t or head-prefix:t with t from 0 to 1 or the word chance, "
    "random:share, all, none"
)


class CaseError(ValueError):
    """A rule or a distribution that makes no case. The message is one sentence that says what to do.

    way_out: "normalise" or "sample" where that would do as well; whoever shows the message says how it is asked for.
    """

    def __init__(self, message: str, way_out: str = ""):
        super().__init__(message)
        self.way_out = way_out


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of rules. score: made from the target's row, which only heads look at."""

    name: str
    sentence: str
    sound: bool
    score: Callable[[np.ndarray], Score]


def _of_the_row(score: Score) -> Callable[[np.ndarray], Score]:
    return lambda target: score


def _head_given_token(target: np.ndarray) -> Score:
    """The best that a head can say once it knows the token: its chance of being accepted."""
    return lambda row, token: float(acceptance_probability(target, row)[token])


def _head_given_prefix(target: np.ndarray) -> Score:
    """The best that a head can say before the draw: the chance that whatever is drawn is accepted."""
    return lambda row, token: float(np.minimum(target, row).sum())


KINDS: dict[str, Kind] = {
    "drawn": Kind(
        "drawn-token probability",
        "q of the token that was drawn",
        False,
        _of_the_row(drawn_token_probability),
    ),
    "head-drawn": Kind(
        "confidence head given the drawn token",
        "a perfect head's acceptance probability of the drawn token",
        False,
        _head_given_token,
    ),
    "maximum": Kind(
        "maximum probability", "the largest q of the row", True, _of_the_row(maximum_probability)
    ),
    "entropy": Kind(
        "entropy",
        "exp(−entropy) of the row: 1 when certain, 1/V when flat",
        True,
        _of_the_row(entropy_certainty),
    ),
    "margin": Kind(
        "top-two margin",
        "the largest q of the row minus the second largest",
        True,
        _of_the_row(top_two_margin),
    ),
    "head-prefix": Kind(
        "confidence head given only the prefix",
        "a perfect head's acceptance probability before the draw",
        True,
        _head_given_prefix,
    ),
}


@dataclass(frozen=True, slots=True)
class Named:
    """A rule with its text, whether it is sound whatever the distributions, and the rule for a target row."""

    text: str
    sound: bool
    make: Callable[[np.ndarray], Rule]


def parse_rule(text: str) -> Named:
    """The rule that a text names. Raises CaseError."""
    kind, colon, value = text.strip().lower().partition(":")
    if kind == "none" and not colon:
        return Named("none", True, lambda target: fixed(0))
    if kind == "all" and not colon:
        return Named("all", True, lambda target: by_score(lambda row, token: 1.0))
    if kind not in (*KINDS, "random"):
        raise CaseError(f"There is no rule {text!r}; a rule is {GRAMMAR}.")
    if not colon or not value:
        raise CaseError(f"The rule {kind!r} needs a number from 0 to 1 behind it, such as {kind}:0.5.")
    if value == "chance" and kind != "random":
        return Named(f"{kind}:chance", KINDS[kind].sound, lambda target: by_score(KINDS[kind].score(target)))
    cut = _share(text, value)
    if kind == "random":
        return Named(f"random:{cut:g}", True, lambda target: by_score(lambda row, token: cut))
    return Named(
        f"{kind}:{cut:g}", KINDS[kind].sound, lambda target: threshold(KINDS[kind].score(target), cut)
    )


def _share(text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number <= 1:
        raise CaseError(
            f"The rule {text!r} has {value!r} where a number from 0 to 1 is due: scores are shares of one."
        )
    return number
