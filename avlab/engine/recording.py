"""Recording a trace: texts of the target, and at every position a draft that is drawn jointly with the text.

The law is `speculation.coupling`'s; here are its two draws on tensors (a test holds them equal). Anchors are drafted
from the last to the first: drafter and target write their keys behind an anchor, where no earlier anchor reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from avlab.engine.drafters.base import DraftInput, Drafts
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafters.draws import row_features
from avlab.engine.engine import Engine
from avlab.engine.request import Request
from avlab.engine.rows import draw
from avlab.engine.sampler import SamplingParameters, TargetProbs
from avlab.engine.target import Target
from avlab.replay.trace import About, Trace
from avlab.speculation.features import log_odds_of_maximum

TOGETHER = 32  # texts drafted for at once


@dataclass(frozen=True, slots=True)
class Text:
    """A text to record: a prompt and what the target wrote, [n >= 2] tokens of at most `limit`."""

    kind: str
    prompt: list[int]
    output: list[int]
    limit: int


def written(engine: Engine, requests: Sequence[Request], progress: Callable[[int, int], None]) -> list[Text]:
    """What the engine writes to these prompts, in their order; texts of a single token hold no anchor and are left out.

    progress(texts done, all). Raises RequestError for a request that can never be served.
    """
    for request in requests:
        engine.add(request)
    found: dict[int, Text] = {}
    ended = 0
    while engine.running or engine.waiting:
        for finished in engine.step().finished:
            request, ended = finished.sequence.request, ended + 1
            output = finished.sequence.tokens[len(request.tokens) :]
            if len(output) >= 2:
                found[request.id] = Text(request.kind, request.tokens, output, request.max_new_tokens)
        progress(ended, len(requests))
    return [found[number] for number in sorted(found)]


@dataclass(slots=True)
class _Read:
    """A text as the target reads it. states: [n - 1, S * hidden] before each anchor's newest token. p: [n - 1, Q] the
    target's distribution of the token behind each anchor, over the draft vocabulary; written: [n - 1] the chance of the
    text's own; column: [n - 1] where that stands in the draft vocabulary, or -1."""

    states: Tensor
    p: Tensor
    written: Tensor
    column: Tensor


class Recorder:
    """Records texts with one target and its block drafter. Temperature 0 is greedy."""

    def __init__(
        self, target: Target, drafter: BlockDrafter, temperature: float, top_p: float, top_k: int, seed: int
    ):
        self.target, self.drafter, self.K = target, drafter, drafter.K
        self.temperature, self.top_p, self.top_k, self.seed = temperature, top_p, top_k, seed
        self.cache = target.new_cache(TOGETHER)
        self.ids = drafter.vocabulary.ids
        self.noise = torch.Generator().manual_seed(seed)

    def record(
        self, texts: Sequence[Text], names: tuple[str, str], progress: Callable[[int, int], None]
    ) -> Trace:
        """A trace of these texts. names: of the target and the drafter. progress(texts done, all)."""
        order = sorted(
            range(len(texts)), key=lambda i: len(texts[i].output)
        )  # alike in length drafted together
        parts: dict[int, tuple[np.ndarray, ...]] = {}
        for begin in range(0, len(order), TOGETHER):
            some = order[begin : begin + TOGETHER]
            for i, part in zip(some, self._texts([texts[i] for i in some]), strict=True):
                parts[i] = part
            progress(min(begin + TOGETHER, len(order)), len(order))
        accepted, features, acceptance, behind = (
            np.concatenate(column) for column in zip(*(parts[i] for i in range(len(texts))), strict=True)
        )
        lengths = np.array([len(text.output) for text in texts])
        about = About(
            self.K, self.drafter.features, *names, self.seed, self.temperature, self.top_p, self.top_k
        )
        return Trace(
            about=about,
            kind=np.array([text.kind for text in texts], dtype=object),
            prompt_tokens=np.array([len(text.prompt) for text in texts]),
            output_tokens=lengths,
            limit=np.array([text.limit for text in texts]),
            first=np.cumsum(lengths - 1) - (lengths - 1),
            accepted=accepted,
            features=features,
            acceptance=acceptance,
            behind=behind if self.temperature > 0 else None,  # a greedy draft draws nothing
        )

    @torch.inference_mode()
    def _texts(self, texts: Sequence[Text]) -> list[tuple[np.ndarray, ...]]:
        """accepted, features, acceptance and behind of each text, [n - 1, ...]."""
        K, F = self.K, len(self.drafter.features)
        read = [self._read(row, text) for row, text in enumerate(texts)]
        shapes = ((), (K, F), (K,), (K, K, F))
        found = [
            tuple(np.zeros((len(text.output) - 1, *shape), dtype=np.float32) for shape in shapes)
            for text in texts
        ]
        for t in reversed(range(max(len(text.output) for text in texts) - 1)):
            rows = [i for i, text in enumerate(texts) if t < len(text.output) - 1]
            for i, anchor in zip(rows, zip(*self._anchors(texts, read, rows, t), strict=True), strict=True):
                for column, value in zip(found[i], anchor, strict=True):
                    column[t] = value
        return found

    def _read(self, row: int, text: Text) -> _Read:
        tokens = torch.tensor(text.prompt + text.output[:-1])
        batch = self.target.batch([row], [0], [len(tokens)])
        final, tapped = self.target.forward(tokens, batch, self.cache, self.drafter.state_layers)
        first = len(text.prompt)
        states = torch.cat([final, *tapped], 1)[first - 1 : -1]
        p, chance = [], []
        written = torch.tensor(text.output[1:])
        for some, tokens_of in zip(final[first:].split(64), written.split(64), strict=True):
            dense = self._distribution(self.target.logits(some))
            p.append(dense[:, self.ids])
            chance.append(dense.gather(1, tokens_of[:, None])[:, 0])
        return _Read(states, torch.cat(p), torch.cat(chance), self.drafter.vocabulary.column[written])

    def _distribution(self, logits: Tensor) -> Tensor:
        """The target's distribution p after sampling parameters, [M, V] -> [M, V]."""
        M = len(logits)
        settings = (self.temperature, self.top_k, self.top_p)
        rows = TargetProbs(logits, SamplingParameters(*(torch.full((M,), each) for each in settings)))
        if rows.top is not None:
            return torch.zeros_like(logits).scatter_(1, rows.top[:, None], 1.0)
        if rows.place is None:
            return (rows.scaled - rows.normaliser[:, None]).exp()
        return torch.zeros_like(logits).scatter_add_(1, rows.tokens, rows.masses)

    def _anchors(
        self, texts: Sequence[Text], read: Sequence[_Read], rows: list[int], t: int
    ) -> tuple[np.ndarray, ...]:
        """What is recorded of anchor t of the texts `rows`, [B, ...] each."""
        drafter, K, B, F = self.drafter, self.K, len(rows), len(self.drafter.features)
        starts = [len(texts[i].prompt) + t for i in rows]
        newest = torch.tensor([texts[i].output[t] for i in rows])
        states = torch.stack([read[i].states[t] for i in rows])
        nothing = torch.zeros(B, K, dtype=torch.float64)
        inputs = DraftInput(
            rows, starts, newest, states, torch.full((B,), self.temperature), nothing, self.cache, []
        )
        x, base, drive = drafter.block(inputs, K)

        on, accepted = torch.ones(B, dtype=torch.bool), torch.zeros(B)
        features, acceptance = torch.full((B, K, F), torch.nan), torch.full((B, K), torch.nan)
        behind = torch.full((B, K, K, F), torch.nan)
        state, previous = torch.zeros_like(drive[:, 0]), newest
        drafted, rows_of_q = [], []
        tails: list[tuple[Tensor, Tensor]] = []  # state and token of drafts that know the text no more
        for k in range(K):
            state, logits = drafter.position(previous, state, base[:, k], drive[:, k])
            q = self._draft_distribution(logits)
            tails = self._continue(tails, k, x, base, drive, behind)
            left = torch.tensor(
                [len(read[i].written) - t - k for i in rows]
            )  # output tokens from this slot on
            inside = on & (left > 0)
            p, written, column = self._text_at(read, rows, t + k, q)
            follows, token = self._coupled(p, q, written, column)
            acceptance[inside, k] = torch.minimum(p, q).sum(1)[inside]
            free = self._draw(q)
            column_drawn = torch.where(inside, token, free)
            features[:, k] = self._features(logits, q, column_drawn, x[:, k], state)
            tails.append((state, self.ids[free]))
            previous = self.ids[column_drawn]
            on = inside & follows
            accepted += on
            rows_of_q.append(q)
            drafted.append(previous)
        self._ask(
            rows, starts, torch.stack([newest, *drafted[:-1]], 1), torch.stack(rows_of_q, 1), acceptance
        )
        return accepted.numpy(), features.numpy(), acceptance.numpy(), behind.numpy()

    def _ask(self, rows: list[int], starts: list[int], tokens: Tensor, q: Tensor, acceptance: Tensor) -> None:
        """The true chance of slots off the text, by one pass of the target over the draft. tokens: [B, K]."""
        B, K = tokens.shape
        batch = self.target.batch(rows, starts, [K] * B)
        final, _ = self.target.forward(tokens.flatten(), batch, self.cache, self.drafter.state_layers)
        for some in acceptance.isnan().flatten().nonzero().squeeze(1).split(64):
            p = self._distribution(self.target.logits(final[some]))[:, self.ids]
            acceptance.view(-1)[some] = torch.minimum(p, q.flatten(0, 1)[some]).sum(1)

    def _text_at(
        self, read: Sequence[_Read], rows: list[int], place: int, q: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """p [B, Q], the chance of the text's own token [B] and its column [B]; anything where a text has ended."""
        at = [min(place, len(read[i].written) - 1) for i in rows]
        found = ((read[i].p[j], read[i].written[j], read[i].column[j]) for i, j in zip(rows, at, strict=True))
        p, written, column = (torch.stack(each) for each in zip(*found, strict=True))
        return p, written, column

    def _coupled(self, p: Tensor, q: Tensor, written: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each draft is the text's own token, and its column, [B] each: `coupling.draft_of_text`."""
        own = torch.where(column >= 0, q.gather(1, column.clamp_min(0)[:, None])[:, 0], 0.0)
        follows = torch.rand(len(p), generator=self.noise) * written < own
        excess = (q - p).clamp_min_(0)
        some = excess.sum(1) > 0
        follows |= ~some & (column >= 0)  # p and q differ by rounding alone
        departed = self._draw(torch.where(some[:, None], excess, q))
        return follows, torch.where(follows, column, departed)

    def _continue(
        self, tails, k: int, x: Tensor, base: Tensor, drive: Tensor, behind: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """Draft position k of every draft that left the text before; its features go into `behind`."""
        if not tails or self.temperature == 0:
            return tails
        n, B = len(tails), len(x)
        state, previous = (torch.cat(each) for each in zip(*tails, strict=True))
        wide = (each[:, k].repeat(n, 1) for each in (base, drive))
        state, logits = self.drafter.position(previous, state, *wide)
        q = self._draft_distribution(logits)
        column = self._draw(q)
        found = self._features(logits, q, column, x[:, k].repeat(n, 1), state)
        behind[:, :n, k] = found.view(n, B, -1).transpose(0, 1)
        token = self.ids[column]
        return list(zip(state.split(B), token.split(B), strict=True))

    def _draft_distribution(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
        return (logits / self.temperature).softmax(1)

    def _draw(self, q: Tensor) -> Tensor:
        return draw(q, torch.rand(len(q), dtype=torch.float64, generator=self.noise))

    def _features(self, logits: Tensor, q: Tensor, columns: Tensor, x: Tensor, state: Tensor) -> Tensor:
        """The drafter's features of one position, [B, F]. A greedy row counts unscaled, as in `max_log_odds`."""
        weights = (logits.float().softmax(1) if self.temperature == 0 else q)[:, None]
        drafts = Drafts(
            tokens=self.ids[columns][:, None],
            draft_probs=None,
            vocabulary=self.drafter.vocabulary,
            features=row_features(
                self.drafter.features, log_odds_of_maximum(weights, torch), weights, columns[:, None]
            ),
        )
        self.drafter.add_head(drafts, x[:, None], state[:, None])
        return torch.from_numpy(drafts.features.values[:, 0]).float()
