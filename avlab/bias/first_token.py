"""The first token's distribution at one slot, in closed form over any vocabulary: trimmed, or with noise reused."""

from __future__ import annotations

import numpy as np

from avlab.speculation.sampling import acceptance_probability, residual


def first_token(p, q, verified) -> np.ndarray:
    """Distribution [V] of the token at a slot whose draft x is verified with chance verified[x], in closed form.

    p, q: [V]. What acceptance lets through, the corrections, and the target's own draws where nothing was verified.
    """
    p, q, verified = np.asarray(p), np.asarray(q), np.asarray(verified)
    refused = (verified * np.maximum(q - p, 0.0)).sum()
    return verified * np.minimum(p, q) + refused * residual(p, q) + (1.0 - (verified * q).sum()) * p


def first_token_by_shared_noise(p, q, ids) -> np.ndarray:
    """Distribution [V] of the token at a slot that is always verified, when one uniform draws draft and correction.

    p, q: [V]; ids: [Q] the tokens that can be drafted, in the order in which inverse transform runs over them; over
    corrections it runs by token. Exact: between two neighbouring steps of either running sum, draft and correction
    are fixed.
    """
    p, q, ids = np.asarray(p), np.asarray(q), np.asarray(ids)
    drafted, corrected = np.cumsum(q[ids]), np.cumsum(residual(p, q))
    drafted, corrected = drafted / drafted[-1], corrected / corrected[-1]
    edges = np.unique(np.concatenate([[0.0], drafted, corrected]))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    x, y = (
        ids[np.searchsorted(drafted, middle, side="right")],
        np.searchsorted(corrected, middle, side="right"),
    )
    kept = acceptance_probability(p, q)[x]
    return np.bincount(x, width * kept, len(p)) + np.bincount(y, width * (1.0 - kept), len(p))


def first_token_by_shared_race(p, q) -> np.ndarray:
    """Distribution [V] of the token at a slot that is always verified, when draft and correction race with one noise.

    p, q: [V]. Token y has noise E_y ~ Exp(1) and the smallest E_y / q_y is drafted, at a value m ~ Exp(1) that knows
    not which token it was. If that token is refused, every other noise is known to be above q_y m, and beyond it has
    forgotten: E_y = q_y m + Exp(1). In the race of the corrections, by E_y / r_y with r = (p - q)+, y therefore starts
    a_y m late, a_y = q_y / r_y, and finishes at rate r_y. With g(u) the sum of r_z (u - a_z) over a_z < u, it wins with
    chance r_y times the integral of du / (1 + g(u))^2 from a_y on, whichever token was refused.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    r = np.maximum(p - q, 0.0)
    rivals = np.flatnonzero(r)
    rivals = rivals[np.argsort(q[rivals] / r[rivals], kind="stable")]  # in the order in which they start
    if not len(rivals):
        return p
    start, rate = q[rivals] / r[rivals], np.cumsum(r[rivals])
    behind = 1.0 + np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(start))])  # 1 + g where each starts
    ends = np.append(
        1.0 / behind[1:], 0.0
    )  # between two starts g has one slope, and the integral a closed form
    pieces = (1.0 / behind - ends) / rate
    won = np.zeros(len(p))
    won[rivals] = r[rivals] * np.cumsum(pieces[::-1])[::-1]
    return np.minimum(p, q) + r.sum() * won
