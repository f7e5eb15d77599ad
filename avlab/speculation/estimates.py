"""A step's acceptance estimates, computed once, in the three forms that are asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avlab.speculation.budget import survival
from avlab.speculation.features import LOG_ODDS_LIMIT, probability
from avlab.speculation.features import log_odds as to_log_odds


@dataclass(slots=True, eq=False)
class Estimates:
    """Of B requests and K positions, [B, K] float64 each; nan where nothing was drafted.

    log_odds: what calibration counts by. probability: the chance of a slot given its prefix, which later budgets and
    refits read. survival: their running product, by which slots rank.
    """

    log_odds: np.ndarray
    probability: np.ndarray
    _survival: np.ndarray | None = None

    @property
    def survival(self) -> np.ndarray:
        if self._survival is None:  # not everybody asks
            self._survival = survival(self.probability)
        return self._survival

    @classmethod
    def of(cls, log_odds: np.ndarray) -> Estimates:
        """From log-odds."""
        return cls(log_odds, probability(np.asarray(log_odds, dtype=np.float64)))

    @classmethod
    def of_probability(cls, chance: np.ndarray) -> Estimates:
        """From probabilities, for scores that are no estimator's."""
        return cls(to_log_odds(chance), chance)

    def ending(self, lengths: np.ndarray, depth: int) -> Estimates:
        """These, where request r has only lengths[r] of `depth` drafts: slots behind them are never accepted."""
        slot = np.arange(self.log_odds.shape[1])
        missing = (slot >= lengths[:, None]) & (slot < depth)
        if not missing.any():
            return self
        return Estimates(
            np.where(missing, -LOG_ODDS_LIMIT, self.log_odds), np.where(missing, 0.0, self.probability)
        )

    def __getitem__(self, rows: slice) -> Estimates:
        """Those of some requests."""
        return Estimates(self.log_odds[rows], self.probability[rows])
