"""The features of a draft slot, by name, and the two directions between log-odds and probability.

Functions that the engine also calls on torch tensors take the array module as `xp` (numpy by default);
only operations whose names and arguments both libraries share are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

LOG_ODDS_LIMIT = 40.0  # features are clamped to plus and minus this, as vLLM does
_SIGMOID_LIMIT = 80.0  # exp(80) still fits in float32, and sigma(-80) is far below any estimate that matters


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What is known of draft slots before they are verified: one array with named columns.

    names: the F features, as in the registry. values: [B, K, F] float64; nan where nothing was drafted, or where the
    drafter cannot tell. classes: [B] what class of request each is (its sampling, its kind), where that is known;
    known before any draft.
    """

    names: tuple[str, ...]
    values: np.ndarray
    classes: Sequence[str] | np.ndarray | None = None

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray]) -> Features:
        """From columns [B, K] by name."""
        return cls(tuple(columns), np.stack(list(columns.values()), axis=-1))

    def __getitem__(self, name: str) -> np.ndarray:
        """One feature, [B, K]. Raises KeyError for one that is not recorded."""
        if name not in self.names:
            raise KeyError(f"{name!r} is not among the recorded features: {', '.join(self.names)}")
        return self.values[..., self.names.index(name)]

    def only(self, names: Sequence[str]) -> Features:
        """These of the features. Raises KeyError for one that is not recorded. One alone is a view, not a copy."""
        if tuple(names) == self.names:
            return self
        if len(names) == 1 and names[0] in self.names:
            at = self.names.index(names[0])
            return Features(tuple(names), self.values[..., at : at + 1], self.classes)
        return Features(tuple(names), np.stack([self[name] for name in names], axis=-1), self.classes)

    def and_also(self, name: str, column: np.ndarray) -> Features:
        """These features and one more, [B, K], behind them."""
        return Features(
            (*self.names, name), np.concatenate([self.values, column[..., None]], axis=-1), self.classes
        )

    def widen(self, K: int) -> Features:
        """These features of [B, depth] slots as [B, K], nan behind what was drafted."""
        B, depth, F = self.values.shape
        if depth == K:
            return self
        wide = np.full((B, K, F), np.nan)
        wide[:, :depth] = self.values
        return Features(self.names, wide, self.classes)


class RowFormula(Protocol):
    """A feature of a draft row, from what was drawn from it."""

    def __call__(self, weights, drawn, xp=np):
        """weights: [..., V] proportional to the row's probabilities; drawn: [...] the drawn token's -> [...].

        Of a greedy request the weights are those of the unscaled row, before it is made certain.
        """
        ...


@dataclass(frozen=True, slots=True)
class Feature:
    """One entry of the registry.

    name: in settings, messages and the database. title: in charts. definition: one line, with its source. of_row: its
    formula; None where the drafter itself tells. sound: False where it looks at the drawn token: it is recorded to be
    judged, and to decide by it bends the output.
    """

    name: str
    title: str
    definition: str
    of_row: RowFormula | None = None
    sound: bool = True


def max_log_odds(logits, temperature=None, xp=np):
    """Log-odds of the most likely token of each draft row: a property of the row, not of the drawn token.

    f = -log of the sum over all tokens but the most likely of exp(z_x - z_max), clamped to +-40. Summing the
    other tokens, rather than taking 1 from the whole sum, keeps every digit near certainty.

    logits: [..., V], float32 or float64, at least one finite entry a row; -inf marks tokens left out.
    temperature: None, a number, or an array that broadcasts to [...]; 0 means greedy: the row stays unscaled.
    xp: numpy, or torch for tensors on any device.
    Returns the features, [...]. Source: vLLM 0.33, acceptance estimator (with its cancellation repaired).
    """
    if temperature is not None:
        scale = xp.asarray(temperature)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale))
        logits = logits / xp.broadcast_to(scale, logits.shape[:-1])[..., None]
    return log_odds_of_maximum(xp.exp(logits - xp.amax(logits, -1)[..., None]), xp)


def log_odds_of_maximum(weights, xp=np):
    """As `max_log_odds`, from probabilities or any other weights proportional to them: [..., V] -> [...]."""
    return log_odds_of(weights, xp.amax(weights, -1), xp)


def log_odds_of(weights, one, xp=np):
    """Log-odds of a token of weight `one` [...] in its row of weights [..., V], clamped to +-40.

    Its equals count among the others. Each weight keeps its own digits, so nothing is lost near certainty.
    """
    alike = weights == one[..., None]
    others = xp.where(alike, xp.zeros_like(weights), weights).sum(-1) + (alike.sum(-1) - 1) * one
    smallest, largest = float(np.exp(-LOG_ODDS_LIMIT)), float(np.exp(LOG_ODDS_LIMIT))
    return -xp.log((others / one).clip(smallest, largest))


def negative_entropy(weights, xp=np):
    """Sum of q log q of each row, nats, at most 0: weights [..., V] -> [...]."""
    whole = weights.sum(-1)
    some = xp.where(weights > 0, weights, xp.ones_like(weights))
    return (some * xp.log(some)).sum(-1) / whole - xp.log(whole)


def top_two_margin(weights, xp=np):
    """log q of the most likely token minus log q of the second, nats, at most 40: weights [..., V] -> [...]."""
    most = xp.amax(weights, -1)
    highest = weights == most[..., None]
    below = xp.amax(xp.where(highest, xp.zeros_like(weights), weights), -1)
    second = xp.where(highest.sum(-1) > 1, most, below)
    return -xp.log((second / most).clip(float(np.exp(-LOG_ODDS_LIMIT)), 1.0))


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(
            "max_log_odds",
            "log-odds of the draft row's maximum probability",
            "log(q / (1 - q)) of the most likely token's probability q, clamped to ±40 (vLLM 0.33); of a drafter "
            "without logits log((c + 1) / (n - c + 1)), where c of n earlier continuations have the drafted token",
            lambda weights, drawn, xp=np: log_odds_of_maximum(weights, xp),
        ),
        Feature(
            "negative_entropy",
            "negative entropy of the draft row, nats",
            "Σ q log q over the draft vocabulary, nats (Shannon 1948)",
            lambda weights, drawn, xp=np: negative_entropy(weights, xp),
        ),
        Feature(
            "top_two_margin",
            "log-probability of the draft row's first token over its second, nats",
            "log q of the most likely token minus log q of the second, nats, at most 40 (margin sampling, "
            "Scheffer et al. 2001)",
            lambda weights, drawn, xp=np: top_two_margin(weights, xp),
        ),
        Feature(
            "head_log_odds",
            "log-odds of the drafter's confidence head",
            "the logit of the head that the drafter was trained with, clamped to ±40 (DSpark, arXiv 2607.05147)",
        ),
        Feature(
            "match_length",
            "length of the match, tokens",
            "of a drafter without logits: how many tokens before the draft are found again where it was copied from",
        ),
        Feature(
            "match_source",
            "where the draft was copied from",
            "of a drafter without logits: 0 the request's own text, 1 an answer to an earlier request",
        ),
        Feature(
            "drawn_log_odds",
            "log-odds of the drawn token (UNSOUND)",
            "log(q / (1 - q)) of the drawn token's probability q, clamped to ±40; to decide by it bends the output",
            log_odds_of,
            sound=False,
        ),
    )
}
DEFAULT_FEATURES = ("max_log_odds", "head_log_odds")


def known_features(names: Sequence[str]) -> tuple[str, ...]:
    """The names given, each once. Raises ValueError for one that is not in the registry."""
    if unknown := [name for name in names if name not in FEATURES]:
        raise ValueError(f"there is no feature {unknown[0]!r}; known are {', '.join(FEATURES)}.")
    return tuple(dict.fromkeys(names))


def probability(log_odds, xp=np):
    """The logistic function, 1 / (1 + exp(-x)), element by element; arrays of any shape in and out.

    With a feature as argument this is the row's maximum probability: the `raw` acceptance estimate.
    """
    if not isinstance(log_odds, np.ndarray) or not log_odds.ndim:
        return 1.0 / (1.0 + xp.exp(-log_odds.clip(-_SIGMOID_LIMIT, _SIGMOID_LIMIT)))
    odds = np.minimum(log_odds, _SIGMOID_LIMIT)  # the same, in one array
    np.maximum(odds, -_SIGMOID_LIMIT, out=odds)
    np.negative(odds, out=odds)
    np.exp(odds, out=odds)
    odds += 1.0
    return np.divide(1.0, odds, out=odds)


def log_odds(probability, xp=np):
    """log(p / (1 - p)), clamped to +-40, so that 0 and 1 are allowed; arrays of any shape in and out."""
    with np.errstate(divide="ignore"):
        return (xp.log(probability) - xp.log1p(-probability)).clip(-LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)
