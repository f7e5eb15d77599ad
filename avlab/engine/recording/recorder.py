"""Recording a trace: texts of the target, and at every position of them a draft that is drawn jointly with the text.

The law is `speculation.coupling`'s; here are its two draws on tensors (a test holds them equal). Drafts at many anchors
of a text go through drafter and target together, as branches of it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from avlab.engine import branches
from avlab.engine.branches import Branches
from avlab.engine.drafters.along import ReadText, Recordable, Slots
from avlab.engine.drafters.draws import Draws
from avlab.engine.drafts import DraftVocabulary
from avlab.engine.recording.chances import TOGETHER, Chances, Sampling, chances
from avlab.engine.recording.texts import Text
from avlab.engine.rows import draw
from avlab.engine.target import Target

ANCHORS = 64  # drafted for at once


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What is recorded of the A anchors of one text; as in `Trace`."""

    accepted: np.ndarray
    features: np.ndarray
    acceptance: np.ndarray
    behind: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class TextRead:
    """A text as the target reads it. p: of the token behind each of the n - 1 anchors. written: [n - 1] the chance of
    the text's own token; column: [n - 1] where that stands in the draft vocabulary, or -1."""

    text: ReadText
    first: int  # position of the first anchor
    p: Chances
    written: Tensor
    column: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Drafted:
    """Drafts at B anchors. tokens: [B, K]; q: [B, K, Q]; acceptance: nan where the target must still be asked."""

    tokens: Tensor
    q: Tensor
    accepted: Tensor
    features: Tensor
    acceptance: Tensor
    behind: Tensor


class Read(Protocol):
    """What reading a text asks of a drafter. vocabulary: None where it is the target's own."""

    state_layers: tuple[int, ...]

    @property
    def vocabulary(self) -> DraftVocabulary | None: ...


class TextReader:
    """Has the target read texts, and says what is behind each of their tokens, over what a drafter can say."""

    def __init__(self, target: Target, drafter: Read, sampling: Sampling):
        self.target, self.sampling, self.layers = target, sampling, drafter.state_layers
        self.cache = target.new_cache(1)
        every = torch.arange(target.config.vocabulary)
        known = drafter.vocabulary
        self.ids, self.column_of = (every, every) if known is None else (known.ids, known.column)

    def read(self, text: Text) -> TextRead:
        """One text, whose keys and values then stand in the cache."""
        tokens = torch.tensor(text.prompt + text.output)
        batch = self.target.batch([0], [0], [len(tokens) - 1])
        final, tapped = self.target.forward(tokens[:-1], batch, self.cache, self.layers)
        first = len(text.prompt)
        written = tokens[first + 1 :]
        parts, own = [], []
        for some, theirs in zip(final[first:].split(TOGETHER), written.split(TOGETHER), strict=True):
            probs = self.sampling.probs(self.target.logits(some))
            parts.append(Chances.of(probs, self.ids, self.column_of))
            own.append(probs.probability(torch.arange(len(some)), theirs))
        read = ReadText(tokens, torch.cat([final, *tapped], 1), self.cache, 0)
        return TextRead(read, first, Chances.joined(parts), torch.cat(own), self.column_of[written])


class Recorder:
    """Records texts with one target and one drafter, all of them drafted for under one sampling."""

    def __init__(self, target: Target, drafter: Recordable, sampling: Sampling, seed: int):
        self.target, self.drafter, self.K, self.sampling, self.seed = (
            target,
            drafter,
            drafter.K,
            sampling,
            seed,
        )
        self.reader = TextReader(target, drafter, sampling)
        self.ids, self.column_of = self.reader.ids, self.reader.column_of
        self.prefix = branches.text_of(self.reader.cache, 0, range(target.config.layers))

    @torch.inference_mode()
    def record(self, text: Text, draw: int = 0) -> Recorded:
        """Drafts at every position of a text. Their noise is the text's own: its seed's and the recorder's.

        draw: which of several recordings of the text; each has other noise.
        """
        seeds = [self.seed, text.seed] + [draw] * (draw > 0)
        read, noise = self.reader.read(text), np.random.default_rng(seeds)
        drafter, n = self.drafter.follow(read.text), len(read.written)
        parts = []
        for anchors in torch.arange(n).tensor_split(-(-n // ANCHORS)):
            drafted = self._draft(read, anchors, drafter.begin(read.first + anchors), noise)
            self._ask(read, anchors, drafted)
            parts.append(drafted)
        names = ("accepted", "features", "acceptance", "behind")
        return Recorded(*(torch.cat([getattr(part, name) for part in parts]).numpy() for name in names))

    def _draft(self, read: TextRead, anchors: Tensor, slots: Slots, noise: np.random.Generator) -> _Drafted:
        """Drafts at these anchors of a text, [B], and of each those that leave it by being trimmed."""
        drafter, K, B, F = self.drafter, self.K, len(anchors), len(self.drafter.features)
        greedy = self.sampling.temperature == 0
        nothing = torch.nan
        features, behind = torch.full((B, K, F), nothing), torch.full((B, K, K, F), nothing)
        acceptance, accepted = torch.full((B, K), nothing), torch.zeros(B, dtype=torch.long)
        tokens, rows_of_q = torch.empty(B, K, dtype=torch.long), []
        left = len(read.written) - anchors  # output tokens behind an anchor
        # rows: the B drafts, then those that knew the text up to slot `since` and do no more
        owner, since = torch.arange(B), torch.full((B,), K)
        previous, state = read.text.tokens[read.first + anchors], None
        for k in range(K):
            state, logits = slots.next(k, owner, previous, state)
            draws = Draws(
                torch.full((len(owner),), self.sampling.temperature),
                torch.from_numpy(noise.random((len(owner), 1))),
                drafter.features,
            )
            columns = draws.draw(logits)
            q, free = draws.draft_probs[:B, 0], columns[:B].clone()
            on = accepted == k
            inside = (on & (left > k)).nonzero().squeeze(1)
            if len(inside):
                here = anchors[inside] + k
                p = read.p.take(here)
                acceptance[inside, k] = p.overlap(q[inside])
                follows, taken = self._coupled(p, q[inside], read.written[here], read.column[here], noise)
                columns[inside] = taken
                accepted[inside] += follows
            draws.instead(columns)
            told = _told(draws, slots.own_features(k, owner, state))
            features[:, k] = told[:B]
            behind[owner[B:], since[B:], k] = told[B:]
            previous = self.ids[columns]
            tokens[:, k] = previous[:B]
            rows_of_q.append(q)
            if not greedy and k + 1 < K:  # a greedy draft goes on as it would
                leaving = on.nonzero().squeeze(1)
                owner, since = torch.cat([owner, leaving]), torch.cat([since, torch.full_like(leaving, k)])
                previous = torch.cat([previous, self.ids[free[leaving]]])
                state = torch.cat([state, state[leaving]])
        q = torch.stack(rows_of_q, 1)
        return _Drafted(tokens, q, accepted, features, acceptance, behind)

    def _coupled(
        self, p: Chances, q: Tensor, written: Tensor, column: Tensor, noise: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Whether each draft is the text's own token, and its column, [N] each: `coupling.draft_of_text`.

        q: [N, Q]; written: [N] the target's chance of the text's token; column: [N] where it stands, or -1.
        """
        own = torch.where(column >= 0, q.gather(1, column.clamp_min(0)[:, None])[:, 0], 0.0)
        uniforms = torch.from_numpy(noise.random((2, len(q))))
        follows = uniforms[0] * written < own
        taken = column.clone()
        leaves = (~follows).nonzero().squeeze(1)
        if len(leaves):
            excess = p.take(leaves).excess(q[leaves])
            some = excess.sum(1) > 0
            # p and q differ by rounding alone where nothing is left: then the draft is the text's
            follows[leaves] = ~some & (column[leaves] >= 0)
            departed = draw(torch.where(some[:, None], excess, q[leaves]), uniforms[1, leaves])
            taken[leaves] = torch.where(follows[leaves], column[leaves], departed)
        return follows, taken

    def _ask(self, read: TextRead, anchors: Tensor, drafted: _Drafted) -> None:
        """The true chance of slots off the text, by one pass of the target over what of the drafts has left it."""
        K = self.K
        known = (~drafted.acceptance.isnan()).sum(1)  # [B] slots from the first on
        asked = drafted.acceptance.isnan().flatten().nonzero().squeeze(1)
        if not len(asked):
            return
        some = known < K
        off = Branches((read.first + anchors + known)[some], K - known[some])
        # what judges a slot is the target's row of the token before it; every draft has followed the text at first
        x = self.target.embedding[drafted.tokens.flatten()[asked - 1]]
        x, _ = branches.forward(self.target.layers, self.prefix, self.target.turns, x, off)
        x = self.target.normed(x)
        q = drafted.q.flatten(0, 1)
        for states, at in zip(x.split(TOGETHER), asked.split(TOGETHER), strict=True):
            p = chances(self.target, states, self.sampling, self.ids, self.column_of)
            drafted.acceptance.view(-1)[at] = p.overlap(q[at])


def _told(draws: Draws, own: Tensor | None) -> Tensor:
    """The features of one slot of each row, [R, F]: of the rows, then the drafter's own."""
    of_rows = torch.from_numpy(draws.features.values[:, 0]).float()
    return of_rows if own is None else torch.cat([of_rows, own], 1)
