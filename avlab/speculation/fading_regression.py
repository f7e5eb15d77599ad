"""A logistic regression with D shared slopes and N intercepts whose sums fade instead of beginning anew.

vLLM zeroes a round's sums after one Newton step. Here they stay: the likelihood of older labels is kept as the
parabola that it was at the last coefficients, moved along to the new ones, and weighs less with every refit. Steps are
cut as in `estimators.cut`, so that a slope may shrink but not vanish. With D = 1 and N = K this is vLLM's model; N may
also count positions of several classes of requests.
"""

from __future__ import annotations

import numpy as np

from avlab.speculation.regression import DAMPING, RIDGE

TOGETHER = 2048  # labelled slots that are summed at once
FADE = 0.7  # of the older sums at each refit; chosen on the shipped traces


class FadingRegression:
    """slopes [D], intercepts [N]. Sums: A [D, D], B [D, N], C [N] of the curvature; G [D], H [N] of the residual; n."""

    def __init__(self, slopes: np.ndarray, intercepts: np.ndarray):
        self.slopes, self.intercepts = np.array(slopes, float), np.array(intercepts, float)
        D, N = len(self.slopes), len(self.intercepts)
        self.A, self.B, self.C = np.zeros((D, D)), np.zeros((D, N)), np.zeros(N)
        self.G, self.H, self.n = np.zeros(D), np.zeros(N), np.zeros(N)
        self._rows = N * np.arange(D + 3)
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._slots = 0  # of those

    def predict(self, features: np.ndarray, where: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Log-odds of slots: features [..., D], where: the intercept of each -> [...]."""
        return features @ self.slopes + self.intercepts[where]

    def add(self, features: np.ndarray, estimate: np.ndarray, label: np.ndarray, where: np.ndarray) -> None:
        """Labelled slots [S]: features [S, D], the estimates that were in force, labels, intercepts' numbers.

        They are summed some steps later, many at once: that takes a third of the time. The arrays are kept till then.
        """
        self._waiting.append((features, estimate, label, where))
        self._slots += len(label)
        if self._slots >= TOGETHER:
            self._sum_up()

    @property
    def labels(self) -> np.ndarray:
        """Labels by intercept, [N]; older ones weigh less."""
        self._sum_up()
        return self.n

    def _sum_up(self) -> None:
        if not self._waiting:
            return
        features, estimate, label, where = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting, self._slots = [], 0
        N, D = len(self.intercepts), len(self.slopes)
        rows = np.empty((D + 3, len(label)))
        rows[D], rows[D + 1], rows[D + 2] = estimate * (1.0 - estimate), label - estimate, 1.0
        weighted = np.multiply(features.T, rows[D], out=rows[:D])  # [D, S]
        self.A += weighted @ features
        self.G += rows[D + 1] @ features
        cells = where + self._rows[:, None]
        sums = np.bincount(cells.ravel(), rows.ravel(), len(rows) * N).reshape(-1, N)  # of all rows at once
        self.B += sums[:D]
        self.C += sums[D]
        self.H += sums[D + 1]
        self.n += sums[D + 2]

    def refit(self, fade: float = FADE) -> None:
        """One damped Newton step, cut; then the sums are carried to the new coefficients, and fade."""
        self._sum_up()
        c, total = self.C + RIDGE, self.n.sum()
        schur = self.A + RIDGE * np.eye(len(self.slopes)) - (self.B / c) @ self.B.T
        try:
            step = np.linalg.solve(schur, self.G - self.B @ (self.H / c)) * total / (total + DAMPING)
        except np.linalg.LinAlgError:
            step = np.zeros_like(self.slopes)
        step = np.clip(np.where(np.isfinite(step), step, 0.0), -self.slopes / 2, self.slopes)
        shift = np.clip((self.H - step @ self.B) / c * self.n / (self.n + DAMPING), -1.0, 1.0)
        self.slopes, self.intercepts = self.slopes + step, self.intercepts + shift
        self.G = self.G - self.A @ step - self.B @ shift
        self.H = self.H - step @ self.B - self.C * shift
        for sums in (self.A, self.B, self.C, self.G, self.H, self.n):
            sums *= fade
