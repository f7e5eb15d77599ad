"""A draft drawn for a text that is known already: speculative sampling read in the other direction.

Speculative decoding draws a draft x ~ q, keeps it with chance min(1, p/q), and writes a token of (p - q)+ in its
place where it is refused; the token written is then distributed as p (`sampling`). Here the written token comes
first, t ~ p, and the draft follows: it is t with chance min(1, q(t)/p(t)), else a token of (q - p)+. Both ways give
the pair (draft, written token) the same law: min(p, q) where they are equal, (p - q)+ (q - p)+ / TV(p, q) where they
are not. So a text can be drawn once, and every draft of it, verified to any length, read off afterwards.

Two things follow for whoever replays. A draft that has left the text is drawn from q and knows nothing of what the
text goes on with. And a slot that was not verified must be read from a draft that does not know the text behind it:
in serving the text there is drawn later. Policies that remember estimates of such slots would else be told of the
future; `tests/speculation/test_coupling.py` shows by how much.
"""

from __future__ import annotations

import numpy as np

from avlab.speculation.sampling import draw


def follow_probability(p, q, written) -> np.ndarray:
    """Chance that the draft is the written token, min(1, q/p): p, q [..., V], written [...] token ids -> [...].

    Raises ValueError for a written token that p does not hold: such a text is not the target's.
    """
    at = np.asarray(written)[..., None]
    p, q = (np.take_along_axis(np.asarray(rows, dtype=np.float64), at, axis=-1)[..., 0] for rows in (p, q))
    if not (p > 0).all():
        raise ValueError("a text holds a token that the target's distribution does not")
    return np.minimum(1.0, q / p)


def departure(p, q) -> np.ndarray:
    """Distribution of a draft that is not the written token: (q - p)+ normalised, [..., V] -> [..., V].

    Where q nowhere exceeds p the draft always follows, and q stands in.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    excess = np.maximum(q - p, 0.0)
    mass = excess.sum(axis=-1, keepdims=True)
    return np.where(mass > 0, excess / np.where(mass > 0, mass, 1.0), q)


def draft_of_text(p, q, written, follow_uniform, draw_uniform) -> tuple[np.ndarray, np.ndarray]:
    """Draft tokens [B] and whether each is the written one, [B]; p, q [B, V]; written and uniforms [B].

    The two uniforms are independent of each other and of the draw of the text.
    """
    follows = np.asarray(follow_uniform) < follow_probability(p, q, written)
    return np.where(follows, written, draw(departure(p, q), draw_uniform)), follows
