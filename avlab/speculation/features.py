"""The feature of a draft row, and the two directions between log-odds and probability.

Functions that the engine also calls on torch tensors take the array module as `xp` (numpy by default);
only operations whose names and arguments both libraries share are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOG_ODDS_LIMIT = 40.0  # features are clamped to plus and minus this, as vLLM does
_SIGMOID_LIMIT = 80.0  # exp(80) still fits in float32, and sigma(-80) is far below any estimate that matters


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What is known of draft slots before they are verified: one array with named columns.

    names: the F features, as in the registry. values: [B, K, F] float64; nan where nothing was drafted, or where the
    drafter cannot tell.
    """

    names: tuple[str, ...]
    values: np.ndarray

    def __getitem__(self, name: str) -> np.ndarray:
        """One feature, [B, K]. Raises KeyError for one that is not recorded."""
        if name not in self.names:
            raise KeyError(f"{name!r} is not among the recorded features: {', '.join(self.names)}")
        return self.values[..., self.names.index(name)]


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
    """As `max_log_odds`, from probabilities or any other weights proportional to them: [..., V] -> [...].

    The maximum's equals count among the others. Each weight keeps its own digits, so nothing is lost near certainty.
    """
    most = xp.amax(weights, -1)
    highest = weights == most[..., None]
    others = xp.where(highest, xp.zeros_like(weights), weights).sum(-1) + (highest.sum(-1) - 1) * most
    smallest, largest = float(np.exp(-LOG_ODDS_LIMIT)), float(np.exp(LOG_ODDS_LIMIT))
    return -xp.log((others / most).clip(smallest, largest))


def probability(log_odds, xp=np):
    """The logistic function, 1 / (1 + exp(-x)), element by element; arrays of any shape in and out.

    With a feature as argument this is the row's maximum probability: the `raw` acceptance estimate.
    """
    return 1.0 / (1.0 + xp.exp(-log_odds.clip(-_SIGMOID_LIMIT, _SIGMOID_LIMIT)))


def log_odds(probability, xp=np):
    """log(p / (1 - p)), clamped to +-40, so that 0 and 1 are allowed; arrays of any shape in and out."""
    with np.errstate(divide="ignore"):
        return (xp.log(probability) - xp.log1p(-probability)).clip(-LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)
