"""What the playground shows of a step: every slot with its fate, and the tops of the distributions behind it."""

from typing import TYPE_CHECKING, Protocol

import numpy as np

from avlab.engine.request import Request
from avlab.speculation.sampling import residual, target_distribution
from avlab.wire import frames

if TYPE_CHECKING:  # importing these imports torch
    from avlab.engine.drafts import Drafts
    from avlab.engine.report import StepReport
    from avlab.engine.sampler import LogitRows

TOP = 8  # tokens of a distribution that are shown
HALF = "\ufffd"  # how a decoder shows a part of a character


class Pieces(Protocol):
    """Names tokens."""

    def piece(self, token: int) -> str:
        """The text of a token by itself."""
        ...


class Stream(Protocol):
    """Decodes one request's tokens as they come."""

    def add(self, token: int) -> str:
        """The text that the token completes."""
        ...


def tokens_frame(
    report: "StepReport",
    drafts: "Drafts | None",
    rows: "LogitRows",
    request: Request,
    text: Pieces,
    stream: Stream,
) -> frames.Tokens:
    """A step of the only request in service as a frame.

    drafts, rows: what the step sampled from, as the engine's observer is handed them. stream: this request's decoder,
    which has taken every token so far; it takes this step's.
    """
    new = report.emitted[0][1] if report.emitted else []
    slots = report.slots
    scheduled, admitted, accepted = (
        (int(slots.scheduled[0]), int(slots.admitted[0]), int(slots.accepted[0])) if slots else (0, 0, 0)
    )
    logits = rows.logits.double().cpu().numpy()
    p = target_distribution(logits, request.temperature, request.top_k, request.top_p)  # [rows, V]
    q = drafts.over(p.shape[-1]) if drafts else p[:0]  # [depth, V]
    drawn = drafts.tokens[0].tolist() if drafts else []
    ended = len(new) == accepted  # by an end-of-text among the drafts: nothing was drawn behind it
    fates = [_fate(k, accepted, admitted, ended) for k in range(scheduled)]
    estimates = slots.estimates if slots else None
    draft = [
        frames.Slot(
            token=drawn[k],
            text=text.piece(drawn[k]),
            fate=fate,
            q=float(q[k][drawn[k]]),
            p=float(p[k][drawn[k]]) if k < admitted else None,
            estimate=float(estimates.probability[0, k]) if estimates else None,
            survival=float(estimates.survival[0, k]) if estimates else None,
            draft_top=_top(q[k], text),
            target_top=_top(p[k], text) if k < admitted else [],
        )
        for k, fate in enumerate(fates)
    ]
    own = None
    if new and not ended:
        rejected = accepted < admitted
        fate = "recovered" if rejected else "bonus" if admitted else "sampled"
        row = p[accepted] if slots else p[-1]
        own = frames.Slot(
            token=int(new[-1]),
            text=text.piece(int(new[-1])),
            fate=fate,
            p=float(row[new[-1]]),
            target_top=_top(row, text),
            residual_top=_top(residual(row, q[accepted]), text) if rejected else [],
        )
    return frames.Tokens(
        request=request.id,
        step=report.step,
        tokens=[int(token) for token in new],
        texts=[_shown(token, text, stream) for token in new],
        fates=["accepted"] * accepted + ([own.fate] if own else []),
        draft=draft,
        own=own,
        draft_ms=float(report.ms["draft"]),
        verify_ms=float(report.ms["verify"]),
    )


def _fate(k: int, accepted: int, admitted: int, ended: bool) -> str:
    """What happened to the draft at position k."""
    if k < accepted:
        return "accepted"
    if k >= admitted:
        return "trimmed"
    return "rejected" if k == accepted and not ended else "behind"


def _top(distribution: np.ndarray, text: Pieces) -> list[frames.Choice]:
    """The most likely tokens, most likely first; none that cannot be drawn."""
    order = np.argsort(-distribution, kind="stable")[:TOP]
    return [
        frames.Choice(int(token), text.piece(int(token)), float(distribution[token]))
        for token in order
        if distribution[token] > 0
    ]


def _shown(token: int, text: Pieces, stream: Stream) -> str:
    """The text that a token completes; special tokens by name; nothing for a part of a character."""
    completed, alone = stream.add(token), text.piece(token)
    return completed or ("" if HALF in alone else alone)
