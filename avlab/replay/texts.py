"""The order in which a replay's requests meet the texts of a trace."""

from __future__ import annotations

import numpy as np


class TextOrder:
    """Every text once a round, in an order drawn anew for each; `rounds` says how many are over.

    Two orders of one seed are the same, whoever takes from them: common random numbers.
    """

    def __init__(self, texts: np.ndarray, seed: int = 0):
        """texts: the numbers of the texts, as often as each is named."""
        self._texts, self._random = texts, np.random.default_rng([seed, 1])
        self._turn, self._next, self.rounds = self._random.permutation(texts), 0, 0

    def take(self) -> int:
        """The number of the next text."""
        if self._next == len(self._turn):
            self._turn, self._next, self.rounds = self._random.permutation(self._texts), 0, self.rounds + 1
        self._next += 1
        return int(self._turn[self._next - 1])
