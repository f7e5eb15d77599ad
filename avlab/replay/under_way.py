"""Requests under way in a replay, and the step that moves them all: what `engine.Engine.step` does, less the models.

Texts advance by the slots that they follow, and time by what the machine's table says. Everything but the costs is
exact (`speculation.coupling`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from avlab.machines import Machine
from avlab.policies.base import Admission, Policy
from avlab.replay.trace import Trace
from avlab.speculation.decision import Offer
from avlab.speculation.estimates import Estimates
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels, labels
from avlab.speculation.regression import Refit


class Decoding(NamedTuple):
    """What a step did for the B requests that could draft; K positions.

    rows [B]: which of the requests under way. kinds [B]: of their texts. scheduled, admitted, accepted, emitted [B]:
    draft tokens offered, given to the target and kept, and output tokens. features, labels: None where nothing was
    drafted. estimates: None where the policy makes none. refit: of the step's end.
    """

    rows: np.ndarray
    kinds: np.ndarray
    scheduled: np.ndarray
    admitted: np.ndarray
    accepted: np.ndarray
    emitted: np.ndarray
    features: Features | None
    estimates: Estimates | None
    labels: Labels | None
    admission: Admission | None
    refit: Refit | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step. milliseconds: of the draft, the target's pass and the rest. Counts are over its requests."""

    milliseconds: tuple[float, float, float]
    decoding: int  # requests that could draft
    emitting: int
    tokens: int  # output tokens
    prefill: int  # prompt tokens
    depth: int
    scheduled: int
    admitted: int
    accepted: int


class UnderWay:
    """R requests under way, one row each, in the order in which their prompts are computed.

    text [R]: its number in the trace. at [R]: its newest token, as a position of the output. prompt [R]: prompt tokens
    still to be computed. output, limit [R]: tokens that the request will have had, and the most that it may have.
    earlier [R, K]: estimates of the step before, nan where there are none.
    """

    def __init__(self, trace: Trace, machine: Machine, prefill_tokens: int | None = None):
        """prefill_tokens: the most prompt tokens of a step; None: as the machine says."""
        self.trace, self.machine, self.K = trace, machine, trace.about.K
        self.prefill_tokens = prefill_tokens or machine.about.prefill_tokens
        self._behind = None if trace.behind is None else trace.behind.reshape(-1, *trace.features.shape[1:])
        self.text, self.at, self.prompt, self.output, self.limit = np.zeros((5, 0), dtype=np.int64)
        self.earlier = np.zeros((0, self.K))

    def __len__(self) -> int:
        return len(self.text)

    def begin(self, text: np.ndarray, limit: np.ndarray | None = None) -> None:
        """New rows behind the others, [n]: their prompts are still to be computed. limit: below the trace's own."""
        trace = self.trace
        most = trace.limit[text] if limit is None else np.minimum(limit, trace.limit[text])
        new = (
            text,
            np.zeros_like(text),
            trace.prompt_tokens[text],
            np.minimum(trace.output_tokens[text], most),
            most,
        )
        now = self.text, self.at, self.prompt, self.output, self.limit
        self.text, self.at, self.prompt, self.output, self.limit = (
            np.append(old, more) for old, more in zip(now, new, strict=True)
        )
        self.earlier = np.concatenate([self.earlier, np.full((len(text), self.K), np.nan)])

    def again(self, row: int, text: int) -> None:
        """The row's request has ended, and another one takes its place."""
        trace = self.trace
        self.text[row], self.at[row], self.earlier[row] = text, 0, np.nan
        self.prompt[row], self.output[row], self.limit[row] = (
            trace.prompt_tokens[text],
            trace.output_tokens[text],
            trace.limit[text],
        )

    def leave(self, rows: np.ndarray) -> None:
        """These requests are no longer under way."""
        stay = np.ones(len(self), dtype=bool)
        stay[rows] = False
        now = self.text, self.at, self.prompt, self.output, self.limit
        self.text, self.at, self.prompt, self.output, self.limit = (each[stay] for each in now)
        self.earlier = self.earlier[stay]

    @property
    def over(self) -> np.ndarray:
        """Rows whose last token has been written."""
        return np.flatnonzero((self.prompt == 0) & (self.at >= self.output - 1))

    def step(self, policy: Policy, coins: np.ndarray) -> tuple[Step, Decoding]:
        """One step of all requests: decide, read the draft, estimate, admit, advance, observe. coins [R]: uniforms."""
        trace, K, everybody = self.trace, self.K, not self.prompt.any()
        ready = np.arange(len(self)) if everybody else np.flatnonzero(self.prompt == 0)  # [B]
        rows = slice(None) if everybody else ready  # of every array: what needs no copy is not copied
        prefill, begun = (0, 0) if everybody else self._compute_prompts()
        B, text, at = len(ready), self.text[rows], self.at[rows]
        left = self.output[rows] - 1 - at  # output tokens to come
        most = self.limit[rows] - 2 - at  # one more token must remain behind a draft
        offer = Offer(
            scheduled=np.maximum(np.minimum(most, K), 0),
            earlier=self.earlier[ready],
            coins=coins[rows],
            requests=B,
            emitting=B + begun,
            other_tokens=B + prefill,
        )
        classes = trace.kind[text]
        depth, lengths, kept = 0, np.zeros(B, dtype=np.int64), np.zeros(B, dtype=np.int64)
        features = estimates = learnt = admission = None
        if B:
            decision = policy.decide(offer)
            depth = decision.drafted
            offer.scheduled = np.minimum(offer.scheduled, depth)
            anchor = trace.first[text] + at
            if depth:
                features = self.features(trace.features.take(anchor, axis=0), depth, classes)
                estimates = policy.estimate(features)
                if trace.drafted is not None:  # the drafter may have found less than it was asked for
                    found = trace.drafted[anchor]
                    offer.scheduled = np.minimum(offer.scheduled, found)
                    estimates = estimates.ending(found, depth) if estimates else None
            admission = policy.admit(decision, estimates, offer)
            lengths = admission.admitted
            kept = np.minimum(trace.accepted[anchor], lengths)
            if features is not None:
                learnt = labels(kept, lengths, K, left)
                policy.observe(features, estimates, learnt)
            if estimates is None:
                self.earlier[rows] = np.nan
            else:
                self.earlier[rows] = estimates.probability
                self.remember(policy, ready, anchor, lengths, kept, depth, classes)
        refit = policy.end_step()
        cached = self.cached(ready) if self.machine.knows_cached else 0
        emitted = np.minimum(kept + 1, left)  # an accepted end of text has nothing behind it
        admitted = int(np.add.reduce(lengths))
        step = Step(
            milliseconds=self.machine.milliseconds(B, depth, offer.other_tokens + admitted, cached, prefill),
            decoding=B,
            emitting=offer.emitting,
            tokens=int(np.add.reduce(emitted)) + begun,
            prefill=prefill,
            depth=depth,
            scheduled=int(np.add.reduce(offer.scheduled)) if depth else 0,
            admitted=admitted,
            accepted=int(np.add.reduce(kept)),
        )
        self.at[rows] += emitted
        return step, Decoding(
            ready,
            classes,
            offer.scheduled,
            lengths,
            kept,
            emitted,
            features,
            estimates,
            learnt,
            admission,
            refit,
        )

    def features(self, values: np.ndarray, depth: int, classes: np.ndarray | None = None) -> Features:
        """Recorded features [B, K, F] of a draft of this depth. classes [B]: of the requests."""
        values = values.astype(np.float64)
        if depth < self.K:
            values[:, depth:] = np.nan
        return Features(self.trace.about.features, values, classes)

    def remember(
        self,
        policy: Policy,
        ready: np.ndarray,
        anchor: np.ndarray,
        lengths: np.ndarray,
        kept: np.ndarray,
        depth: int,
        classes: np.ndarray,
    ) -> None:
        """For the next step's decision: estimates of slots behind what was verified are those of a draft that does not
        know the text. In serving the text there is drawn later."""
        if self._behind is None:
            return
        who = np.flatnonzero((lengths < depth) & (kept == lengths))
        if len(who):
            values = self._behind.take(anchor[who] * self.K + lengths[who], axis=0)
            other = policy.estimate(self.features(values, depth, classes[who]))
            if other is not None:
                self.earlier[ready[who]] = other.probability

    def cached(self, rows: np.ndarray) -> int:
        """Tokens in the caches of these requests: prompts, and what was written before the newest token."""
        return int(self.trace.prompt_tokens[self.text[rows]].sum() + self.at[rows].sum())

    def _compute_prompts(self) -> tuple[int, int]:
        """Prompt tokens computed this step, first come first served, and requests that emit their first token."""
        waiting = np.flatnonzero(self.prompt)
        if not len(waiting):
            return 0, 0
        room, begun = self.prefill_tokens, 0
        for request in waiting:
            chunk = min(int(self.prompt[request]), room)
            self.prompt[request] -= chunk
            room -= chunk
            begun += int(self.prompt[request] == 0)
        return self.prefill_tokens - room, begun
