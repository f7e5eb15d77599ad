"""A trace from acceptance rates by position alone: no text and no draft, but exactly these rates, and a chosen AUC.

The binormal model of signal detection (Green and Swets 1966): at each slot an evidence is drawn, N(+d/2, 1) where the
slot will be accepted and N(-d/2, 1) where not. d = sqrt(2) Phi^-1(AUC) gives the AUC; with prior odds from the rate,
the log-odds of acceptance given the evidence is logit(rate) + d * evidence, which is the feature. Slots of one request
may be alike: their evidences share a normal part. Then requests that get further are the easier ones, and the evidence
is drawn so that the rate among the drafts that reach a position is still the rate that was asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from avlab.replay.about import PARAMETRIC, About, TraceError
from avlab.replay.declared import MOST_K
from avlab.replay.trace import Trace
from avlab.speculation.features import LOG_ODDS_LIMIT

MOST_TEXTS, MOST_TOKENS = 100_000, 100_000
NODES = 80  # of the quadrature over the part that a request's slots share
GRID = np.linspace(-10.0, 10.0, 4001)  # of evidence, and of the latent it is drawn by
REACHED = 1e-12  # positions that fewer drafts reach are drawn as the one before


@dataclass(frozen=True, slots=True)
class Acceptance:
    """rates: K chances that a slot is accepted given that those before it were. auc: of the feature at each position.

    correlation: of the evidences of a request's slots, 0 to below 1. source: whose rates, in a few words.
    """

    rates: tuple[float, ...]
    auc: float = 0.8
    correlation: float = 0.0
    source: str = "rates as given"

    def check(self) -> None:
        """Raises TraceError."""
        if not 0 < len(self.rates) <= MOST_K or not all(0 <= rate <= 1 for rate in self.rates):
            raise TraceError(f"Rates are 1 to {MOST_K} numbers from 0 to 1, one for each draft position.")
        if not 0.5 <= self.auc < 1:
            raise TraceError(f"The AUC is {self.auc:g}; it must be at least 0.5 and below 1.")
        if not 0 <= self.correlation < 1:
            raise TraceError(f"The correlation is {self.correlation:g}; it must be at least 0 and below 1.")


def conditional(survival: Sequence[float]) -> tuple[float, ...]:
    """Rates given that all before were accepted, from rates of being accepted at all: [K] -> K.

    Raises TraceError where these rise.
    """
    before, found = 1.0, []
    for share in survival:
        if not 0 <= share <= before + 1e-9:
            raise TraceError("Shares of drafts accepted up to a position must be 0 to 1 and never rise.")
        found.append(min(1.0, share / before) if before else 0.0)
        before = min(share, before)
    return tuple(found)


def parametric(
    acceptance: Acceptance,
    texts: int = 200,
    tokens: int = 256,
    prompt_tokens: int = 256,
    seed: int = 0,
) -> Trace:
    """A trace of texts of so many output tokens each. Raises TraceError."""
    from scipy.special import expit  # takes a fifth of a second: the command line must not wait for it

    acceptance.check()
    if not (1 <= texts <= MOST_TEXTS and 2 <= tokens <= MOST_TOKENS and 1 <= prompt_tokens <= MOST_TOKENS):
        raise TraceError(
            f"A parametric trace has 1 to {MOST_TEXTS:,} texts of 2 to {MOST_TOKENS:,} tokens, and prompts of 1 to "
            f"{MOST_TOKENS:,}."
        )
    K, n, rng = len(acceptance.rates), tokens - 1, np.random.default_rng(seed)
    shared = np.repeat(rng.standard_normal(texts), n)[:, None]
    rho = acceptance.correlation
    latent = np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.standard_normal((texts * n, K))
    odds = _log_odds(acceptance, latent)
    chance = expit(odds)
    left = np.tile(np.arange(n, 0, -1), texts)
    accepted = np.minimum((rng.random(odds.shape) < chance).cumprod(1).sum(1), left)
    note = f"{acceptance.source}, AUC {acceptance.auc:g}, correlation {rho:g}"
    about = About(
        K, ("max_log_odds",), "no model", "no drafter", seed, 1.0, 1.0, 0, origin=PARAMETRIC, note=note
    )
    return Trace(
        about=about,
        kind=np.array(["parametric"] * texts, dtype=object),
        prompt_tokens=np.full(texts, prompt_tokens),
        output_tokens=np.full(texts, tokens),
        limit=np.full(texts, tokens),
        first=np.arange(texts) * n,
        accepted=accepted,
        features=odds[..., None].clip(-LOG_ODDS_LIMIT, LOG_ODDS_LIMIT).astype(np.float32),
        acceptance=chance.astype(np.float32),
    )


def _log_odds(acceptance: Acceptance, latent: np.ndarray) -> np.ndarray:
    """The log-odds of each slot from its latent, standard normal over all drafts: [A, K] -> [A, K]."""
    from scipy.special import expit, logit, ndtr, ndtri

    distance, rho = np.sqrt(2) * ndtri(acceptance.auc), acceptance.correlation
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    rest = weights / weights.sum()
    weights = rest  # of requests, by their shared part, among the drafts that reach a position
    inner = np.sqrt(1 - rho)
    found = np.empty_like(latent)
    for k, rate in enumerate(acceptance.rates):
        # evidence by rank: the latent's rank among the drafts that get here is the evidence's in the binormal mixture
        rank = (weights * ndtr((GRID[:, None] - np.sqrt(rho) * nodes) / inner)).sum(1)
        mixture = rate * ndtr(GRID - distance / 2) + (1 - rate) * ndtr(GRID + distance / 2)
        evidence = np.interp(rank, mixture, GRID)  # [grid], of each latent of the grid
        log_odds = logit(np.clip(rate, 1e-18, 1 - 1e-16)) + distance * evidence
        found[:, k] = np.interp(latent[:, k], GRID, log_odds)
        # the chance of requests with each shared part: the mean over the rest of the latent
        own = np.interp(np.sqrt(rho) * nodes[:, None] + inner * nodes[None, :], GRID, expit(log_odds))
        reached = weights * (own * rest).sum(1)
        if reached.sum() > REACHED:
            weights = reached / reached.sum()
    return found
