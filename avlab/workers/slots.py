"""What the playground shows of a step: every slot with its fate, and the tops of the distributions behind it."""

from typing import Any

import numpy as np

from avlab.engine.request import Request
from avlab.speculation.sampling import residual, target_distribution
from avlab.wire import messages as m

TOP = 8  # tokens of a distribution that are shown
HALF = "\ufffd"  # how a decoder shows a part of a character


def tokens_frame(report: Any, request: Request, text: Any, stream: Any) -> m.Tokens:
    """A step of the only request in service as a frame. The report must have kept its distributions.

    stream: this request's decoder, which has taken every token so far; it takes this step's.
    """
    new = report.emitted[0][1] if report.emitted else []
    drafts, logits = report.distributions
    slots = report.slots
    scheduled, admitted, accepted = (
        (int(slots.scheduled[0]), int(slots.admitted[0]), int(slots.accepted[0])) if slots else (0, 0, 0)
    )
    p = target_distribution(_array(logits), request.temperature, request.top_k, request.top_p)  # [rows, V]
    q = _draft_rows(drafts, p.shape[-1])[:scheduled]  # [scheduled, V]
    ended = len(new) == accepted  # by an end-of-text among the drafts: nothing was drawn behind it
    fates = [_fate(k, accepted, admitted, ended) for k in range(scheduled)]
    estimate = None if not slots or slots.estimate is None else slots.estimate[0]
    survival = None if estimate is None else np.cumprod(estimate)
    draft = [
        m.Slot(
            token=int(slots.tokens[0, k]),
            text=text.piece(int(slots.tokens[0, k])),
            fate=fate,
            q=float(q[k][slots.tokens[0, k]]),
            p=float(p[k][slots.tokens[0, k]]) if k < admitted else None,
            estimate=None if estimate is None else float(estimate[k]),
            survival=None if survival is None else float(survival[k]),
            draft_top=_top(q[k], text),
            target_top=_top(p[k], text) if k < admitted else [],
        )
        for k, fate in enumerate(fates)
    ]
    own = None
    if new and not ended:
        rejected = accepted < admitted
        fate = "correction" if rejected else "bonus" if admitted else "sampled"
        row = p[accepted] if slots else p[-1]
        own = m.Slot(
            token=int(new[-1]),
            text=text.piece(int(new[-1])),
            fate=fate,
            p=float(row[new[-1]]),
            target_top=_top(row, text),
            residual_top=_top(residual(row, q[accepted]), text) if rejected else [],
        )
    return m.Tokens(
        request=request.id,
        step=report.step,
        tokens=[int(token) for token in new],
        texts=[_shown(token, text, stream) for token in new],
        fates=["accepted"] * accepted + ([own.fate] if own else []),
        draft=draft,
        own=own,
    )


def _fate(k: int, accepted: int, admitted: int, ended: bool) -> str:
    """What happened to the draft at position k."""
    if k < accepted:
        return "accepted"
    if k >= admitted:
        return "trimmed"
    return "rejected" if k == accepted and not ended else "behind"


def _array(values: Any) -> np.ndarray:
    """A tensor of any device and dtype, or an array, as a float64 array."""
    return np.asarray(values.double().cpu() if hasattr(values, "cpu") else values, dtype=np.float64)


def _draft_rows(drafts: Any, V: int) -> np.ndarray:
    """The only request's draft distributions over the target's vocabulary, [depth, V]; certain drafts are one-hot."""
    if drafts is None:
        return np.zeros((0, V))
    tokens = np.asarray(_array(drafts.tokens)[0], dtype=np.int64)
    rows = np.zeros((len(tokens), V))
    if drafts.rows is None:
        rows[np.arange(len(tokens)), tokens] = 1.0
    elif drafts.vocabulary is None:
        rows[:] = _array(drafts.rows)[0]
    else:
        rows[:, np.asarray(_array(drafts.vocabulary.ids), dtype=np.int64)] = _array(drafts.rows)[0]
    return rows


def _top(distribution: np.ndarray, text: Any) -> list[m.Choice]:
    """The most likely tokens, most likely first; none that cannot be drawn."""
    order = np.argsort(-distribution, kind="stable")[:TOP]
    return [
        m.Choice(int(token), text.piece(int(token)), float(distribution[token]))
        for token in order
        if distribution[token] > 0
    ]


def _shown(token: int, text: Any, stream: Any) -> str:
    """The text that a token completes; special tokens by name; nothing for a part of a character."""
    completed, alone = stream.add(token), text.piece(token)
    return completed or ("" if HALF in alone else alone)
